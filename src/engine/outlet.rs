//! The second half of a direction: from a frame that was received to the egress.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use super::counters::{DropReason, SharedCounters, WireSize};
use super::faults::{LogGate, SendFault, Trust};
use super::plan::{Plan, Planned, Unplannable, plan};
use super::run::Run;
use super::stages::{Staged, Stages};
use super::worker::Turn;
use crate::nio::{Egress, Frame, Packet};
use crate::wire::offload::{Features, Offload, SuperFrameKind};
use crate::wire::segment::Cutter;

/// Where the trust in runs is.
const RUNS: usize = 4;

/// Pieces of super-frames sent in a turn: a hostile super-frame makes tens of thousands.
const PIECES_PER_TURN: usize = 1024;

/// Plans frames, passes them through the stages, and sends them.
#[derive(Debug)]
pub(super) struct Outlet {
    name: String,
    egress: Box<dyn Egress>,
    /// What the egress takes, and what of it is used: nothing while there are stages.
    offered: Features,
    features: Features,
    mtu: Option<u32>,
    /// By [`trust_of`], and in runs.
    trust: [Trust; 5],
    pub(super) counters: SharedCounters,
    log: LogGate,
    in_flight: Option<InFlight>,
    /// What is to be sent together, where the egress takes several frames in one call.
    run: Option<Run>,
    stages: Arc<Stages>,
    staged: Staged,
}

/// What is left to send of the frame in the buffer.
#[derive(Debug)]
struct InFlight {
    range: Range<usize>,
    offload: Offload,
    size: WireSize,
    cutter: Option<Cutter>,
}

impl Outlet {
    /// An outlet to the egress of the NIO called `name`.
    pub(super) fn new(name: String, egress: Box<dyn Egress>, counters: SharedCounters, stages: Arc<Stages>) -> Self {
        let offered = egress.features();
        let mut outlet = Self {
            name,
            offered,
            features: offered,
            mtu: egress.mtu(),
            trust: Default::default(),
            counters,
            log: LogGate::default(),
            in_flight: None,
            run: egress.run_limit().map(Run::new),
            egress,
            stages: Arc::default(),
            staged: Staged::default(),
        };
        outlet.set_stages(stages);
        outlet
    }

    pub(super) fn fd(&self) -> RawFd {
        self.egress.fd()
    }

    /// What is worth merging frames for: not what the egress has refused of late.
    pub(super) fn features_to_merge_for(&mut self) -> Features {
        let mut features = self.features;
        let kinds = [(1, &mut features.tso4), (2, &mut features.tso6), (3, &mut features.uso)];
        for (kind, feature) in kinds {
            *feature &= self.trust[kind].ask();
        }
        features
    }

    pub(super) fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// Replaces the stages; frames that a filter holds back are dropped with it.
    pub(super) fn set_stages(&mut self, stages: Arc<Stages>) {
        self.staged.keep_to(&stages, &self.counters);
        self.features = if stages.is_empty() { self.offered } else { Features::NONE };
        self.stages = stages;
    }

    /// The egress, without what was still to be sent.
    pub(super) fn into_egress(mut self) -> Box<dyn Egress> {
        self.clear();
        self.egress
    }

    /// Gives up what is still to be sent, and accounts for it.
    pub(super) fn clear(&mut self) {
        if let Some(InFlight { size, cutter, .. }) = self.in_flight.take() {
            let rest = cutter.map_or(0, |cutter| cutter.remaining() as u64);
            self.counters.drop_frames(DropReason::Stopped, size.frames + rest);
        }
        if let Some(run) = &mut self.run {
            self.counters.drop_frames(DropReason::Stopped, run.frames() as u64);
            run.clear();
        }
        self.staged.clear(&self.counters);
    }

    /// When a frame that is held back is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.staged.due()
    }

    /// Takes the frame in the buffer; [`Outlet::send`] must have emptied it of the one before.
    pub(super) fn take(&mut self, frame: &mut Frame) {
        let offload = frame.offload;
        let features = if offload == Offload::default() || self.trust[trust_of(offload)].ask() {
            self.features
        } else {
            Features::NONE
        };
        match plan(frame.bytes(), offload, features, self.mtu) {
            Ok(planned) => {
                self.counters.received(planned.input);
                self.launch(frame, planned);
            }
            Err(Unplannable { reason, input }) => {
                self.counters.lost(reason, input);
                if let Some(held_back) = self.log.pass() {
                    let (bytes, reason) = (frame.bytes().len(), reason.name());
                    tracing::warn!(nio = self.name, bytes, mtu = self.mtu, held_back, reason, "a frame was dropped");
                }
            }
        }
    }

    fn launch(&mut self, frame: &mut Frame, planned: Planned) {
        let whole = 0..frame.bytes().len();
        self.in_flight = match planned.plan {
            Plan::Whole(offload) => {
                if planned.finished {
                    self.counters.finished.add(1);
                }
                Some(InFlight { range: whole, offload, size: planned.output, cutter: None })
            }
            Plan::Cut(cutter) => {
                self.counters.cut.add(1);
                next_segment(frame, cutter)
            }
        };
    }

    /// Whether a whole run can be taken as it is.
    pub(super) fn takes_runs(&self) -> bool {
        self.run.is_some() && self.stages.is_empty()
    }

    /// Takes the whole run in the buffer, where [`Outlet::takes_runs`]; [`Outlet::send`] must have emptied it of what was
    /// there before.
    pub(super) fn take_run(&mut self, frame: &Frame) {
        let (Some(run), Some((bytes, size))) = (&mut self.run, frame.run()) else { return };
        let frames = bytes.len().div_ceil(size) as u64;
        self.counters.received(WireSize { frames, bytes: bytes.len() as u64 });
        run.borrow(frame);
        if !self.trust[RUNS].ask() {
            run.send_singly();
        }
    }

    /// Whether the run in the buffer has been taken and is not sent yet.
    pub(super) fn has_taken_run(&self) -> bool {
        self.run.as_ref().is_some_and(Run::is_borrowed)
    }

    /// Sends everything that there is to send; returns how the turn ends where that could not be done.
    pub(super) fn finish(&mut self, frame: &mut Frame) -> Option<Turn> {
        let alone = self.in_flight.as_ref().is_some_and(|flight| flight.cutter.is_none());
        let first = self.run.as_ref().is_some_and(Run::is_empty) && self.staged.ready.is_empty();
        if alone && first && self.takes_runs() {
            return self.send_in_flight(frame);
        }
        self.send(frame).or_else(|| self.flush(frame))
    }

    /// Sends what is in flight and what is due, so that the buffer is free; returns how the turn ends where that could not
    /// be done. Frames of which the egress takes several wait for others, until [`Outlet::finish`].
    pub(super) fn send(&mut self, frame: &mut Frame) -> Option<Turn> {
        if self.has_taken_run() {
            if let Some(end) = self.flush(frame) {
                return Some(end);
            }
        }
        if !self.stages.is_empty() {
            return self.stage(frame);
        }
        // What came through stages that are gone was there before.
        if let Some(end) = self.send_staged(frame, &mut 0) {
            return Some(end);
        }
        if self.takes_runs() { self.gather(frame) } else { self.send_in_flight(frame) }
    }

    /// Moves what is in flight through the stages, frame by frame, and sends what comes out.
    fn stage(&mut self, frame: &mut Frame) -> Option<Turn> {
        // What was planned before there were stages goes as it was planned.
        if self.in_flight.as_ref().is_some_and(|flight| flight.offload != Offload::default()) {
            if let Some(end) = self.flush(frame).or_else(|| self.send_in_flight(frame)) {
                return Some(end);
            }
        }
        // Filters may make several frames of a piece.
        let mut sent = 0;
        for _ in 0..PIECES_PER_TURN {
            if let Some(end) = self.send_staged(frame, &mut sent) {
                return Some(end);
            }
            let InFlight { range, cutter, .. } = self.in_flight.take()?;
            self.staged.receive(&frame.bytes()[range], &self.stages, &self.counters);
            self.in_flight = cutter.and_then(|cutter| next_segment(frame, cutter));
        }
        Some(self.flush(frame).unwrap_or(Turn::Unfinished))
    }

    /// Adds what is in flight to the run, or sends it behind the run where it must go alone.
    fn gather(&mut self, frame: &mut Frame) -> Option<Turn> {
        // Runs are of frames without metadata.
        if self.in_flight.as_ref().is_some_and(|flight| flight.offload != Offload::default()) {
            return self.flush(frame).or_else(|| self.send_in_flight(frame));
        }
        let mut pieces = 0;
        while let Some(flight) = self.in_flight.take() {
            if let Some(end) = self.make_room(flight.range.len(), frame) {
                self.in_flight = Some(flight);
                return Some(end);
            }
            self.push(&frame.bytes()[flight.range]);
            self.in_flight = flight.cutter.and_then(|cutter| next_segment(frame, cutter));
            pieces += 1;
            if pieces == PIECES_PER_TURN {
                return Some(self.flush(frame).unwrap_or(Turn::Unfinished));
            }
        }
        None
    }

    /// Sends the run where it does not take a frame of `len` bytes.
    fn make_room(&mut self, len: usize, frame: &mut Frame) -> Option<Turn> {
        if self.run.as_ref().is_some_and(|run| !run.takes(len)) { self.flush(frame) } else { None }
    }

    /// Adds a frame to the run, in which there is room.
    fn push(&mut self, bytes: &[u8]) {
        let Some(run) = &mut self.run else { return };
        if run.is_empty() && !self.trust[RUNS].ask() {
            run.send_singly();
        }
        run.push(bytes);
    }

    /// Sends the run.
    fn flush(&mut self, frame: &mut Frame) -> Option<Turn> {
        let run = self.run.as_mut()?;
        let borrowed = run.is_borrowed();
        while !run.is_empty() {
            let (bytes, size) = run.next_call(frame);
            let len = bytes.len();
            let sent = WireSize { frames: len.div_ceil(size.max(1)) as u64, bytes: len as u64 };
            match self.egress.send_run(bytes, size) {
                Ok(()) => {
                    self.counters.sent(sent);
                    self.counters.writes.add(1);
                    if sent.frames > 1 {
                        self.trust[RUNS].accepted();
                    }
                }
                Err(error) => match SendFault::of(&error) {
                    SendFault::Later => return Some(Turn::Blocked),
                    SendFault::Again => continue,
                    // A route that cannot do it answers EIO (udp_send_skb, net/ipv4/udp.c).
                    SendFault::Refused(_) | SendFault::Lost(DropReason::LinkDown) if sent.frames > 1 => {
                        self.counters.fallbacks.add(1);
                        self.trust[RUNS].refused();
                        run.send_singly();
                        continue;
                    }
                    SendFault::Refused(reason) | SendFault::Lost(reason) => {
                        self.counters.drop_frames(reason, sent.frames);
                        complain(&mut self.log, (&self.name, self.mtu), &error, reason, sent.bytes);
                    }
                },
            }
            run.advance(len);
        }
        if borrowed {
            frame.end_run();
        }
        None
    }

    fn send_in_flight(&mut self, frame: &mut Frame) -> Option<Turn> {
        let mut pieces = 0;
        while let Some(InFlight { range, offload, size, cutter }) = self.in_flight.take() {
            match self.egress.send(frame.outgoing(range.clone(), offload)) {
                Ok(()) => {
                    self.counters.sent(size);
                    self.counters.writes.add(1);
                    if offload.super_frame.is_some() {
                        self.counters.passed.add(1);
                    }
                    if offload.checksum.is_some() {
                        self.trust[trust_of(offload)].accepted();
                    }
                }
                Err(error) => match SendFault::of(&error) {
                    fault @ (SendFault::Later | SendFault::Again) => {
                        self.in_flight = Some(InFlight { range, offload, size, cutter });
                        if fault == SendFault::Later {
                            return Some(Turn::Blocked);
                        }
                        continue;
                    }
                    SendFault::Refused(reason) if metadata_is_at_fault(reason, offload) => {
                        self.fall_back(frame, offload, size, reason, &error);
                        continue;
                    }
                    SendFault::Refused(reason) | SendFault::Lost(reason) => {
                        self.counters.drop_frames(reason, size.frames);
                        complain(&mut self.log, (&self.name, self.mtu), &error, reason, size.bytes);
                    }
                },
            }
            self.in_flight = cutter.and_then(|cutter| next_segment(frame, cutter));
            pieces += 1;
            if pieces == PIECES_PER_TURN {
                return Some(Turn::Unfinished);
            }
        }
        None
    }

    /// Sends what has passed the stages, or adds it to the run; the turn ends where so many have been `sent` in it.
    fn send_staged(&mut self, frame: &mut Frame, sent: &mut usize) -> Option<Turn> {
        self.staged.release(PIECES_PER_TURN, &self.stages, &self.counters);
        while let Some(mut packet) = self.staged.ready.pop_front() {
            let end = if self.run.is_some() {
                let end = self.make_room(packet.frame().len(), frame);
                if end.is_none() {
                    self.push(packet.frame());
                }
                end
            } else {
                self.send_packet(&mut packet)
            };
            if end.is_some() {
                self.staged.ready.push_front(packet);
                return end;
            }
            self.staged.recycle(packet);
            *sent += 1;
            if *sent == PIECES_PER_TURN {
                return Some(self.flush(frame).unwrap_or(Turn::Unfinished));
            }
        }
        None
    }

    /// Sends one frame, unless the egress takes no more.
    fn send_packet(&mut self, packet: &mut Packet) -> Option<Turn> {
        loop {
            let Err(error) = self.egress.send(packet.outgoing()) else {
                self.counters.sent(WireSize::one(packet.frame()));
                self.counters.writes.add(1);
                return None;
            };
            match SendFault::of(&error) {
                SendFault::Later => return Some(Turn::Blocked),
                SendFault::Again => {}
                SendFault::Refused(reason) | SendFault::Lost(reason) => {
                    self.counters.drop_frames(reason, 1);
                    complain(&mut self.log, (&self.name, self.mtu), &error, reason, packet.frame().len() as u64);
                    return None;
                }
            }
        }
    }

    /// Does in software what the egress refused to do, for this very frame.
    fn fall_back(
        &mut self,
        frame: &mut Frame,
        offload: Offload,
        size: WireSize,
        reason: DropReason,
        error: &io::Error,
    ) {
        self.counters.fallbacks.add(1);
        self.trust[trust_of(offload)].refused();
        if let Some(held_back) = self.log.pass() {
            tracing::warn!(
                nio = self.name, %error, held_back,
                "frames with metadata are refused: doing them in software"
            );
        }
        match plan(frame.bytes(), offload, Features::NONE, self.mtu) {
            Ok(planned) => self.launch(frame, planned),
            Err(_) => self.counters.drop_frames(reason, size.frames),
        }
    }
}

fn complain(log: &mut LogGate, (nio, mtu): (&str, Option<u32>), error: &io::Error, reason: DropReason, bytes: u64) {
    // A peer that has not been started yet, or is stopped again, is everyday life in a lab.
    if reason == DropReason::NoPeer {
        return;
    }
    if let Some(held_back) = log.pass() {
        tracing::warn!(nio, %error, bytes, mtu, held_back, reason = reason.name(), "a frame was dropped");
    }
}

fn next_segment(frame: &mut Frame, mut cutter: Cutter) -> Option<InFlight> {
    let bytes = frame.bytes();
    let range = cutter.next_segment(bytes)?;
    let size = WireSize::one(&bytes[range.clone()]);
    Some(InFlight { range, offload: Offload::default(), size, cutter: Some(cutter) })
}

/// Kernels may refuse one kind of metadata and take the others, so each is trusted for itself.
fn trust_of(offload: Offload) -> usize {
    offload.super_frame.map_or(0, |super_frame| match super_frame.kind {
        SuperFrameKind::Tcp4 => 1,
        SuperFrameKind::Tcp6 => 2,
        SuperFrameKind::Udp => 3,
    })
}

/// Whether a frame that was refused may be taken without its metadata: a super-frame in pieces, even if it was
/// too big; another frame only if it was not.
fn metadata_is_at_fault(reason: DropReason, offload: Offload) -> bool {
    offload.super_frame.is_some() || (offload.checksum.is_some() && reason != DropReason::TooBig)
}

#[cfg(test)]
mod tests;
