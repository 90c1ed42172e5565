//! `duplicate`: frames arrive twice.

use super::{Filter, Random, Verdict, percent};

/// Sends a copy right behind each frame with a probability of so many percent: of none for 0, of all for 100. The copy
/// passes the filters behind for itself, and is not copied again.
#[derive(Debug)]
pub struct Duplicate {
    percent: u32,
    random: Random,
}

impl Duplicate {
    pub(super) const USAGE: &str = "'duplicate' takes a whole number of percent, 0 to 100";

    /// More than 100 percent are no more than 100.
    #[must_use]
    pub fn new(percent: u32, random: Random) -> Self {
        Self { percent, random }
    }

    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let [chance] = arguments else { return None };
        Some(Self::new(percent(chance)?, Random::default()))
    }
}

impl Filter for Duplicate {
    fn judge(&self, _: &mut [u8]) -> Verdict {
        if self.random.happens(self.percent) { Verdict::Twice } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_and_all_are_exact_and_half_is_about_half() {
        for (percent, range) in [(0, 0..1), (100, 10_000..10_001), (50, 4_700..5_300)] {
            let filter = Duplicate::new(percent, Random::seeded(3));
            let twice = (0..10_000).filter(|_| filter.judge(&mut []) == Verdict::Twice).count();
            assert!(range.contains(&twice), "{percent} %: {twice}");
        }
    }
}
