//! Frames as bytes: headers, checksums, offload metadata and segmentation.
//!
//! Everything here is pure: no I/O, no `unsafe`, no allocation per frame, and no panic whatever the bytes say.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod coalesce;
pub mod flows;
pub mod headers;
pub mod infer;
pub mod offload;
pub mod segment;

/// Length of an untagged Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Length of one 802.1Q or 802.1ad tag.
pub const VLAN_TAG_LEN: usize = 4;
/// The longest frame that passes through: a maximal IPv6 packet (65,535 bytes behind its header of 40, RFC 8200
/// section 3), an Ethernet header and two tags. Only BIG TCP, which an administrator must switch on, goes beyond.
pub const MAX_FRAME_LEN: usize = 40 + 65_535 + ETHERNET_LEN + 2 * VLAN_TAG_LEN;

/// Reads the big-endian 16-bit field at `at`; `None` where the frame ends before it.
#[inline]
fn read_u16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Reads the big-endian 32-bit field at `at`; `None` where the frame ends before it.
#[inline]
fn read_u32(frame: &[u8], at: usize) -> Option<u32> {
    let bytes = frame.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

/// Writes the big-endian 16-bit field at `at`, which the caller's header parse has found to exist.
#[inline]
fn write_u16(frame: &mut [u8], at: usize, value: u16) {
    if let Some(field) = frame.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
