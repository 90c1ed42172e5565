//! `rate`: a line carries so many bits a second, and what waits for it has so much room.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Filter, Verdict};
use crate::number::whole;

/// The longest queue, in kB: what frames that are held back in one direction may take in all.
const LONGEST_KBYTES: u64 = 32_768;

/// A line with a queue before it. A frame leaves when its last bit is on the line; one that the queue has no room for is
/// dropped (the queue drops at its tail), unless the line is idle: a frame longer than the queue still passes. A frame
/// counts from its Ethernet header on, without preamble, checksum and gap.
#[derive(Debug)]
pub struct Rate {
    bits_per_second: u64,
    queue_bytes: u64,
    /// When the line will have sent all that was let through so far.
    free_at: Mutex<Instant>,
}

impl Rate {
    pub(super) const USAGE: &str =
        "'rate' takes kbit/s, at least 1, and perhaps the queue in kB (1000 bytes), 1 to 32768";

    /// A line of so many kbit/s (1,000 bits a second) with a queue of so many bytes; one of 0 kbit/s is taken for 1.
    #[must_use]
    pub fn new(kilobits: u32, queue_bytes: u64) -> Self {
        Self { bits_per_second: u64::from(kilobits.max(1)) * 1000, queue_bytes, free_at: Mutex::new(Instant::now()) }
    }

    /// The queue is what the line carries in 0.2 s, but at least 64 kB and at most 4,096 kB, where nothing is said.
    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let (kilobits, queue) = match *arguments {
            [kilobits] => (kilobits, None),
            [kilobits, queue] => (kilobits, Some(queue)),
            _ => return None,
        };
        let kilobits = whole::<u32>(kilobits).filter(|&kilobits| kilobits > 0)?;
        let kilobytes = match queue {
            Some(queue) => whole::<u64>(queue).filter(|kilobytes| (1..=LONGEST_KBYTES).contains(kilobytes))?,
            None => (u64::from(kilobits) / 40).clamp(64, 4096),
        };
        Some(Self::new(kilobits, kilobytes * 1000))
    }

    /// How long a frame of `len` bytes that comes `now` is held; `None` where the queue has no room for it.
    fn enqueue(&self, len: usize, now: Instant) -> Option<Duration> {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = free_at.saturating_duration_since(now);
        // What the line sends until then is what waits, and the frame that it is sending.
        let queued = waiting.as_nanos() * u128::from(self.bits_per_second) / 8 / 1_000_000_000;
        if queued > 0 && queued + len as u128 > u128::from(self.queue_bytes) {
            return None;
        }
        let nanoseconds = len as u64 * 8 * 1_000_000_000 / self.bits_per_second;
        let held = waiting + Duration::from_nanos(nanoseconds);
        *free_at = now + held;
        Some(held)
    }
}

impl Filter for Rate {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        self.enqueue(frame.len(), Instant::now()).map_or(Verdict::Drop, Verdict::Hold)
    }

    /// What was never sent keeps no line busy.
    fn dropped_all(&self) {
        *self.free_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_one_behind_the_other_at_the_rate_of_the_line() {
        let rate = Rate::new(8, 1_000_000);
        let now = Instant::now() + Duration::from_secs(1);
        for number in 1..=100 {
            assert_eq!(rate.enqueue(100, now), Some(Duration::from_millis(100 * number)), "1,000 bytes a second");
        }
        let later = now + Duration::from_secs(11);
        assert_eq!(rate.enqueue(50, later), Some(Duration::from_millis(50)), "idle time is not saved up");
    }

    #[test]
    fn the_queue_has_room_for_so_much_and_again_when_some_has_left() {
        let rate = Rate::new(8, 1000);
        let now = Instant::now() + Duration::from_secs(1);
        let taken = (0..20).filter(|_| rate.enqueue(100, now).is_some()).count();
        assert_eq!(taken, 10);
        assert_eq!(rate.enqueue(100, now + Duration::from_millis(250)), Some(Duration::from_millis(850)));
        assert_eq!(rate.enqueue(51, now + Duration::from_millis(150)), None);
        // It would never have room for this one.
        let idle = now + Duration::from_secs(5);
        assert_eq!(rate.enqueue(1500, idle), Some(Duration::from_millis(1500)));
        assert_eq!(rate.enqueue(10, idle), None);
    }

    #[test]
    fn a_line_is_idle_when_all_that_waited_was_dropped() {
        let rate = Rate::new(8, 10_000);
        let taken = (0..20).filter(|_| rate.judge(&mut [0; 1000]) != Verdict::Drop).count();
        assert_eq!(taken, 10);
        rate.dropped_all();
        assert_eq!(rate.judge(&mut [0; 100]), Verdict::Hold(Duration::from_millis(100)));
    }

    #[test]
    fn the_queue_is_a_fifth_of_a_second_within_bounds() {
        for (kilobits, bytes) in [("1", 64_000), ("10000", 250_000), ("1000000", 4_096_000), ("4294967295", 4_096_000)]
        {
            assert_eq!(Rate::parse(&[kilobits]).unwrap().queue_bytes, bytes);
        }
        assert_eq!(Rate::parse(&["1000", "20"]).unwrap().queue_bytes, 20_000);
    }

    #[test]
    fn no_rate_is_too_low_or_too_high() {
        for kilobits in [0, 1, u32::MAX] {
            let rate = Rate::new(kilobits, u64::MAX);
            for len in [0, 1, 1514, 65_600] {
                assert!(rate.enqueue(len, Instant::now()).is_some());
            }
        }
    }
}
