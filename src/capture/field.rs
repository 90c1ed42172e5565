//! What the formats have in common.

/// The longest part of a frame that is kept, in bytes.
pub(super) const SNAPLEN: u16 = u16::MAX;

/// The number at `position`, where it is there, in the byte order of this machine.
pub(super) fn number_at(bytes: &[u8], position: usize) -> Option<u32> {
    bytes.get(position..)?.first_chunk().map(|field| u32::from_ne_bytes(*field))
}
