//! The first half of a direction: frames from an ingress.

use std::fmt::Display;
use std::os::fd::RawFd;

use super::counters::{Counters, DropReason, WireSize};
use super::faults::{LogGate, ReceiveFault};
use super::inference::Inference;
use crate::nio::{Frame, Ingress, ReceiveError};

/// Reads frames, and knows what to make of it where that fails.
#[derive(Debug)]
pub(super) struct Inlet {
    name: String,
    ingress: Box<dyn Ingress>,
    inference: Option<Inference>,
    log: LogGate,
    /// The device is gone: reading on is pointless.
    gone: bool,
}

/// What [`Inlet::receive`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A frame.
    Frame,
    /// None, but another one may be there.
    Failure,
    /// None, and no other.
    End,
}

impl Inlet {
    /// An inlet from the ingress of the NIO called `name`.
    pub(super) fn new(name: String, ingress: Box<dyn Ingress>, inference: Option<Inference>) -> Self {
        Self { name, ingress, inference, log: LogGate::default(), gone: false }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.ingress.fd()
    }

    pub(super) fn into_ingress(self) -> Box<dyn Ingress> {
        self.ingress
    }

    /// Infers what the ingress does not tell of a frame; returns whether it can be forwarded.
    #[inline]
    pub(super) fn describe(&self, frame: &mut Frame) -> bool {
        self.inference.as_ref().is_none_or(|inference| inference.describe(frame))
    }

    /// Reads the next frame.
    #[inline]
    pub(super) fn receive(&mut self, frame: &mut Frame, counters: &Counters) -> Found {
        if self.gone {
            return Found::End;
        }
        match self.ingress.receive(frame) {
            Ok(()) if self.describe(frame) => Found::Frame,
            Ok(()) => {
                counters.lost(DropReason::TooBig, WireSize::one(frame.bytes()));
                self.complain(&"a frame is too long for its wire, and it is not known how to cut it");
                Found::Failure
            }
            Err(error) => self.failed(&error, counters),
        }
    }

    /// Counts the frames that were lost before they could be read.
    pub(super) fn count_overflow(&mut self, counters: &Counters) {
        let overflow = self.ingress.take_overflow();
        if overflow > 0 {
            counters.lost(DropReason::Overflow, WireSize { frames: overflow, bytes: 0 });
        }
    }

    fn failed(&mut self, error: &ReceiveError, counters: &Counters) -> Found {
        let reason = match error {
            ReceiveError::Truncated => DropReason::Truncated,
            ReceiveError::Unsupported(_) => DropReason::Unsupported,
            ReceiveError::Unwanted => return Found::Failure,
            ReceiveError::Empty => DropReason::Malformed,
            ReceiveError::Io(cause) => match ReceiveFault::of(cause) {
                ReceiveFault::Empty => return Found::End,
                ReceiveFault::Undescribed => {
                    // It may have chosen to do without descriptions.
                    self.inference = Inference::renewed(self.inference.take(), self.ingress.metadata());
                    DropReason::Undescribed
                }
                ReceiveFault::NoPeer => return Found::Failure,
                ReceiveFault::Passing => {
                    self.complain(error);
                    return Found::Failure;
                }
                ReceiveFault::Gone => {
                    tracing::error!(nio = self.name, %error, "the device is gone: nothing more is read from it");
                    self.gone = true;
                    return Found::End;
                }
            },
        };
        // Its length is not known.
        counters.lost(reason, WireSize { frames: 1, bytes: 0 });
        self.complain(error);
        Found::Failure
    }

    fn complain(&mut self, error: &dyn Display) {
        if let Some(held_back) = self.log.pass() {
            tracing::warn!(nio = self.name, %error, held_back, "receiving failed");
        }
    }
}
