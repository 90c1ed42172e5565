//! What is printed of a bridge: what each direction will do, its rates, and its totals.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use crate::engine::DirectionInfo;
use crate::engine::counters::{Counters, DropReason};
use crate::nio::Mode;
use crate::wire::offload::Features;

/// What one direction will do with frames that are not as they would be on the wire.
pub(super) struct Report<'a> {
    direction: &'a DirectionInfo,
    mode: Mode,
}

impl<'a> Report<'a> {
    pub(super) fn of(direction: &'a DirectionInfo, mode: Mode) -> Self {
        Self { direction, mode }
    }
}

impl Display for Report<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let DirectionInfo { from, to, features, mtu, .. } = self.direction;
        write!(out, "{from} -> {to}")?;
        if let Some(mtu) = mtu {
            write!(out, " (MTU {mtu})")?;
        }
        if self.mode == Mode::Plain {
            return write!(out, ": frames go on as they come, whatever offloads did to them");
        }
        let kinds = |wanted: bool| {
            let Features { tso4, tso6, uso, .. } = *features;
            let named = [(tso4, "TCP over IPv4"), (tso6, "TCP over IPv6"), (uso, "UDP")];
            let names = named.iter().filter(|(on, _)| *on == wanted).map(|(_, name)| *name);
            names.collect::<Vec<_>>().join(", ")
        };
        let (pass, cut) = (kinds(true), kinds(false));
        write!(out, ": super-frames")?;
        if !pass.is_empty() {
            write!(out, " of {pass} pass whole")?;
        }
        if !cut.is_empty() {
            write!(out, "{} of {cut} are cut", if pass.is_empty() { "" } else { ", those" })?;
        }
        if !features.ecn && !pass.is_empty() {
            write!(out, ", those with CWR are cut")?;
        }
        if features.merge && (features.tso4 || features.tso6) {
            let what = if features.uso { "TCP segments and UDP datagrams" } else { "TCP segments" };
            write!(out, "; {what} that follow each other are merged")?;
        }
        let checksums = if features.checksum { "pass as they are" } else { "are finished" };
        write!(out, "; unfinished checksums {checksums}")
    }
}

/// The counts of one direction at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    frames_out: u64,
    bytes_out: u64,
    writes: u64,
    passed: u64,
    cut: u64,
    dropped: u64,
}

impl From<&DirectionInfo> for Snapshot {
    fn from(direction: &DirectionInfo) -> Self {
        let counters = &direction.counters;
        Self {
            frames_out: counters.frames_out.get(),
            bytes_out: counters.bytes_out.get(),
            writes: counters.writes.get(),
            passed: counters.passed.get(),
            cut: counters.cut.get(),
            dropped: DropReason::ALL.iter().map(|&reason| counters.dropped(reason)).sum(),
        }
    }
}

/// A line of rates for each direction, for the time `elapsed` between two snapshots.
pub(super) fn rates(
    directions: &[DirectionInfo; 2],
    before: &[Snapshot; 2],
    now: &[Snapshot; 2],
    elapsed: Duration,
) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
    let rate = |count: u64| count as f64 / seconds;
    let line = |((direction, before), now): ((&DirectionInfo, &Snapshot), &Snapshot)| {
        format!(
            "-> {}: {:.3} Gb/s, {:.0} frames/s in {:.0} writes/s, super-frames/s {:.0} whole {:.0} cut, dropped {}",
            direction.to,
            rate((now.bytes_out - before.bytes_out) * 8) / 1e9,
            rate(now.frames_out - before.frames_out),
            rate(now.writes - before.writes),
            rate(now.passed - before.passed),
            rate(now.cut - before.cut),
            now.dropped - before.dropped,
        )
    };
    let lines: Vec<String> = directions.iter().zip(before).zip(now).map(line).collect();
    lines.join("\n")
}

/// A block with everything that was counted.
pub(super) fn totals(directions: &[DirectionInfo; 2], elapsed: Duration) -> String {
    let mut block = format!("totals after {:.1} s, in frames as on the wire:", elapsed.as_secs_f64());
    for DirectionInfo { from, to, counters, .. } in directions {
        let Counters { frames_in, bytes_in, frames_out, bytes_out, writes, passed, merged, cut, finished, .. } =
            &***counters;
        let _ = write!(
            block,
            "\n{from} -> {to}: in {} frames {} bytes, out {} frames {} bytes in {} writes; super-frames {} whole {} cut {} merged; \
             checksums finished {}; fallbacks {}",
            frames_in.get(),
            bytes_in.get(),
            frames_out.get(),
            bytes_out.get(),
            writes.get(),
            passed.get(),
            cut.get(),
            merged.get(),
            finished.get(),
            counters.fallbacks.get(),
        );
        let dropped = DropReason::ALL.iter().map(|&reason| (reason, counters.dropped(reason)));
        for (reason, count) in dropped.filter(|(_, count)| *count > 0) {
            let _ = write!(block, "; dropped {} {count}", reason.name());
        }
    }
    block
}
