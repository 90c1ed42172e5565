//! The pcapng format: blocks, in the byte order of this machine. One says what the file is, one describes each
//! interface, and then there is one for each frame.

use std::time::{SystemTime, UNIX_EPOCH};

use super::field::{SNAPLEN, number_at};
use super::{Interface, LinkType};

/// The types of blocks.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// By which a reader knows the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
/// A section that ends with the file.
const UNKNOWN_LEN: u64 = u64::MAX;

/// Options: what they hold is told by the kind of block that they are in.
const END_OF_OPTIONS: u16 = 0;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIBED: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// Stamps count units of ten to the minus ninth of a second.
const NANOSECONDS: [u8; 1] = [9];
/// A frame entered from its interface.
const INBOUND: u32 = 1;

/// What is around the contents of any block: its type, and twice its length.
const FRAME_LEN: usize = 12;
/// Interface, two halves of the stamp, bytes kept and bytes in all.
const PACKET_FIELDS_LEN: usize = 20;
/// The flags, and the end of the options.
const PACKET_OPTIONS_LEN: usize = 12;

/// The block that a file begins with.
pub(super) fn header() -> Vec<u8> {
    let [major, minor] = VERSION.map(u16::to_ne_bytes);
    let mut body = [&BYTE_ORDER.to_ne_bytes()[..], &major, &minor, &UNKNOWN_LEN.to_ne_bytes()].concat();
    put_option(&mut body, SECTION_APPLICATION, concat!("rubridge ", env!("CARGO_PKG_VERSION")).as_bytes());
    put_option(&mut body, END_OF_OPTIONS, &[]);
    block(SECTION_HEADER, &body)
}

/// The block that describes an interface. The first in a file is number 0.
pub(super) fn interface(interface: &Interface, link_type: LinkType) -> Vec<u8> {
    let reserved = [0; 2];
    let mut body = [&link_type.number().to_ne_bytes()[..], &reserved, &u32::from(SNAPLEN).to_ne_bytes()].concat();
    put_option(&mut body, INTERFACE_NAME, interface.name.as_bytes());
    put_option(&mut body, INTERFACE_DESCRIBED, interface.description.as_bytes());
    put_option(&mut body, INTERFACE_RESOLUTION, &NANOSECONDS);
    put_option(&mut body, END_OF_OPTIONS, &[]);
    block(INTERFACE_DESCRIPTION, &body)
}

/// Length of a block of a frame of which these bytes are kept.
pub(super) fn record_len(kept: &[u8]) -> usize {
    FRAME_LEN + PACKET_FIELDS_LEN + padded(kept.len()) + PACKET_OPTIONS_LEN
}

/// Appends the block of a frame of `len` bytes, of which some are kept.
pub(super) fn put_record(to: &mut Vec<u8>, kept: &[u8], len: u32, arrival: SystemTime, interface: u32) {
    let stamp = arrival.duration_since(UNIX_EPOCH).unwrap_or_default();
    // For some centuries.
    let stamp = u64::try_from(stamp.as_nanos()).unwrap_or(u64::MAX);
    let [high, low] = [stamp >> 32, stamp & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(u32::MAX));
    let block_len = len_of(record_len(kept));
    for word in [ENHANCED_PACKET, block_len, interface, high, low, len_of(kept.len()), len] {
        to.extend_from_slice(&word.to_ne_bytes());
    }
    put_padded(to, kept);
    put_option(to, PACKET_FLAGS, &INBOUND.to_ne_bytes());
    put_option(to, END_OF_OPTIONS, &[]);
    to.extend_from_slice(&block_len.to_ne_bytes());
}

/// Whether it is a frame that comes next, and the length of its block, where the beginning of that is there.
pub(super) fn next(blocks: &[u8]) -> Option<(bool, usize)> {
    let (kind, len) = (number_at(blocks, 0)?, number_at(blocks, 4)?);
    Some((kind == ENHANCED_PACKET, usize::try_from(len).unwrap_or(usize::MAX)))
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = len_of(FRAME_LEN + body.len()).to_ne_bytes();
    [&kind.to_ne_bytes()[..], &len, body, &len].concat()
}

/// Appends an option; what is too long for one is cut.
fn put_option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&code.to_ne_bytes());
    to.extend_from_slice(&len.to_ne_bytes());
    put_padded(to, &value[..len.into()]);
}

/// Appends `bytes` and what is missing of a whole number of words.
fn put_padded(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(bytes);
    to.extend_from_slice(&[0; 3][..padded(bytes.len()) - bytes.len()]);
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn len_of(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stamps_have_their_limits() {
        let stamp = |arrival| {
            let mut record = Vec::new();
            put_record(&mut record, &[], 0, arrival, 0);
            let [high, low] = [12, 16].map(|position| u64::from(number_at(&record, position).unwrap()));
            high << 32 | low
        };
        assert_eq!(stamp(UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789)), 1_700_000_000_123_456_789);
        assert_eq!(stamp(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(u64::MAX / 1_000_000_000 + 1)), u64::MAX);
    }

    #[test]
    fn a_name_that_is_too_long_is_cut() {
        let long = Interface { name: "n".repeat(70_000), description: String::new() };
        let block = interface(&long, LinkType::ETHERNET);
        assert_eq!(next(&block), Some((false, block.len())));
        assert_eq!(number_at(&block, block.len() - 4), number_at(&block, 4), "both lengths");
    }
}
