//! `corrupt`: frames arrive damaged.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Chance, Filter, Verdict};

/// What is XORed over the middle of a frame. None of them is zero, so every byte under it changes.
const PATTERN: [u8; 8] = [0x64, 0x13, 0x88, 0x40, 0x1f, 0xa0, 0xaa, 0x55];

/// Damages each frame with a probability of so many percent: none for 0, all for 100.
///
/// A quarter of the frame is changed, in its middle: the Ethernet header stays whole from 60 bytes on, and so the
/// damage is for the receiver's checksums to find. Frames below 4 bytes stay as they are.
#[derive(Debug)]
pub struct Corrupt {
    chance: Chance,
    /// Where in the pattern the next frame starts.
    position: AtomicUsize,
}

impl Corrupt {
    pub(super) const USAGE: &str = "'corrupt' takes a whole number of percent, 0 to 100";

    /// It happens so often.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self { chance, position: AtomicUsize::new(0) }
    }

    pub(super) fn parse(arguments: &[&str]) -> Option<Self> {
        let [chance] = arguments else { return None };
        Chance::parse(chance).map(Self::new)
    }

    fn damage(&self, frame: &mut [u8]) {
        let count = frame.len() / 4;
        let start = frame.len() / 2 - count / 2 + 1;
        let position = self.position.fetch_add(count, Relaxed) % PATTERN.len();
        let pattern = PATTERN.iter().cycle().skip(position).take(count);
        for (byte, mask) in frame.iter_mut().skip(start).zip(pattern) {
            *byte ^= mask;
        }
    }
}

impl Filter for Corrupt {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        if self.chance.comes_up() {
            self.damage(frame);
        }
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Random;
    use super::*;

    fn damaged(filter: &Corrupt, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        assert_eq!(filter.judge(&mut frame), Verdict::Pass);
        frame
    }

    #[test]
    fn the_pattern_lies_over_the_middle_and_goes_on_in_the_next_frame() {
        let filter = Corrupt::new(Chance::new(100, Random::default()));
        assert_eq!(damaged(&filter, 12), [0, 0, 0, 0, 0, 0, 0x64, 0x13, 0x88, 0, 0, 0]);
        assert_eq!(damaged(&filter, 4), [0, 0, 0, 0x40]);
        assert_eq!(damaged(&filter, 3), [0, 0, 0]);
        assert_eq!(damaged(&filter, 24)[10..17], [0x1f, 0xa0, 0xaa, 0x55, 0x64, 0x13, 0]);
        let frame = damaged(&filter, 60);
        assert_eq!(frame[..24], [0; 24]);
        assert_eq!(
            frame[24..39],
            [0x88, 0x40, 0x1f, 0xa0, 0xaa, 0x55, 0x64, 0x13, 0x88, 0x40, 0x1f, 0xa0, 0xaa, 0x55, 0x64]
        );
        assert_eq!(frame[39..], [0; 21]);
    }

    #[test]
    fn as_many_are_damaged_as_were_asked_for() {
        for (percent, least, most) in [(0, 0, 0), (100, 10_000, 10_000), (20, 1760, 2240)] {
            let filter = Corrupt::new(Chance::new(percent, Random::seeded(3)));
            let count = (0..10_000).filter(|_| damaged(&filter, 60) != [0; 60]).count();
            assert!((least..=most).contains(&count), "{percent} %: {count}");
        }
    }

    proptest! {
        #[test]
        fn a_quarter_changes_and_never_the_header(frame in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let mut after = frame.clone();
            Corrupt::new(Chance::new(100, Random::default())).judge(&mut after);
            prop_assert_eq!(after.len(), frame.len());
            let changed: Vec<usize> = (0..frame.len()).filter(|&at| frame[at] != after[at]).collect();
            prop_assert_eq!(changed.len(), frame.len() / 4);
            prop_assert!(changed.windows(2).all(|pair| pair[1] == pair[0] + 1), "in one piece");
            if frame.len() >= 60 {
                prop_assert_eq!(&frame[..14], &after[..14]);
            }
        }
    }
}
