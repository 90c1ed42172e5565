//! A frame that waits to be sent, apart from the buffer it was received into.

use super::Outgoing;
use crate::wire::offload::{Offload, VIRTIO_HEADER_LEN};

/// One frame without metadata, as it will be on the wire.
#[derive(Debug)]
pub struct Packet {
    /// Room for a virtio header, then the frame.
    bytes: Vec<u8>,
    is_duplicate: bool,
}

impl Packet {
    /// A copy of `frame`, in the memory of `spare`.
    #[must_use]
    pub fn copy(frame: &[u8], mut spare: Vec<u8>) -> Self {
        spare.clear();
        spare.extend_from_slice(&[0; VIRTIO_HEADER_LEN]);
        spare.extend_from_slice(frame);
        Self { bytes: spare, is_duplicate: false }
    }

    /// A second one like it, in the memory of `spare`.
    #[must_use]
    pub fn duplicate(&self, spare: Vec<u8>) -> Self {
        Self { is_duplicate: true, ..Self::copy(self.frame(), spare) }
    }

    /// Whether it was made by [`Packet::duplicate`].
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// The frame from its Ethernet header on.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        &self.bytes[VIRTIO_HEADER_LEN..]
    }

    /// The same, to be changed.
    #[must_use]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[VIRTIO_HEADER_LEN..]
    }

    /// The frame on its way to an egress.
    #[must_use]
    pub fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing { bytes: &mut self.bytes, offload: Offload::default() }
    }

    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Its memory, to be used again.
    #[must_use]
    pub fn into_spare(self) -> Vec<u8> {
        self.bytes
    }
}
