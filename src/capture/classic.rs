//! The classic format: a header, then records, in the byte order of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use super::LinkType;
use super::field::{SNAPLEN, number_at};

/// By which a reader knows the format, the byte order, and that stamps are in microseconds. There is another one for
/// nanoseconds, but not every reader knows that.
const MAGIC: u32 = 0xa1b2_c3d4;
const VERSION: [u16; 2] = [2, 4];
/// Seconds, microseconds, bytes kept and bytes in all, in 32 bits each.
const RECORD_HEADER_LEN: usize = 16;

/// The header of a file.
pub(super) fn header(link_type: LinkType) -> Vec<u8> {
    let [major, minor] = VERSION.map(u16::to_ne_bytes);
    // Time zone and accuracy of the stamps, which nobody uses.
    let unused = [0; 8];
    let [magic, snaplen, link_type] = [MAGIC, SNAPLEN.into(), link_type.number().into()].map(u32::to_ne_bytes);
    [&magic[..], &major, &minor, &unused, &snaplen, &link_type].concat()
}

/// Length of a record of which these bytes are kept.
pub(super) fn record_len(kept: &[u8]) -> usize {
    RECORD_HEADER_LEN + kept.len()
}

/// Appends the record of a frame of `len` bytes, of which some are kept.
pub(super) fn put_record(to: &mut Vec<u8>, kept: &[u8], len: u32, arrival: SystemTime) {
    let stamp = arrival.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = u32::try_from(stamp.as_secs()).unwrap_or(u32::MAX);
    let kept_len = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    for word in [seconds, stamp.subsec_micros(), kept_len, len] {
        to.extend_from_slice(&word.to_ne_bytes());
    }
    to.extend_from_slice(kept);
}

/// Whether it is a frame that comes next, and its length, where its header is there.
pub(super) fn next(records: &[u8]) -> Option<(bool, usize)> {
    let kept = number_at(records, 8)?;
    Some((true, usize::try_from(kept).unwrap_or(usize::MAX).saturating_add(RECORD_HEADER_LEN)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stamps_have_their_limits() {
        let stamp = |arrival| {
            let mut record = Vec::new();
            put_record(&mut record, &[], 0, arrival);
            [0, 4].map(|position| number_at(&record, position).unwrap())
        };
        assert_eq!(stamp(UNIX_EPOCH + Duration::new(7, 1_999_999)), [7, 1999], "cut to microseconds");
        assert_eq!(stamp(UNIX_EPOCH - Duration::from_secs(1)), [0, 0]);
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX) + 5)), [u32::MAX, 0]);
    }
}
