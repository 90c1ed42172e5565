//! One direction of a bridge: frames from an ingress to an egress, in order.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::counters::{Counters, DropReason, WireSize};
use super::faults::{LogGate, ReceiveFault, SendFault, Trust};
use super::plan::{Plan, Planned, Unplannable, plan};
use crate::nio::{Egress, Frame, Ingress, ReceiveError};
use crate::wire::coalesce::Merger;
use crate::wire::offload::{Features, Offload, SuperFrameKind};
use crate::wire::segment::Cutter;
use crate::wire::{ETHERNET_LEN, VLAN_TAG_LEN};

/// Frames, or super-frames, sent before the worker looks for commands and its other directions.
const FRAMES_PER_TURN: usize = 16;

/// Pieces of super-frames sent before that: a hostile super-frame makes tens of thousands.
const PIECES_PER_TURN: usize = 1024;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Everything is forwarded: wait until the ingress is readable.
    Drained,
    /// The egress takes no more: wait until it is writable.
    Blocked,
    /// There may be more to do.
    Unfinished,
    /// The ingress's device is gone: there will be nothing more to do.
    Over,
}

/// One direction of a bridge.
#[derive(Debug)]
pub(super) struct Direction {
    ingress: Box<dyn Ingress>,
    egress: Box<dyn Egress>,
    features: Features,
    mtu: Option<u32>,
    /// The frame to send next, or that is in flight.
    frame: Frame,
    /// The frame behind it, where one has been read already.
    next: Frame,
    next_is_read: bool,
    in_flight: Option<InFlight>,
    /// By [`trust_of`].
    trust: [Trust; 4],
    counters: Arc<CachePadded<Counters>>,
    from: String,
    to: String,
    receive_log: LogGate,
    send_log: LogGate,
}

/// What is left to send of the frame in the buffer.
#[derive(Debug)]
struct InFlight {
    range: Range<usize>,
    offload: Offload,
    size: WireSize,
    cutter: Option<Cutter>,
}

impl Direction {
    pub(super) fn new(
        (from, ingress): (String, Box<dyn Ingress>),
        (to, egress): (String, Box<dyn Egress>),
        counters: Arc<CachePadded<Counters>>,
    ) -> Self {
        Self {
            features: egress.features(),
            mtu: egress.mtu(),
            ingress,
            egress,
            frame: Frame::default(),
            next: Frame::default(),
            next_is_read: false,
            in_flight: None,
            trust: Default::default(),
            counters,
            from,
            to,
            receive_log: LogGate::default(),
            send_log: LogGate::default(),
        }
    }

    pub(super) fn ingress_fd(&self) -> RawFd {
        self.ingress.fd()
    }

    pub(super) fn egress_fd(&self) -> RawFd {
        self.egress.fd()
    }

    /// Forwards up to [`FRAMES_PER_TURN`] frames.
    pub(super) fn turn(&mut self) -> Turn {
        let end = self.forward();
        let overflow = self.ingress.take_overflow();
        if overflow > 0 {
            self.counters.lost(DropReason::Overflow, WireSize { frames: overflow, bytes: 0 });
        }
        end
    }

    fn forward(&mut self) -> Turn {
        for _ in 0..FRAMES_PER_TURN {
            if let Some(end) = self.send() {
                return end;
            }
            if std::mem::take(&mut self.next_is_read) {
                std::mem::swap(&mut self.frame, &mut self.next);
            } else if let Err(error) = self.ingress.receive(&mut self.frame) {
                match self.not_received(&error) {
                    Some(end) => return end,
                    None => continue,
                }
            }
            let end = self.merge();
            self.prepare();
            if let Some(end) = end {
                return self.send().unwrap_or(end);
            }
        }
        self.send().unwrap_or(Turn::Unfinished)
    }

    /// Appends the segments that follow the frame just received, as far as they have arrived: nothing waits
    /// for more to come. Returns how the turn ends where it does.
    fn merge(&mut self) -> Option<Turn> {
        // What is too big alone must not pass because another one happened to be there.
        let limit = self.mtu.map_or(usize::MAX, |mtu| mtu as usize + ETHERNET_LEN + VLAN_TAG_LEN);
        if self.frame.bytes().len() > limit {
            return None;
        }
        let offload = self.frame.offload;
        let mut merger = Merger::begin(self.frame.bytes(), offload, self.features)?;
        let end = loop {
            if let Err(error) = self.ingress.receive(&mut self.next) {
                break self.not_received(&error);
            }
            let offload = self.next.offload;
            let Some(payload) = merger.follow(self.frame.bytes(), self.next.bytes(), offload) else {
                self.next_is_read = true;
                break None;
            };
            self.frame.append(payload);
        };
        self.counters.merged.add(u64::from(merger.has_merged()));
        self.frame.offload = merger.complete(self.frame.bytes());
        end
    }

    /// Plans the frame just received.
    fn prepare(&mut self) {
        let offload = self.frame.offload;
        let features = if offload == Offload::default() || self.trust[trust_of(offload)].ask() {
            self.features
        } else {
            Features::NONE
        };
        match plan(self.frame.bytes(), offload, features, self.mtu) {
            Ok(planned) => {
                self.counters.received(planned.input);
                self.launch(planned);
            }
            Err(Unplannable { reason, input }) => self.counters.lost(reason, input),
        }
    }

    fn launch(&mut self, planned: Planned) {
        let whole = 0..self.frame.bytes().len();
        self.in_flight = match planned.plan {
            Plan::Whole(offload) => {
                if planned.finished {
                    self.counters.finished.add(1);
                }
                Some(InFlight { range: whole, offload, size: planned.output, cutter: None })
            }
            Plan::Cut(cutter) => {
                self.counters.cut.add(1);
                self.next_segment(cutter)
            }
        };
    }

    fn next_segment(&mut self, mut cutter: Cutter) -> Option<InFlight> {
        let frame = self.frame.bytes();
        let range = cutter.next_segment(frame)?;
        let size = WireSize::one(&frame[range.clone()]);
        Some(InFlight { range, offload: Offload::default(), size, cutter: Some(cutter) })
    }

    /// Sends what is in flight; returns how the turn ends where that could not be done.
    fn send(&mut self) -> Option<Turn> {
        let mut pieces = 0;
        while let Some(InFlight { range, offload, size, cutter }) = self.in_flight.take() {
            match self.egress.send(self.frame.outgoing(range.clone(), offload)) {
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
                        self.fall_back(offload, size, reason, &error);
                        continue;
                    }
                    SendFault::Refused(reason) | SendFault::Lost(reason) => {
                        self.counters.drop_frames(reason, size.frames);
                        self.log_send(&error, reason);
                    }
                },
            }
            self.in_flight = cutter.and_then(|cutter| self.next_segment(cutter));
            pieces += 1;
            if pieces == PIECES_PER_TURN {
                return Some(Turn::Unfinished);
            }
        }
        None
    }

    /// Does in software what the egress refused to do, for this very frame.
    fn fall_back(&mut self, offload: Offload, size: WireSize, reason: DropReason, error: &io::Error) {
        self.counters.fallbacks.add(1);
        self.trust[trust_of(offload)].refused();
        if let Some(held_back) = self.send_log.pass() {
            tracing::warn!(
                nio = self.to, %error, held_back,
                "frames with metadata are refused: doing them in software"
            );
        }
        match plan(self.frame.bytes(), offload, Features::NONE, self.mtu) {
            Ok(planned) => self.launch(planned),
            Err(_) => self.counters.drop_frames(reason, size.frames),
        }
    }

    /// Handles a failed receive; returns how the turn ends where it does.
    fn not_received(&mut self, error: &ReceiveError) -> Option<Turn> {
        let reason = match error {
            ReceiveError::Truncated => DropReason::Truncated,
            ReceiveError::Unsupported(_) => DropReason::Unsupported,
            ReceiveError::Io(cause) => match ReceiveFault::of(cause) {
                ReceiveFault::Empty => return Some(Turn::Drained),
                ReceiveFault::Undescribed => DropReason::Undescribed,
                ReceiveFault::Passing => {
                    self.log_receive(error);
                    return None;
                }
                ReceiveFault::Gone => {
                    tracing::error!(nio = self.from, %error, "the device is gone: nothing more is read from it");
                    return Some(Turn::Over);
                }
            },
        };
        // Its length is not known.
        self.counters.lost(reason, WireSize { frames: 1, bytes: 0 });
        self.log_receive(error);
        None
    }

    fn log_receive(&mut self, error: &ReceiveError) {
        if let Some(held_back) = self.receive_log.pass() {
            tracing::warn!(nio = self.from, %error, held_back, "receiving failed");
        }
    }

    fn log_send(&mut self, error: &io::Error, reason: DropReason) {
        if let Some(held_back) = self.send_log.pass() {
            tracing::warn!(nio = self.to, %error, held_back, reason = reason.name(), "a frame was dropped");
        }
    }
}

impl Drop for Direction {
    /// Accounts for what will not be sent any more.
    fn drop(&mut self) {
        if let Some(InFlight { size, cutter, .. }) = self.in_flight.take() {
            let rest = cutter.map_or(0, |cutter| cutter.remaining() as u64);
            self.counters.drop_frames(DropReason::Stopped, size.frames + rest);
        }
        if self.next_is_read {
            self.counters.lost(DropReason::Stopped, WireSize::one(self.next.bytes()));
        }
    }
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
