//! How often a filter does what it does.

use super::Random;
use crate::number::whole;

/// So many cases of 100, at random: none for 0, all for 100.
#[derive(Debug)]
pub struct Chance {
    percent: u32,
    random: Random,
}

impl Chance {
    /// More than 100 percent are no more than 100.
    #[must_use]
    pub fn new(percent: u32, random: Random) -> Self {
        Self { percent, random }
    }

    /// Of a whole number from 0 to 100.
    pub(super) fn parse(percent: &str) -> Option<Self> {
        let percent = whole(percent).filter(|&percent| percent <= 100)?;
        Some(Self::new(percent, Random::default()))
    }

    /// Whether this is such a case.
    pub(super) fn comes_up(&self) -> bool {
        self.random.happens(self.percent)
    }
}
