//! The second half of a direction: from a frame that was received to the egress.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use super::counters::{DropReason, SharedCounters, WireSize};
use super::faults::{LogGate, SendFault, Trust};
use super::plan::{Plan, Planned, Unplannable, plan};
use super::stages::{Staged, Stages};
use super::worker::Turn;
use crate::nio::{Egress, Frame};
use crate::wire::offload::{Features, Offload, SuperFrameKind};
use crate::wire::segment::Cutter;

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
    /// By [`trust_of`].
    trust: [Trust; 4],
    pub(super) counters: SharedCounters,
    log: LogGate,
    in_flight: Option<InFlight>,
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
            egress,
            trust: Default::default(),
            counters,
            log: LogGate::default(),
            in_flight: None,
            stages: Arc::default(),
            staged: Staged::default(),
        };
        outlet.set_stages(stages);
        outlet
    }

    pub(super) fn fd(&self) -> RawFd {
        self.egress.fd()
    }

    /// What may be left to the egress now.
    pub(super) fn features(&self) -> Features {
        self.features
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
                if !self.stages.is_empty() {
                    self.stage(frame);
                }
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

    /// Moves what is in flight through the stages, frame by frame.
    fn stage(&mut self, frame: &mut Frame) {
        while let Some(InFlight { range, cutter, .. }) = self.in_flight.take() {
            self.staged.receive(&frame.bytes()[range], &self.stages, &self.counters);
            self.in_flight = cutter.and_then(|cutter| next_segment(frame, cutter));
        }
    }

    /// Sends what is in flight and what is due; returns how the turn ends where that could not be done.
    pub(super) fn send(&mut self, frame: &mut Frame) -> Option<Turn> {
        let mut pieces = 0;
        while let Some(InFlight { range, offload, size, cutter }) = self.in_flight.take() {
            match self.egress.send(frame.outgoing(range.clone(), offload)) {
                Ok(()) => {
                    self.counters.sent(size);
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
                        self.complain(&error, reason, size.bytes);
                    }
                },
            }
            self.in_flight = cutter.and_then(|cutter| next_segment(frame, cutter));
            pieces += 1;
            if pieces == PIECES_PER_TURN {
                return Some(Turn::Unfinished);
            }
        }
        self.send_staged()
    }

    fn send_staged(&mut self) -> Option<Turn> {
        self.staged.release(&self.stages, &self.counters);
        while let Some(mut packet) = self.staged.ready.pop_front() {
            match self.egress.send(packet.outgoing()) {
                Ok(()) => self.counters.sent(WireSize::one(packet.frame())),
                Err(error) => match SendFault::of(&error) {
                    fault @ (SendFault::Later | SendFault::Again) => {
                        self.staged.ready.push_front(packet);
                        if fault == SendFault::Later {
                            return Some(Turn::Blocked);
                        }
                        continue;
                    }
                    SendFault::Refused(reason) | SendFault::Lost(reason) => {
                        self.counters.drop_frames(reason, 1);
                        self.complain(&error, reason, packet.frame().len() as u64);
                    }
                },
            }
            self.staged.recycle(packet);
        }
        None
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

    fn complain(&mut self, error: &io::Error, reason: DropReason, bytes: u64) {
        // A peer that has not been started yet, or is stopped again, is everyday life in a lab.
        if reason == DropReason::NoPeer {
            return;
        }
        if let Some(held_back) = self.log.pass() {
            let reason = reason.name();
            tracing::warn!(nio = self.name, %error, bytes, mtu = self.mtu, held_back, reason, "a frame was dropped");
        }
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
