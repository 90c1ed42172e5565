//! The buffer that a frame is read into, changed in and written from.

use std::ops::Range;

use super::ReceiveError;
use crate::wire::offload::{Offload, VIRTIO_HEADER_LEN};
use crate::wire::{MAX_FRAME_LEN, VLAN_TAG_LEN};

/// Room before the frame: a virtio header in front of a tag that is put back, rounded up.
const HEADROOM: usize = 16;
const _: () = assert!(HEADROOM >= VIRTIO_HEADER_LEN + VLAN_TAG_LEN);

/// One frame with its metadata, and perhaps a run of others behind it that arrived together. Each direction has
/// two, and reuses them for every frame.
#[derive(Debug)]
pub struct Frame {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The rest of the run: frames of `size` bytes each, the last one perhaps shorter.
    rest: Range<usize>,
    size: usize,
    /// What the kernel said of it.
    pub offload: Offload,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            // One byte more than the longest frame tells that one from a longer one.
            buffer: vec![0; HEADROOM + MAX_FRAME_LEN + 1].into_boxed_slice(),
            start: HEADROOM,
            end: HEADROOM,
            rest: 0..0,
            size: 0,
            offload: Offload::default(),
        }
    }
}

impl Frame {
    /// Where to read a frame to, with room for a virtio header before it where `with_header` says so.
    pub fn space(&mut self, with_header: bool) -> &mut [u8] {
        let header = if with_header { VIRTIO_HEADER_LEN } else { 0 };
        &mut self.buffer[HEADROOM - header..]
    }

    /// Takes in what was read into [`Frame::space`]: `len` bytes, a virtio header included where there is one.
    ///
    /// # Errors
    /// [`ReceiveError::Truncated`] where the space was filled to the end; [`ReceiveError::Unsupported`] for a
    /// super-frame that cannot be cut.
    pub fn fill(&mut self, len: usize, with_header: bool) -> Result<(), ReceiveError> {
        let header = if with_header { VIRTIO_HEADER_LEN } else { 0 };
        self.start = HEADROOM;
        self.end = HEADROOM + len.saturating_sub(header);
        self.rest = 0..0;
        self.offload = Offload::default();
        if self.end >= self.buffer.len() {
            return Err(ReceiveError::Truncated);
        }
        if let Some(header) = self.buffer[..HEADROOM].last_chunk().filter(|_| with_header) {
            self.offload = Offload::decode(header)?;
        }
        Ok(())
    }

    /// Takes in a run of frames that were read into [`Frame::space`], without virtio headers: `len` bytes, of which each
    /// frame has `size`, which is less.
    ///
    /// # Errors
    /// [`ReceiveError::Truncated`] where the space was filled to the end.
    pub fn fill_run(&mut self, len: usize, size: usize) -> Result<(), ReceiveError> {
        self.fill(len, false)?;
        self.rest = self.start + size..self.end;
        self.end = self.start + size;
        self.size = size;
        Ok(())
    }

    /// The whole run and the size of its frames, as long as none has been taken out of it.
    #[must_use]
    pub fn run(&self) -> Option<(&[u8], usize)> {
        let untouched = !self.rest.is_empty() && self.start == HEADROOM && self.end == self.rest.start;
        untouched.then(|| (&self.buffer[self.start..self.rest.end], self.size))
    }

    /// Forgets the rest of the run.
    pub fn end_run(&mut self) {
        self.rest = 0..0;
    }

    /// Leaves this frame for the next one of the run; returns whether there is one.
    #[inline]
    pub fn advance(&mut self) -> bool {
        let next = self.ahead();
        let is_one = !next.is_empty();
        if is_one {
            (self.start, self.end, self.rest.start) = (next.start, next.end, next.end);
            self.offload = Offload::default();
        }
        is_one
    }

    /// This frame, and the next one of the run.
    #[must_use]
    #[inline]
    pub fn with_next(&mut self) -> Option<(&mut [u8], &[u8])> {
        let next = self.ahead();
        let (until, from) = self.buffer.split_at_mut(next.start.max(self.end));
        let next = from.get(..next.len()).filter(|next| !next.is_empty())?;
        Some((&mut until[self.start..self.end], next))
    }

    /// Appends the last `count` bytes of the next frame of the run to this one, and takes it out of the run.
    pub fn append_next(&mut self, count: usize) {
        let next = self.ahead();
        let payload = next.end - count.min(next.len())..next.end;
        let len = payload.len();
        self.buffer.copy_within(payload, self.end);
        self.end += len;
        self.rest.start = next.end;
    }

    /// Where the next frame of the run is.
    fn ahead(&self) -> Range<usize> {
        self.rest.start..(self.rest.start + self.size).min(self.rest.end)
    }

    /// Puts a VLAN tag back behind the addresses.
    pub fn insert_tag(&mut self, tpid: u16, tci: u16) {
        const ADDRESSES: usize = 12;
        if self.end - self.start < ADDRESSES {
            return;
        }
        self.buffer.copy_within(self.start..self.start + ADDRESSES, self.start - VLAN_TAG_LEN);
        self.start -= VLAN_TAG_LEN;
        let tag = self.start + ADDRESSES;
        self.buffer[tag..tag + 2].copy_from_slice(&tpid.to_be_bytes());
        self.buffer[tag + 2..tag + 4].copy_from_slice(&tci.to_be_bytes());
        self.offload = self.offload.behind_tag();
    }

    /// Takes `count` bytes, which are not of the frame, from its start.
    pub fn skip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Appends payload to the frame, which must be the last of its run; as far as it fits: all of it, up to
    /// [`MAX_FRAME_LEN`].
    #[inline]
    pub fn append(&mut self, payload: &[u8]) {
        if self.end + payload.len() > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, HEADROOM);
            (self.start, self.end) = (HEADROOM, HEADROOM + self.end - self.start);
        }
        let space = &mut self.buffer[self.end..];
        let len = payload.len().min(space.len());
        space[..len].copy_from_slice(&payload[..len]);
        self.end += len;
    }

    /// The frame from its Ethernet header on.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// The part `range` of the frame, to be sent as a frame of its own with the metadata `offload`.
    ///
    /// The bytes before it are overwritten where the egress wants a virtio header there.
    #[must_use]
    pub fn outgoing(&mut self, range: Range<usize>, offload: Offload) -> Outgoing<'_> {
        let (start, end) = (self.start + range.start, (self.start + range.end).min(self.end));
        Outgoing { bytes: &mut self.buffer[start - VIRTIO_HEADER_LEN..end], offload }
    }
}

/// A frame on its way to an egress.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Room for a virtio header, then the frame.
    pub(super) bytes: &'a mut [u8],
    pub(super) offload: Offload,
}

impl Outgoing<'_> {
    /// The frame alone.
    #[must_use]
    #[inline]
    pub fn plain(&self) -> &[u8] {
        &self.bytes[VIRTIO_HEADER_LEN..]
    }

    /// The frame behind another header.
    #[must_use]
    pub fn behind<const LEN: usize>(&mut self, header: &[u8; LEN]) -> &[u8] {
        const { assert!(LEN <= VIRTIO_HEADER_LEN, "there is no more room") };
        let bytes = &mut self.bytes[VIRTIO_HEADER_LEN - LEN..];
        bytes[..LEN].copy_from_slice(header);
        bytes
    }

    /// The frame behind a virtio header that tells its metadata.
    #[must_use]
    #[inline]
    pub fn with_virtio_header(&mut self) -> &[u8] {
        self.bytes[..VIRTIO_HEADER_LEN].copy_from_slice(&self.offload.encode());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_behind_the_addresses_and_moves_the_checksum() {
        let mut frame = Frame::default();
        let mut read = vec![1, 0, 0, 0, 0, 0, 34, 0, 16, 0];
        read.extend(0..60);
        frame.space(true)[..70].copy_from_slice(&read);
        frame.fill(70, true).unwrap();
        frame.insert_tag(0x88a8, 0x6064);
        assert_eq!(frame.bytes()[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x88, 0xa8, 0x60, 0x64, 12, 13]);
        assert_eq!(frame.bytes().len(), 64);
        assert_eq!(frame.offload.checksum.unwrap().start, 38);
        let offload = frame.offload;
        assert_eq!(frame.outgoing(0..64, offload).with_virtio_header().len(), 74);
    }

    #[test]
    fn a_run_is_taken_whole_or_frame_by_frame() {
        let mut frame = Frame::default();
        frame.space(false)[..25].copy_from_slice(&std::array::from_fn::<u8, 25, _>(|i| u8::try_from(i).unwrap()));
        frame.fill_run(25, 10).unwrap();
        let (bytes, size) = frame.run().unwrap();
        assert_eq!((bytes.len(), size), (25, 10));
        assert_eq!(frame.bytes(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let (this, next) = frame.with_next().unwrap();
        assert_eq!((this[0], next[0], next.len()), (0, 10, 10));
        frame.append_next(2);
        assert!(frame.run().is_none());
        assert_eq!(frame.bytes(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 18, 19]);
        let (this, next) = frame.with_next().unwrap();
        assert_eq!((this.len(), next), (12, &[20, 21, 22, 23, 24][..]));
        assert!(frame.advance());
        assert_eq!(frame.bytes(), [20, 21, 22, 23, 24]);
        assert!(frame.with_next().is_none() && !frame.advance());
        frame.fill(3, false).unwrap();
        assert!(!frame.advance() && frame.run().is_none());
    }

    #[test]
    fn the_longest_frame_fits_and_one_more_byte_is_noticed() {
        let mut frame = Frame::default();
        frame.fill(MAX_FRAME_LEN, false).unwrap();
        assert_eq!(frame.bytes().len(), MAX_FRAME_LEN);
        assert!(frame.fill(MAX_FRAME_LEN + 1, false).is_err());
        frame.fill(VIRTIO_HEADER_LEN + MAX_FRAME_LEN, true).unwrap();
    }
}
