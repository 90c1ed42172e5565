//! `rubridge bridge`: one bridge, in the foreground.

use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, bounded, never, select, tick};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::offload;
use super::report::{Report, rates, totals};
use crate::engine::link::Equipment;
use crate::engine::{Engine, Link};
use crate::nio::{KINDS, Kind, Mode, Nio};
use crate::output::Output;

/// Bridge two NIOs until interrupted.
///
/// A NIO is written as its kind and what the kind needs, with a colon in between. Frames that one end cannot
/// take as they are get cut or finished in software; what is done is printed at the start.
#[derive(Debug, clap::Args)]
#[command(after_help = kinds_help())]
pub(super) struct Arguments {
    /// One end of the bridge
    #[arg(value_name = "NIO")]
    first: String,
    /// The other end
    #[arg(value_name = "NIO")]
    second: String,
    /// Print the rates of each direction every so many seconds, and how many frames were dropped since
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stats: Option<u64>,
    /// Offloads to use: `auto`, `off` for a plain bridge that knows nothing of them, or what to leave out, as
    /// `no-tso4,no-tso6,no-ecn,no-uso,no-csum,no-merge,no-runs`
    #[arg(long, value_name = "WHICH", default_value = "auto", value_parser = offload::parse)]
    offload: Mode,
}

fn kinds_help() -> String {
    let kinds: Vec<String> = KINDS.iter().map(Kind::usage).collect();
    format!("Kinds of NIO: {}", kinds.join(", "))
}

/// Runs until SIGINT or SIGTERM.
pub(super) fn run(arguments: &Arguments, out: &Output) -> anyhow::Result<()> {
    // First of all, so that a signal at any time from here on ends in order.
    let stop = stop_signals().context("signals cannot be caught")?;
    let first = Nio::open(&arguments.first, arguments.offload)?;
    let second = Nio::open(&arguments.second, arguments.offload)?;
    anyhow::ensure!(
        first.identity.description != second.identity.description,
        "{} and {} are the same: a bridge needs two different ends",
        first.identity,
        second.identity
    );
    let engine = Engine::start().context("the workers cannot be started")?;
    let link = Link::start(&engine, first, second, Equipment::default())
        .map_err(|error| error.cause)
        .context("the bridge cannot be started")?;

    for direction in link.directions() {
        out.say(&Report::of(direction, arguments.offload).to_string());
    }
    out.say("forwarding; stop with Ctrl-C");
    let started = Instant::now();
    let ticks = arguments.stats.map_or_else(never, |seconds| tick(Duration::from_secs(seconds)));
    let mut last = link.directions().each_ref().map(Into::into);
    let mut last_at = started;
    loop {
        select! {
            recv(stop) -> _ => break,
            recv(ticks) -> _ => {
                let now = link.directions().each_ref().map(Into::into);
                out.say(&rates(link.directions(), &last, &now, last_at.elapsed()));
                (last, last_at) = (now, Instant::now());
            }
        }
    }
    let elapsed = started.elapsed();
    let directions = link.directions().clone();
    drop(link.stop());
    out.say(&totals(&directions, elapsed));
    Ok(())
}

/// A channel that says when to stop.
fn stop_signals() -> std::io::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (sender, receiver) = bounded(1);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            // Once is enough, and the receiver is gone when the program ends anyway.
            let _ = sender.try_send(());
        }
    })?;
    Ok(receiver)
}
