//! Chance, without a lock and without a dependency.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A random number generator that threads may share (splitmix64: its state only counts, which an atomic can do).
#[derive(Debug)]
pub struct Random(AtomicU64);

/// Starts at another place each time: std seeds its hash maps from the system's entropy.
impl Default for Random {
    fn default() -> Self {
        Self::seeded(RandomState::new().build_hasher().finish())
    }
}

impl Random {
    /// Always gives the same numbers.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// True in `percent` of 100 cases: in none for 0, in all from 100 on.
    pub(super) fn happens(&self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// A number from 0 to `limit - 1`; 0 for a limit of 0. Small limits are served evenly, to within `limit` in
    /// 2^64.
    pub(super) fn below(&self, limit: u64) -> u64 {
        let scaled = u128::from(self.next()) * u128::from(limit);
        // The upper half of a product of 64 and 64 bits.
        #[allow(clippy::cast_possible_truncation)]
        let upper = (scaled >> 64) as u64;
        upper
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The first numbers of the reference implementation for the seed 1234567.
        let random = Random::seeded(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn two_of_them_differ() {
        assert_ne!(Random::default().next(), Random::default().next());
    }

    #[test]
    fn every_number_below_the_limit_comes_and_no_other() {
        let random = Random::seeded(1);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[usize::try_from(random.below(7)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(random.below(1), 0);
        assert_eq!(random.below(0), 0);
    }
}
