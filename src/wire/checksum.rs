//! The Internet checksum (RFC 1071) and SCTP's CRC-32C (RFC 9260 appendix A).

use crate::sys::cpu;

/// A one's complement sum that is still being added to.
///
/// Kept unfolded in native byte order; only [`Sum::fold`] gives a number in the field's own order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds `bytes`. A piece of odd length counts as if a zero byte followed it, so only the last piece of
    /// a packet may be odd.
    #[must_use]
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(self.0 + cpu::sum_words(bytes))
    }

    /// Adds one 16-bit number.
    #[must_use]
    #[inline]
    pub fn number(self, number: u16) -> Self {
        Self(self.0 + u64::from(number.to_be()))
    }

    /// Takes one 16-bit number out again: one's complement subtraction is addition of the complement.
    #[must_use]
    #[inline]
    pub fn without(self, number: u16) -> Self {
        self.number(!number)
    }

    /// The sum folded to 16 bits.
    #[must_use]
    #[inline]
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        #[expect(clippy::cast_possible_truncation, reason = "two folds leave 16 bits and at most one carry")]
        let folded = ((sum & 0xffff) + (sum >> 16)) as u16;
        u16::from_be(folded)
    }

    /// The checksum: the complement of the folded sum.
    #[must_use]
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// CRC-32C (Castagnoli), which SCTP uses in place of the Internet checksum.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| (crc >> 8) ^ CRC32C[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The textbook loop, sharing nothing with the code under test.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += (u32::from(pair[0]) << 8) | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn rfc_1071_example() {
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
    }

    #[test]
    fn crc32c_of_the_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn equals_the_naive_loop(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(Sum::default().bytes(&bytes).checksum(), naive(&bytes));
        }

        #[test]
        fn equals_etherparse(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let theirs = etherparse::checksum::Sum16BitWords::new().add_slice(&bytes).ones_complement();
            prop_assert_eq!(Sum::default().bytes(&bytes).checksum(), theirs.to_be());
        }

        #[test]
        fn even_splits_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 0..3000), at in 0usize..1500) {
            let at = (2 * at).min(bytes.len() & !1);
            let (head, tail) = bytes.split_at(at);
            prop_assert_eq!(Sum::default().bytes(head).bytes(tail).fold(), Sum::default().bytes(&bytes).fold());
        }

        #[test]
        fn without_undoes_number(bytes in proptest::collection::vec(any::<u8>(), 1..100), number: u16) {
            let sum = Sum::default().bytes(&bytes);
            let back = sum.number(number).without(number).fold();
            // Zero has two forms in one's complement.
            prop_assert!(back == sum.fold() || (back == 0xffff && sum.fold() == 0));
        }
    }
}
