//! The classic capture format: a header, then records, in the byte order of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use super::LinkType;

/// By which a reader knows the format, the byte order, and that stamps are in microseconds.
const MAGIC: u32 = 0xa1b2_c3d4;
const VERSION: [u16; 2] = [2, 4];
/// The longest part of a frame that is kept, in bytes.
const SNAPLEN: u32 = 65_535;
/// Seconds, microseconds, bytes kept and bytes in all, in 32 bits each.
const RECORD_HEADER_LEN: usize = 16;

/// The header of a file.
pub(super) fn header(link_type: LinkType) -> Vec<u8> {
    let [major, minor] = VERSION.map(u16::to_ne_bytes);
    // Time zone and accuracy of the stamps, which nobody uses.
    let unused = [0; 8];
    let [magic, snaplen, link_type] = [MAGIC, SNAPLEN, link_type.number()].map(u32::to_ne_bytes);
    [&magic[..], &major, &minor, &unused, &snaplen, &link_type].concat()
}

/// Length of the record of `frame`.
pub(super) fn record_len(frame: &[u8]) -> usize {
    RECORD_HEADER_LEN + kept(frame).len()
}

/// Appends the record of `frame`.
pub(super) fn put_record(to: &mut Vec<u8>, frame: &[u8], arrival: SystemTime) {
    let stamp = arrival.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = u32::try_from(stamp.as_secs()).unwrap_or(u32::MAX);
    for word in [seconds, stamp.subsec_micros(), len_of(kept(frame)), len_of(frame)] {
        to.extend(word.to_ne_bytes());
    }
    to.extend(kept(frame));
}

/// How much of `records`, which may end anywhere, is whole: a number of records, and of bytes.
pub(super) fn whole(records: &[u8]) -> (u64, usize) {
    let (mut count, mut bytes) = (0, 0);
    while let Some(kept) = records[bytes..].get(8..12).and_then(|field| field.first_chunk()) {
        let len = usize::try_from(u32::from_ne_bytes(*kept)).unwrap_or(usize::MAX);
        let end = len.saturating_add(bytes + RECORD_HEADER_LEN);
        if end > records.len() {
            break;
        }
        (count, bytes) = (count + 1, end);
    }
    (count, bytes)
}

fn kept(frame: &[u8]) -> &[u8] {
    &frame[..frame.len().min(SNAPLEN as usize)]
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn record(frame: &[u8], arrival: SystemTime) -> Vec<u8> {
        let mut record = Vec::new();
        put_record(&mut record, frame, arrival);
        assert_eq!(record.len(), record_len(frame));
        record
    }

    #[test]
    fn stamps_and_lengths_have_their_limits() {
        let stamp = |arrival| words(&record(&[], arrival)[..8]);
        assert_eq!(stamp(UNIX_EPOCH + Duration::new(7, 1_999_999)), [7, 1999], "cut to microseconds");
        assert_eq!(stamp(UNIX_EPOCH - Duration::from_secs(1)), [0, 0]);
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX) + 5)), [u32::MAX, 0]);
        let long = record(&vec![7; 65_597], UNIX_EPOCH);
        assert_eq!(words(&long[8..16]), [65_535, 65_597]);
        assert_eq!(long.len(), 16 + 65_535);
    }

    proptest! {
        #[test]
        fn what_is_whole_ends_with_the_last_record_that_fits(
            lens in proptest::collection::vec(0usize..200, 0..20),
            cut in 0usize..4000,
        ) {
            let mut records = Vec::new();
            let mut ends = vec![0];
            for len in lens {
                put_record(&mut records, &vec![0xff; len], UNIX_EPOCH);
                ends.push(records.len());
            }
            let cut = cut.min(records.len());
            let count = ends.iter().rposition(|&end| end <= cut).unwrap();
            prop_assert_eq!(whole(&records[..cut]), (count as u64, ends[count]));
        }
    }
}
