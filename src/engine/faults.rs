//! Errors of the data plane: what becomes of the frame, and what is said of it.

use std::io;
use std::time::{Duration, Instant};

use super::counters::DropReason;

/// What an error of an egress means for the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendFault {
    /// It can be sent later.
    Later,
    /// It can be sent at once.
    Again,
    /// It was refused; if for its metadata, it can be tried without.
    Refused(DropReason),
    /// It is lost.
    Lost(DropReason),
}

impl SendFault {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::Later,
            Some(libc::EINTR) => Self::Again,
            Some(libc::EMSGSIZE) => Self::Refused(DropReason::TooBig),
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => Self::Refused(DropReason::Refused),
            Some(libc::ENOBUFS | libc::ENOMEM) => Self::Lost(DropReason::NoBuffers),
            // Of a UNIX socket. A UDP tunnel learns it too late, of a datagram that counts as sent.
            Some(libc::ECONNREFUSED | libc::ENOENT) => Self::Lost(DropReason::NoPeer),
            // A TAP that is down answers EIO (drivers/net/tun.c).
            Some(libc::ENETDOWN | libc::EIO) => Self::Lost(DropReason::LinkDown),
            Some(number) if is_gone(number) => Self::Lost(DropReason::DeviceGone),
            _ => Self::Lost(DropReason::Refused),
        }
    }
}

/// What an error of an ingress means for reading on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveFault {
    /// Nothing is waiting.
    Empty,
    /// Read on; no frame was lost.
    Passing,
    /// Read on; nobody is at the far end of the tunnel.
    NoPeer,
    /// Read on; the kernel had a frame that it could not describe.
    Undescribed,
    /// Reading on is pointless.
    Gone,
}

impl ReceiveFault {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::Empty,
            Some(libc::EINVAL) => Self::Undescribed,
            Some(libc::ECONNREFUSED) => Self::NoPeer,
            Some(number) if is_gone(number) => Self::Gone,
            _ => Self::Passing,
        }
    }
}

/// Errors that say that the device is no more. A TAP answers `EBADFD` (drivers/net/tun.c), or `EFAULT` to a reader
/// that blocks; a packet socket `ENXIO` (net/packet/af_packet.c).
fn is_gone(number: i32) -> bool {
    matches!(number, libc::EFAULT | libc::EBADFD | libc::EBADF | libc::ENODEV | libc::ENXIO)
}

/// Lets one log line a second through, and counts those it held back.
#[derive(Debug, Default)]
pub(super) struct LogGate {
    last: Option<Instant>,
    held_back: u64,
}

impl LogGate {
    /// How many lines were held back since the last one, where one may be logged now.
    pub(super) fn pass(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < Duration::from_secs(1)) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

/// Whether an egress is still trusted with metadata. Some kernels refuse what they said they take: after a
/// run of refusals the frames are done in software for a while, then one is tried again.
#[derive(Debug, Default)]
pub(super) struct Trust {
    refused_in_a_row: u32,
    resting: u32,
}

impl Trust {
    const PATIENCE: u32 = 8;
    const REST: u32 = 4096;

    /// Whether the next frame with metadata may be tried.
    #[inline]
    pub(super) fn ask(&mut self) -> bool {
        self.resting = self.resting.saturating_sub(1);
        self.resting == 0
    }

    #[inline]
    pub(super) fn accepted(&mut self) {
        self.refused_in_a_row = 0;
    }

    pub(super) fn refused(&mut self) {
        self.refused_in_a_row += 1;
        if self.refused_in_a_row >= Self::PATIENCE {
            self.resting = Self::REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_rests_after_a_run_of_refusals_and_returns() {
        let mut trust = Trust::default();
        for _ in 0..Trust::PATIENCE - 1 {
            trust.refused();
            assert!(trust.ask());
        }
        trust.accepted();
        for _ in 0..Trust::PATIENCE {
            assert!(trust.ask());
            trust.refused();
        }
        assert_eq!((1..Trust::REST).filter(|_| trust.ask()).count(), 0);
        assert!(trust.ask(), "tried again after the rest");
        trust.refused();
        assert!(!trust.ask(), "and rests at once when refused again");
    }

    #[test]
    fn a_gate_counts_what_it_holds_back() {
        let mut gate = LogGate::default();
        assert_eq!(gate.pass(), Some(0));
        assert_eq!((gate.pass(), gate.pass()), (None, None));
        gate.last = gate.last.and_then(|last| last.checked_sub(Duration::from_secs(2)));
        assert_eq!(gate.pass(), Some(2));
    }
}
