//! `packet_loss`: frames are lost at random.

use super::{Chance, Filter, Verdict};

/// Drops each frame with a probability of so many percent: none for 0, all for 100.
#[derive(Debug)]
pub struct PacketLoss(Chance);

impl PacketLoss {
    pub(super) const USAGE: &str = "'packet_loss' takes a whole number of percent, 0 to 100";

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

impl Filter for PacketLoss {
    fn judge(&self, _: &mut [u8]) -> Verdict {
        if self.0.comes_up() { Verdict::Drop } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::*;

    const FRAMES: i64 = 100_000;

    fn losses(filter: &PacketLoss) -> i64 {
        (0..FRAMES).map(|_| i64::from(filter.judge(&mut []) == Verdict::Drop)).sum()
    }

    #[test]
    fn none_and_all_are_exact() {
        assert_eq!(losses(&PacketLoss::parse(&["0"]).unwrap()), 0);
        assert_eq!(losses(&PacketLoss::parse(&["100"]).unwrap()), FRAMES);
    }

    #[test]
    fn as_many_are_lost_as_were_asked_for() {
        for percent in [1u32, 20, 50, 99] {
            let lost = losses(&PacketLoss::new(Chance::new(percent, Random::seeded(u64::from(percent)))));
            let p = i64::from(percent);
            let off = (lost - FRAMES * p / 100).abs();
            // Six standard deviations, squared; a percent more or less, as ubridge has, would be beyond them.
            assert!(off * off < 36 * FRAMES * p * (100 - p) / 10_000, "{percent} %: {lost}");
        }
    }

    #[test]
    fn losses_do_not_follow_a_pattern() {
        let filter = PacketLoss::new(Chance::new(50, Random::seeded(7)));
        let lost: Vec<bool> = (0..FRAMES).map(|_| filter.judge(&mut []) == Verdict::Drop).collect();
        let pairs = lost.windows(2).filter(|pair| pair[0] && pair[1]).count();
        assert!((24_000..26_000).contains(&pairs), "{pairs} of 25,000 expected");
    }
}
