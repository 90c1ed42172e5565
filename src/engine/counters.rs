//! What went through a direction, and what did not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// The counters of one direction, on cache lines of their own: one thread writes them, others read.
pub type SharedCounters = Arc<CachePadded<Counters>>;

/// A number of frames on the wire and their length in all, in bytes from the Ethernet header on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireSize {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

impl WireSize {
    /// One frame as it is.
    #[must_use]
    pub fn one(frame: &[u8]) -> Self {
        Self { frames: 1, bytes: frame.len() as u64 }
    }
}

/// Why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The ingress's queue was full before the frame could be read.
    Overflow,
    /// Longer than any receive buffer (BIG TCP): its end is lost.
    Truncated,
    /// The kernel had a frame that it cannot describe (hardware LRO).
    Undescribed,
    /// A super-frame that cannot be cut: a tunnel, or a kind that is not known.
    Unsupported,
    /// Headers or metadata that contradict the frame.
    Malformed,
    /// It does not fit the egress's MTU.
    TooBig,
    /// The egress's queue was full.
    NoBuffers,
    /// The egress's link is down.
    LinkDown,
    /// The egress's device is gone.
    DeviceGone,
    /// Nobody is at the other end of the pair of UNIX sockets, or at the port of an IOL bridge.
    NoPeer,
    /// The egress refused it for another reason.
    Refused,
    /// A packet filter dropped it.
    Filtered,
    /// More frames were to be held back at once than there is memory for.
    DelayFull,
    /// It was still to be sent when the bridge was stopped, or the filter that held it back removed.
    Stopped,
}

impl DropReason {
    /// Every reason, in the order in which they are shown.
    pub const ALL: [Self; 14] = [
        Self::Overflow,
        Self::Truncated,
        Self::Undescribed,
        Self::Unsupported,
        Self::Malformed,
        Self::TooBig,
        Self::NoBuffers,
        Self::LinkDown,
        Self::DeviceGone,
        Self::NoPeer,
        Self::Refused,
        Self::Filtered,
        Self::DelayFull,
        Self::Stopped,
    ];

    /// Its name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Truncated => "truncated",
            Self::Undescribed => "undescribed",
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
            Self::TooBig => "too_big",
            Self::NoBuffers => "no_buffers",
            Self::LinkDown => "link_down",
            Self::DeviceGone => "device_gone",
            Self::NoPeer => "no_peer",
            Self::Refused => "refused",
            Self::Filtered => "filtered",
            Self::DelayFull => "delay_full",
            Self::Stopped => "stopped",
        }
    }
}

/// A counter with one writer, the worker that owns its direction, and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Cheaper than an atomic addition, which a single writer does not need.
    #[inline]
    pub(super) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of one direction. Frames and bytes are those of the wire: a super-frame counts as its pieces.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames received.
    pub frames_in: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Frames sent.
    pub frames_out: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Calls that sent frames, one or several each.
    pub writes: Counter,
    /// Super-frames sent whole.
    pub passed: Counter,
    /// Super-frames merged here from single frames; sent whole, they count there too.
    pub merged: Counter,
    /// Super-frames cut.
    pub cut: Counter,
    /// Frames, pieces not included, whose checksum was finished in software.
    pub finished: Counter,
    /// Frames that the egress refused with their metadata and that were then done in software.
    pub fallbacks: Counter,
    /// Copies that packet filters made of frames, which go out on top of what came in.
    pub duplicated: Counter,
    dropped: [Counter; DropReason::ALL.len()],
}

impl Counters {
    /// Frames dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].get()
    }

    pub(super) fn received(&self, size: WireSize) {
        self.frames_in.add(size.frames);
        self.bytes_in.add(size.bytes);
    }

    pub(super) fn sent(&self, size: WireSize) {
        self.frames_out.add(size.frames);
        self.bytes_out.add(size.bytes);
    }

    /// What came in and will not go out.
    pub(super) fn lost(&self, reason: DropReason, size: WireSize) {
        self.received(size);
        self.drop_frames(reason, size.frames);
    }

    pub(super) fn drop_frames(&self, reason: DropReason, frames: u64) {
        self.dropped[reason as usize].add(frames);
    }
}
