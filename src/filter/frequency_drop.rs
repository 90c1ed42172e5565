//! `frequency_drop`: every nth frame is lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Filter, Verdict};
use crate::number::whole;

/// Drops every `n`th frame, counting both directions together; all for -1, none for 0 or less than -1.
///
/// gns3-server suspends a link with -1.
#[derive(Debug)]
pub struct FrequencyDrop {
    /// 0 drops nothing.
    every: u64,
    seen: AtomicU64,
}

impl FrequencyDrop {
    pub(super) const USAGE: &str =
        "'frequency_drop' takes a whole number n: -1 drops all frames, 0 none, above that every nth";

    /// Any `n` makes sense.
    #[must_use]
    pub fn new(n: i32) -> Self {
        let n = if n == -1 { 1 } else { n };
        Self { every: u64::try_from(n).unwrap_or(0), seen: AtomicU64::new(0) }
    }

    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let [n] = arguments else { return None };
        whole(n).map(Self::new)
    }
}

impl Filter for FrequencyDrop {
    fn judge(&self, _: &mut [u8]) -> Verdict {
        if self.every == 0 {
            return Verdict::Pass;
        }
        let number = self.seen.fetch_add(1, Relaxed).wrapping_add(1);
        if number % self.every == 0 { Verdict::Drop } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(n: i32, frames: usize) -> Vec<usize> {
        let filter = FrequencyDrop::new(n);
        (1..=frames).filter(|_| filter.judge(&mut []) == Verdict::Drop).collect()
    }

    #[test]
    fn every_nth_frame_is_dropped() {
        assert_eq!(dropped(3, 10), [3, 6, 9]);
        assert_eq!(dropped(1, 3), [1, 2, 3]);
        assert_eq!(dropped(i32::MAX, 100), []);
    }

    #[test]
    fn special_numbers() {
        assert_eq!(dropped(-1, 3), [1, 2, 3]);
        assert_eq!(dropped(0, 100), []);
        assert_eq!(dropped(-2, 100), []);
        assert_eq!(dropped(i32::MIN, 100), []);
    }

    #[test]
    fn threads_count_together() {
        let filter = FrequencyDrop::new(5);
        let count = || (0..10_000).filter(|_| filter.judge(&mut []) == Verdict::Drop).count();
        let total: usize = std::thread::scope(|scope| {
            [(); 4].map(|()| scope.spawn(count)).into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(total, 8000);
    }
}
