//! `reorder`: some frames are overtaken by others.

use std::time::Duration;

use super::{Chance, Filter, Verdict};
use crate::number::whole;

/// Holds back each frame with a probability of so many percent for some time, while the others go on. Those held back keep
/// their order, and so do the others.
#[derive(Debug)]
pub struct Reorder {
    chance: Chance,
    held: Duration,
}

impl Reorder {
    pub(super) const USAGE: &str =
        "'reorder' takes a whole number of percent, 0 to 100, and of milliseconds, at least 1";

    /// It happens so often, and holds a frame for so long.
    #[must_use]
    pub fn new(chance: Chance, held: Duration) -> Self {
        Self { chance, held }
    }

    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let [chance, milliseconds] = arguments else { return None };
        let milliseconds = whole::<i32>(milliseconds).filter(|&milliseconds| milliseconds > 0)?;
        let held = Duration::from_millis(milliseconds.unsigned_abs().into());
        Some(Self::new(Chance::parse(chance)?, held))
    }
}

impl Filter for Reorder {
    fn judge(&self, _: &mut [u8]) -> Verdict {
        if self.chance.comes_up() { Verdict::Hold(self.held) } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::*;

    #[test]
    fn none_and_all_are_exact_and_a_tenth_is_about_a_tenth() {
        for (percent, range) in [(0, 0..1), (100, 10_000..10_001), (10, 850..1_150)] {
            let filter = Reorder::new(Chance::new(percent, Random::seeded(5)), Duration::from_millis(7));
            let held = (0..10_000).filter(|_| filter.judge(&mut []) == Verdict::Hold(Duration::from_millis(7))).count();
            assert!(range.contains(&held), "{percent} %: {held}");
        }
    }
}
