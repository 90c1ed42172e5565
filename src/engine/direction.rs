//! One direction of a bridge: frames from an ingress to an egress, in order.

use std::any::Any;
use std::os::fd::RawFd;
use std::time::Instant;

use super::counters::{DropReason, WireSize};
use super::inlet::{Found, Inlet};
use super::outlet::Outlet;
use super::worker::{Task, Turn};
use crate::nio::{Egress, Frame, Ingress};
use crate::wire::coalesce::Merger;
use crate::wire::offload::Offload;
use crate::wire::{ETHERNET_LEN, VLAN_TAG_LEN};

/// Frames, or super-frames, sent before the worker looks for commands and its other tasks.
pub(super) const FRAMES_PER_TURN: usize = 16;

/// One direction of a bridge.
#[derive(Debug)]
pub(super) struct Direction {
    inlet: Inlet,
    /// The frame to send next, or that is in flight.
    frame: Frame,
    /// It has been read, and the outlet has not had it yet.
    frame_is_read: bool,
    /// The frame behind it, where one has been read already.
    next: Frame,
    next_is_read: bool,
    pub(super) outlet: Outlet,
}

impl Direction {
    pub(super) fn new(inlet: Inlet, outlet: Outlet) -> Self {
        let (frame, next) = Default::default();
        Self { inlet, frame, frame_is_read: false, next, next_is_read: false, outlet }
    }

    /// Gives up what is still to be sent, and returns what it was made of.
    pub(super) fn into_ends(mut self) -> (Box<dyn Ingress>, Box<dyn Egress>) {
        let lost = |bytes: &[u8]| self.outlet.counters.lost(DropReason::Stopped, WireSize::one(bytes));
        if self.frame_is_read {
            lost(self.frame.bytes());
        }
        // A run that the outlet has taken is its to account for.
        while !self.outlet.has_taken_run() && self.frame.advance() {
            lost(self.frame.bytes());
        }
        while self.next_is_read {
            lost(self.next.bytes());
            self.next_is_read = self.next.advance();
        }
        (self.inlet.into_ingress(), self.outlet.into_egress())
    }

    /// Forwards up to [`FRAMES_PER_TURN`] frames.
    fn forward(&mut self) -> Turn {
        for _ in 0..FRAMES_PER_TURN {
            if let Some(end) = self.outlet.send(&mut self.frame) {
                return end;
            }
            match self.next_frame() {
                Found::Frame => {}
                Found::Failure => continue,
                Found::End => return self.outlet.finish(&mut self.frame).unwrap_or(Turn::Drained),
            }
            if self.outlet.takes_runs() && self.frame.run().is_some() {
                // What waits to be sent together came before.
                if let Some(end) = self.outlet.finish(&mut self.frame) {
                    self.frame_is_read = true;
                    return end;
                }
                self.outlet.take_run(&self.frame);
                continue;
            }
            let drained = self.merge();
            self.outlet.take(&mut self.frame);
            if drained {
                return self.outlet.finish(&mut self.frame).unwrap_or(Turn::Drained);
            }
        }
        self.outlet.finish(&mut self.frame).unwrap_or(Turn::Unfinished)
    }

    /// Moves on to the next frame: of the run that was received, of what was read already, or of the ingress.
    fn next_frame(&mut self) -> Found {
        if std::mem::take(&mut self.frame_is_read) || self.frame.advance() {
            return Found::Frame;
        }
        if std::mem::take(&mut self.next_is_read) {
            std::mem::swap(&mut self.frame, &mut self.next);
            return Found::Frame;
        }
        self.inlet.receive(&mut self.frame, &self.outlet.counters)
    }

    /// Appends the segments that follow the frame just received, as far as they have arrived: nothing waits
    /// for more to come. Returns whether there is nothing more to read.
    fn merge(&mut self) -> bool {
        // What is too big alone must not pass because another one happened to be there, nor be refused for that: a
        // super-frame of datagrams is, where a single one may be longer than the MTU.
        let tag = if self.frame.bytes().get(12..14) == Some(&[0x81, 0x00]) { VLAN_TAG_LEN } else { 0 };
        let limit = self.outlet.mtu().map_or(usize::MAX, |mtu| mtu as usize + ETHERNET_LEN + tag);
        if self.frame.bytes().len() > limit {
            return false;
        }
        let (offload, features) = (self.frame.offload, self.outlet.features_to_merge_for());
        let Some(mut merger) = Merger::begin(self.frame.bytes(), offload, features) else {
            return false;
        };
        let drained = loop {
            if let Some((frame, next)) = self.frame.with_next() {
                let Some(payload) = merger.follow(frame, next, Offload::default()) else { break false };
                let count = payload.len();
                self.frame.append_next(count);
                continue;
            }
            if !self.next_is_read {
                match self.inlet.receive(&mut self.next, &self.outlet.counters) {
                    Found::Frame => self.next_is_read = true,
                    Found::Failure => break false,
                    Found::End => break true,
                }
            }
            let offload = self.next.offload;
            let Some(payload) = merger.follow(self.frame.bytes(), self.next.bytes(), offload) else { break false };
            self.frame.append(payload);
            self.next_is_read = self.next.advance();
        };
        self.outlet.counters.merged.add(u64::from(merger.has_merged()));
        self.frame.offload = merger.complete(self.frame.bytes());
        drained
    }
}

impl Task for Direction {
    fn ingress_fd(&self) -> RawFd {
        self.inlet.fd()
    }

    fn egress_fd(&self) -> RawFd {
        self.outlet.fd()
    }

    fn turn(&mut self) -> Turn {
        let end = self.forward();
        self.inlet.count_overflow(&self.outlet.counters);
        end
    }

    fn due(&self) -> Option<Instant> {
        self.outlet.due()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
