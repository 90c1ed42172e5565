//! The frames that a kernel would make of one with metadata, as plainly as it can be said: from the metadata alone,
//! each with its checksum summed from the field's unfinished one (`tcp_gso_segment`, `__udp_gso_segment`).

use etherparse::checksum::Sum16BitWords;
use rubridge::wire::offload::{Offload, PartialChecksum, SuperFrame, SuperFrameKind};

const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The Internet checksum of `parts`, of which only the last may have an odd length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    parts.iter().fold(Sum16BitWords::new(), |sum, part| sum.add_slice(part)).ones_complement().to_be()
}

/// The frames on the wire.
///
/// # Panics
/// Where no kernel would take the metadata.
#[must_use]
pub fn frames(frame: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    match (offload.checksum, offload.super_frame) {
        (None, None) => vec![frame.to_vec()],
        (Some(unfinished), None) => {
            let mut frame = frame.to_vec();
            finish(&mut frame, unfinished, 0, 0);
            vec![frame]
        }
        (Some(unfinished), Some(super_frame)) => cut(frame, unfinished, super_frame),
        (None, Some(_)) => panic!("a super-frame without an unfinished checksum"),
    }
}

/// Where the IP header is.
///
/// # Panics
/// Where the frame ends before it.
#[must_use]
pub fn ip_at(frame: &[u8]) -> usize {
    let mut at = 14;
    while matches!(frame[at - 2..at], [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    at
}

fn cut(frame: &[u8], unfinished: PartialChecksum, super_frame: SuperFrame) -> Vec<Vec<u8>> {
    let (ip_at, at) = (ip_at(frame), usize::from(unfinished.start));
    let is_tcp = super_frame.kind != SuperFrameKind::Udp;
    let is_v4 = frame[ip_at] >> 4 == 4;
    match super_frame.kind {
        SuperFrameKind::Tcp4 => assert!(is_v4, "not IPv4"),
        SuperFrameKind::Tcp6 => assert!(!is_v4, "not IPv6"),
        SuperFrameKind::Udp => {}
    }
    assert_eq!(unfinished.offset, if is_tcp { 16 } else { 6 }, "the checksum field is elsewhere");
    let headers = at + if is_tcp { usize::from(frame[at + 12] >> 4) * 4 } else { 8 };
    assert_eq!(usize::from(super_frame.header_len), headers, "header_len");

    let size = usize::from(super_frame.segment_size);
    let pieces = frame[headers..].chunks(size);
    let count = pieces.len();
    assert!(count > 1, "a super-frame of {count} segments");
    assert!(is_tcp || count <= 64, "a super-frame of {count} datagrams");
    let cut_one = |(index, payload): (usize, &[u8])| {
        let mut piece = [&frame[..headers], payload].concat();
        if is_v4 {
            add(&mut piece, ip_at + 4, index);
            let length = piece.len() - ip_at;
            write(&mut piece, ip_at + 2, length);
            write(&mut piece, ip_at + 10, 0);
            let sum = checksum(&[&piece[ip_at..at]]);
            write(&mut piece, ip_at + 10, sum.into());
        } else {
            let length = piece.len() - ip_at - 40;
            write(&mut piece, ip_at + 4, length);
        }
        if is_tcp {
            let mut sequence = [0; 4];
            sequence.copy_from_slice(&piece[at + 4..at + 8]);
            let sequence =
                u32::from_be_bytes(sequence).wrapping_add(u32::try_from(index * size).expect("below 64 KiB"));
            piece[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            if index + 1 < count {
                piece[at + 13] &= !FIN_AND_PSH;
            }
            if index > 0 && !super_frame.accurate_ecn {
                piece[at + 13] &= !CWR;
            }
        } else {
            let length = piece.len() - at;
            write(&mut piece, at + 4, length);
        }
        let length = piece.len() - at;
        finish(&mut piece, unfinished, frame.len() - at, length);
        piece
    };
    pieces.enumerate().map(cut_one).collect()
}

/// Finishes a checksum whose field has the pseudo-header's sum, after exchanging one length in it for another.
fn finish(frame: &mut [u8], unfinished: PartialChecksum, was: usize, is: usize) {
    let start = usize::from(unfinished.start);
    let field = start + usize::from(unfinished.offset);
    let [was, is] = [was, is].map(|length| u16::try_from(length).expect("below 64 KiB"));
    let correction = [(!was).to_be_bytes(), is.to_be_bytes()].concat();
    let sum = checksum(&[&correction, &frame[start..]]);
    let sum = if sum == 0 && unfinished.offset == 6 { 0xffff } else { sum };
    write(frame, field, sum.into());
}

fn write(frame: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).expect("a field of 16 bits");
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn add(frame: &mut [u8], at: usize, count: usize) {
    let value = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let value = value.wrapping_add(u16::try_from(count).expect("fewer than 64 Ki"));
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
