//! `-f`: the bridges of an INI file.

use std::path::PathBuf;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{BridgeConfig, ini};
use crate::engine::Engine;
use crate::lab::{Lab, configured};
use crate::nio::Mode;
use crate::output::Console;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The file that describes the bridges.
    pub(super) path: PathBuf,
    /// How much to tell of each frame.
    pub(super) debug: u8,
    /// How NIOs are opened.
    pub(super) mode: Mode,
}

/// Runs until a signal ends it; a file that cannot be read is told, but no failure.
pub(super) fn run(options: &Options, console: &Console) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals cannot be caught")?;
    let Some(bridges) = read(options, console) else { return Ok(()) };
    let engine = Engine::start().context("the workers cannot be started")?;
    let mut lab = Lab::new(console.clone(), options.mode, engine);
    configured::start(&mut lab, bridges.into_iter().flatten());
    for signal in &mut signals {
        if signal != SIGHUP {
            break;
        }
        console.stdout.say("Reloading configuration");
        // With anything wrong in it, what runs goes on.
        let bridges = read(options, console).and_then(|bridges| bridges.into_iter().collect::<Option<Vec<_>>>());
        match bridges {
            Some(bridges) => {
                lab.reset();
                configured::start(&mut lab, bridges.into_iter());
            }
            None => console.stderr.say("the old configuration is kept"),
        }
    }
    Ok(())
}

/// The bridges of the file, `None` for each that is described wrongly; nothing where the file is no good.
fn read(options: &Options, console: &Console) -> Option<Vec<Option<BridgeConfig>>> {
    let sections = match ini::load(&options.path) {
        Ok(sections) => sections,
        Err(faults) => {
            faults.iter().for_each(|fault| console.stderr.say(&fault.to_string()));
            return None;
        }
    };
    let bridges = sections.iter().map(|section| {
        console.stdout.say(&section.announcement());
        let complain = |error| console.stderr.say(&format!("bridge '{}': {error}", section.name));
        BridgeConfig::read(section).map_err(complain).ok()
    });
    Some(bridges.collect())
}
