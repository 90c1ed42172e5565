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
    /// The last turn had one frame: the next one is sent before another one is looked for.
    quiet: bool,
    pub(super) outlet: Outlet,
}

impl Direction {
    pub(super) fn new(inlet: Inlet, outlet: Outlet) -> Self {
        let (frame, next) = Default::default();
        Self { inlet, frame, frame_is_read: false, next, next_is_read: false, quiet: false, outlet }
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
        let quiet = std::mem::take(&mut self.quiet);
        for number in 0..FRAMES_PER_TURN {
            let at_once = quiet && number == 1;
            let end = if at_once { self.outlet.finish(&mut self.frame) } else { self.outlet.send(&mut self.frame) };
            if let Some(end) = end {
                return end;
            }
            match self.next_frame() {
                Found::Frame => {}
                Found::Failure => continue,
                Found::End => {
                    self.quiet = number <= 1;
                    return self.outlet.finish(&mut self.frame).unwrap_or(Turn::Drained);
                }
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
        if std::mem::take(&mut self.frame_is_read) {
            return Found::Frame;
        }
        let mut found = self.frame.advance();
        if !found && std::mem::take(&mut self.next_is_read) {
            std::mem::swap(&mut self.frame, &mut self.next);
            found = true;
        }
        if found {
            // It need not have been the first of what was received together.
            let _ = self.inlet.describe(&mut self.frame);
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::nio::{Outgoing, ReceiveError, RunLimit};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Event {
        Read,
        FoundNothing,
        Sent(usize),
    }

    /// Both halves of a NIO that takes runs, and what they were asked for.
    #[derive(Debug, Clone, Default)]
    struct Script {
        /// Whether a frame is there, for each time that one is read.
        frames: Arc<Mutex<VecDeque<bool>>>,
        events: Arc<Mutex<Vec<Event>>>,
    }

    impl Script {
        fn note(&self, event: Event) {
            self.events.lock().unwrap().push(event);
        }
    }

    impl Ingress for Script {
        fn fd(&self) -> RawFd {
            -1
        }

        fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
            if self.frames.lock().unwrap().pop_front() != Some(true) {
                self.note(Event::FoundNothing);
                return Err(io::Error::from_raw_os_error(libc::EAGAIN).into());
            }
            self.note(Event::Read);
            frame.fill(60, false)
        }
    }

    impl Egress for Script {
        fn fd(&self) -> RawFd {
            -1
        }

        fn run_limit(&self) -> Option<RunLimit> {
            Some(RunLimit { frames: 64, bytes: 65_000 })
        }

        fn send(&mut self, _: Outgoing<'_>) -> io::Result<()> {
            self.note(Event::Sent(1));
            Ok(())
        }

        fn send_run(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
            self.note(Event::Sent(bytes.len() / size));
            Ok(())
        }
    }

    #[test]
    fn a_frame_of_quiet_traffic_does_not_wait_until_another_one_was_looked_for() {
        use Event::{FoundNothing, Read, Sent};
        let script = Script::default();
        let (ingress, egress) = (Box::new(script.clone()), Box::new(script.clone()));
        let outlet = Outlet::new(String::new(), egress, Arc::default(), Arc::default());
        let mut direction = Direction::new(Inlet::new(String::new(), ingress, None), outlet);
        let mut turn = |frames: usize| {
            script.frames.lock().unwrap().extend((0..=frames).map(|number| number < frames));
            assert_eq!(direction.turn(), Turn::Drained);
            std::mem::take(&mut *script.events.lock().unwrap())
        };
        // Frames that come together leave together.
        assert_eq!(turn(3), [Read, Read, Read, FoundNothing, Sent(3)]);
        assert_eq!(turn(1), [Read, FoundNothing, Sent(1)]);
        // The turn before had only one.
        assert_eq!(turn(1), [Read, Sent(1), FoundNothing]);
        assert_eq!(turn(3), [Read, Sent(1), Read, Read, FoundNothing, Sent(2)]);
        assert_eq!(turn(2), [Read, Read, FoundNothing, Sent(2)]);
    }
}
