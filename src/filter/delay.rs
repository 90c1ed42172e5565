//! `delay`: frames take time, and not always the same.

use std::time::Duration;

use super::{Filter, Random, Verdict};
use crate::number::whole;

/// Holds each frame for the latency plus a random whole number of milliseconds, evenly distributed from minus
/// to plus the jitter, but not for less than no time.
#[derive(Debug)]
pub struct Delay {
    latency_ms: u32,
    jitter_ms: u32,
    random: Random,
}

impl Delay {
    pub(super) const USAGE: &str = "'delay' takes <latency> [<jitter>] in whole milliseconds, at least 1 and 0";

    /// Both in milliseconds.
    #[must_use]
    pub fn new(latency_ms: u32, jitter_ms: u32, random: Random) -> Self {
        Self { latency_ms, jitter_ms, random }
    }

    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let (latency, jitter) = match *arguments {
            [latency] => (latency, "0"),
            [latency, jitter] => (latency, jitter),
            _ => return None,
        };
        let milliseconds = |text| whole::<u32>(text).filter(|&number| i32::try_from(number).is_ok());
        let latency = milliseconds(latency).filter(|&latency| latency > 0)?;
        Some(Self::new(latency, milliseconds(jitter)?, Random::default()))
    }
}

impl Filter for Delay {
    fn judge(&self, _: &mut [u8]) -> Verdict {
        let (latency, jitter) = (u64::from(self.latency_ms), u64::from(self.jitter_ms));
        let held = (latency + self.random.below(2 * jitter + 1)).saturating_sub(jitter);
        Verdict::Hold(Duration::from_millis(held))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn holds(delay: &Delay) -> BTreeSet<u128> {
        let held = |verdict| match verdict {
            Verdict::Hold(held) => held.as_millis(),
            _ => panic!("{verdict:?}"),
        };
        (0..1000).map(|_| held(delay.judge(&mut []))).collect()
    }

    #[test]
    fn without_jitter_the_latency_is_exact() {
        assert_eq!(holds(&Delay::parse(&["50"]).unwrap()), [50].into());
        assert_eq!(holds(&Delay::parse(&["50", "0"]).unwrap()), [50].into());
    }

    #[test]
    fn jitter_goes_both_ways_to_its_ends_but_never_below_zero() {
        assert_eq!(holds(&Delay::new(10, 3, Random::seeded(1))), (7..=13).collect());
        assert_eq!(holds(&Delay::new(1, 3, Random::seeded(2))), (0..=4).collect());
    }

    proptest! {
        #[test]
        fn no_numbers_are_too_large(latency: u32, jitter: u32, seed: u64) {
            let held = Delay::new(latency, jitter, Random::seeded(seed)).judge(&mut []);
            let most = Duration::from_millis(u64::from(latency) + u64::from(jitter));
            let least = Duration::from_millis(u64::from(latency.saturating_sub(jitter)));
            prop_assert!(matches!(held, Verdict::Hold(held) if (least..=most).contains(&held)));
        }
    }
}
