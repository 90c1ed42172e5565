//! `duplicate`: frames arrive twice.

use super::{Chance, Filter, Verdict};

/// Sends a copy right behind each frame with a probability of so many percent: of none for 0, of all for 100. The copy
/// passes the filters behind for itself, and is not copied again.
#[derive(Debug)]
pub struct Duplicate(Chance);

impl Duplicate {
    pub(super) const USAGE: &str = "'duplicate' takes a whole number of percent, 0 to 100";

    /// It happens so often.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self(chance)
    }

    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let [chance] = arguments else { return None };
        Chance::parse(chance).map(Self)
    }
}

impl Filter for Duplicate {
    fn judge(&self, _: &mut [u8]) -> Verdict {
        if self.0.comes_up() { Verdict::Twice } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::*;

    #[test]
    fn none_and_all_are_exact_and_half_is_about_half() {
        for (percent, range) in [(0, 0..1), (100, 10_000..10_001), (50, 4_700..5_300)] {
            let filter = Duplicate::new(Chance::new(percent, Random::seeded(3)));
            let twice = (0..10_000).filter(|_| filter.judge(&mut []) == Verdict::Twice).count();
            assert!(range.contains(&twice), "{percent} %: {twice}");
        }
    }
}
