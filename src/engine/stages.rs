//! What frames pass, one by one as on the wire, between the ingress and the egress of a direction: packet
//! filters, then the capture.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::counters::{Counters, DropReason};
use super::faults::LogGate;
use crate::capture::Recorder;
use crate::filter::{Filter, Named, Verdict};
use crate::nio::Packet;
use crate::output::Output;

/// Bytes of memory that the frames held back in one direction may take; more are dropped.
pub const HELD_LIMIT: usize = 32 << 20;

/// Buffers kept for the next frames; as many as one super-frame has pieces.
const SPARES: usize = 64;

/// What the frames of one direction pass. It is replaced as a whole, never changed, so that a worker sees
/// either the old or the new.
#[derive(Debug, Default)]
pub struct Stages {
    /// Each may drop a frame, change it or hold it back; most are shared by both directions.
    pub filters: Vec<Named>,
    /// What records the frames that passed the filters, in a capture shared by both directions.
    pub capture: Option<Recorder>,
    /// Where each frame is told.
    pub trace: Option<Trace>,
}

impl Stages {
    /// Whether there are none: then super-frames need not be cut for them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.capture.is_none() && self.trace.is_none()
    }
}

/// Lines for whoever asked to see each frame (`-d`).
#[derive(Debug, Clone)]
pub struct Trace {
    /// Where to.
    pub output: Output,
    /// 1: a line for each frame; 2: its bytes too.
    pub level: u8,
    /// What follows the number of bytes: ` on bridge 'b' (source NIO)`.
    pub received: String,
    /// What follows the name of the filter that dropped it: ` on bridge 'b'`.
    pub dropped: String,
}

/// The frames of one direction between the first filter and the egress.
#[derive(Debug, Default)]
pub(super) struct Staged {
    lines: Vec<Line>,
    /// Those to be sent now, in order.
    pub(super) ready: VecDeque<Packet>,
    /// Memory of the frames in the lines.
    held: usize,
    spares: Vec<Vec<u8>>,
    /// Room for the copies of one frame, and the filters that each passes next.
    copies: Vec<(Packet, usize)>,
    log: LogGate,
}

/// The frames that one filter holds back, in order.
#[derive(Debug)]
struct Line {
    filter: Arc<dyn Filter>,
    frames: VecDeque<(Instant, Packet)>,
}

impl Staged {
    /// Passes a frame that was just received through all stages.
    pub(super) fn receive(&mut self, frame: &[u8], stages: &Stages, counters: &Counters) {
        if let Some(trace) = &stages.trace {
            trace.received(frame);
        }
        let packet = Packet::copy(frame, self.spares.pop().unwrap_or_default());
        self.pass(packet, 0, None, stages, counters);
    }

    /// When the next frame that is held back is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lines.iter().filter_map(Line::due).min()
    }

    /// Passes on what is due, up to `limit` frames, as long as fewer than that wait to be sent.
    pub(super) fn release(&mut self, limit: usize, stages: &Stages, counters: &Counters) {
        if self.held == 0 {
            return;
        }
        let now = Instant::now();
        for _ in 0..limit {
            let waiting = self.lines.iter_mut().filter(|line| line.due().is_some_and(|due| due <= now));
            let Some(line) = waiting.min_by_key(|line| line.due()) else { return };
            if self.ready.len() >= limit {
                return;
            }
            let position = position(stages, &line.filter);
            let Some((due, packet)) = line.frames.pop_front() else { return };
            self.held -= packet.memory();
            match position {
                Some(position) => self.pass(packet, position + 1, Some(due), stages, counters),
                None => self.give_up(packet, counters),
            }
        }
    }

    /// Drops what filters hold back that are not among `stages` any more.
    pub(super) fn keep_to(&mut self, stages: &Stages, counters: &Counters) {
        for line in std::mem::take(&mut self.lines) {
            if position(stages, &line.filter).is_some() {
                self.lines.push(line);
                continue;
            }
            for (_, packet) in line.frames {
                self.held -= packet.memory();
                self.give_up(packet, counters);
            }
            line.filter.dropped_all();
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, counters: &Counters) {
        self.keep_to(&Stages::default(), counters);
        while let Some(packet) = self.ready.pop_front() {
            self.give_up(packet, counters);
        }
    }

    /// Takes back the memory of a frame that has been sent.
    pub(super) fn recycle(&mut self, packet: Packet) {
        if self.spares.len() < SPARES {
            self.spares.push(packet.into_spare());
        }
    }

    fn give_up(&mut self, packet: Packet, counters: &Counters) {
        counters.drop_frames(DropReason::Stopped, 1);
        self.recycle(packet);
    }

    /// Passes a frame from the filter at `first` on, then the copies that filters make of it; `since` is when it left the
    /// one before, if that held it back.
    fn pass(&mut self, packet: Packet, first: usize, since: Option<Instant>, stages: &Stages, counters: &Counters) {
        // Copies have none themselves.
        let mut copies = std::mem::take(&mut self.copies);
        self.pass_one(packet, first, since, stages, counters, &mut copies);
        for (copy, next) in copies.drain(..) {
            counters.duplicated.add(1);
            self.pass(copy, next, since, stages, counters);
        }
        self.copies = copies;
    }

    fn pass_one(
        &mut self,
        mut packet: Packet,
        first: usize,
        since: Option<Instant>,
        stages: &Stages,
        counters: &Counters,
        copies: &mut Vec<(Packet, usize)>,
    ) {
        for (index, Named { name, filter }) in stages.filters.iter().enumerate().skip(first) {
            match filter.judge(packet.frame_mut()) {
                Verdict::Pass => {}
                Verdict::Twice => {
                    // A copy is not copied again: filters would make ever more of them.
                    if !packet.is_duplicate() {
                        copies.push((packet.duplicate(self.spares.pop().unwrap_or_default()), index + 1));
                    }
                }
                Verdict::Drop => {
                    if let Some(trace) = &stages.trace {
                        trace.dropped(name);
                    }
                    counters.drop_frames(DropReason::Filtered, 1);
                    return self.recycle(packet);
                }
                Verdict::Hold(duration) => {
                    let due = since.unwrap_or_else(Instant::now) + duration;
                    return self.hold(packet, filter, due, counters);
                }
            }
        }
        if let Some(capture) = &stages.capture {
            capture.record(packet.frame(), SystemTime::now());
        }
        self.ready.push_back(packet);
    }

    fn hold(&mut self, packet: Packet, filter: &Arc<dyn Filter>, due: Instant, counters: &Counters) {
        if self.held + packet.memory() > HELD_LIMIT {
            counters.drop_frames(DropReason::DelayFull, 1);
            if let Some(not_told) = self.log.pass() {
                let reason = DropReason::DelayFull.name();
                tracing::warn!(bytes = self.held, not_told, reason, "a filter holds back more than there is room for");
            }
            return self.recycle(packet);
        }
        self.held += packet.memory();
        let index = self.lines.iter().position(|line| Arc::ptr_eq(&line.filter, filter)).unwrap_or_else(|| {
            self.lines.push(Line { filter: Arc::clone(filter), frames: VecDeque::new() });
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        // Order is kept, whatever the jitter.
        let last = line.frames.back().map_or(due, |(last, _)| *last);
        line.frames.push_back((due.max(last), packet));
    }
}

impl Line {
    fn due(&self) -> Option<Instant> {
        self.frames.front().map(|(due, _)| *due)
    }
}

fn position(stages: &Stages, filter: &Arc<dyn Filter>) -> Option<usize> {
    stages.filters.iter().position(|named| Arc::ptr_eq(&named.filter, filter))
}

impl Trace {
    fn received(&self, frame: &[u8]) {
        let mut text = format!("Received {} bytes{}", frame.len(), self.received);
        if self.level > 1 {
            for row in frame.chunks(16) {
                let hex: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
                let letters: String = row.iter().map(|&byte| printable(byte)).collect();
                text.push_str(&format!("\n{hex:<48} {letters}"));
            }
        }
        self.output.say(&text);
    }

    fn dropped(&self, filter: &str) {
        self.output.say(&format!("Packet dropped by packet filter '{filter}'{}", self.dropped));
    }
}

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }
}
