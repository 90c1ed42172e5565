//! An independent look at frames: lengths, checksums and payload, with nothing of the code under test.

use super::frames::{Built, Recipe, sum};

/// Checks that `pieces`, frames of at most `mtu` bytes behind their link-layer header, are what the super-frame
/// `built` is cut into: nothing missing, nothing twice, everything finished.
pub(crate) fn check_segments(recipe: &Recipe, built: &Built, pieces: &[Vec<u8>], mtu: usize) {
    let mut payload = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        assert!(piece.len() <= mtu + built.ip_at, "piece {number} has {} bytes", piece.len());
        check_finished(piece, built.ip_at);
        if !recipe.udp {
            let sequence = piece[built.transport_at + 4..].first_chunk().expect("a TCP header");
            let expected = recipe.sequence.wrapping_add(u32::try_from(payload.len()).expect("below 64 KiB"));
            assert_eq!(u32::from_be_bytes(*sequence), expected, "piece {number} is out of order");
        }
        assert_eq!(piece[..built.ip_at], built.bytes[..built.ip_at], "piece {number} has the same link-layer header");
        payload.extend_from_slice(&piece[built.payload_at..]);
    }
    assert!(payload == recipe.payload, "{} bytes in {} frames", payload.len(), pieces.len());
}

/// Checks lengths and checksums of a TCP or UDP packet, without options or extensions, that starts at `ip_at`.
pub(crate) fn check_finished(frame: &[u8], ip_at: usize) {
    let packet = &frame[ip_at..];
    let (addresses, header_len, protocol) = if packet[0] >> 4 == 4 {
        assert_eq!(sum(&packet[..20]), 0xffff, "the IPv4 header's checksum");
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len(), "the packet's length");
        (&packet[12..20], 20, packet[9])
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40, packet.len(), "the packet's length");
        (&packet[8..40], 40, packet[6])
    };
    let segment = &packet[header_len..];
    let len = u16::try_from(segment.len()).expect("a short packet").to_be_bytes();
    assert_eq!(sum(&[addresses, &len, &[0, protocol], segment].concat()), 0xffff, "the transport's checksum");
}
