//! The one's complement sum of bytes, compiled once for any CPU and once for AVX2.
//!
//! One safe loop serves both: the vector unit is used by recompiling it, not by intrinsics. It lives here,
//! beneath the pure code, because calling a `target_feature` function needs `unsafe`.

/// Adds `bytes`, taken as native-endian 16-bit words with a zero byte appended where the length is odd,
/// without folding the carries.
///
/// The result is congruent to the Internet checksum's sum (RFC 1071 section 2(B): byte order only swaps
/// the bytes of the result).
#[must_use]
#[inline]
pub fn sum_words(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // Below a few vectors the call costs more than it saves.
    if bytes.len() >= 128 && std::arch::is_x86_feature_detected!("avx2") {
        // JUSTIFICATION: a function compiled for AVX2 can only be called in an unsafe block.
        // SAFETY: the CPU has AVX2, as the detection (cached by std) just said.
        return unsafe { sum_words_avx2(bytes) };
    }
    sum_words_portable(bytes)
}

/// # Safety
/// The CPU must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sum_words_avx2(bytes: &[u8]) -> u64 {
    sum_words_portable(bytes)
}

#[inline(always)]
fn sum_words_portable(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut sum = 0u64;
    for word in &mut words {
        sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0u8; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_compilations_agree_at_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..=255).cycle().map(|byte: u8| byte.wrapping_mul(151)).take(2048).collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                let part = &bytes[start..end];
                assert_eq!(sum_words(part), sum_words_portable(part), "{start}..{end}");
            }
        }
    }
}
