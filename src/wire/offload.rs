//! What the kernel keeps beside a frame: the virtio network header (virtio 1.2 section 5.1.6).

pub use crate::sys::VIRTIO_HEADER_LEN;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Flag bit beside the type: a segment carries CWR, which only the first may keep.
const GSO_ECN: u8 = 0x80;
/// Flag bit beside the type: accurate ECN, where every segment keeps CWR (proposed for Linux, netdev 2025).
const GSO_ACCECN: u8 = 0x10;

/// A checksum that is still to be finished: the field holds the pseudo-header's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where summing starts, in bytes from the start of the frame (VLAN tags included).
    pub start: u16,
    /// Where the field is, in bytes from `start`.
    pub offset: u16,
}

/// The kind of a super-frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuperFrameKind {
    /// TCP over IPv4 (TSO, GRO).
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of one flow, over either IP version (USO).
    Udp,
}

/// How a super-frame is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperFrame {
    /// What it is made of.
    pub kind: SuperFrameKind,
    /// Payload bytes of each segment but the last, the kernel's `gso_size`; never 0.
    pub segment_size: u16,
    /// It carries CWR, so an egress without ECN support cannot cut it.
    pub ecn: bool,
    /// Accurate ECN: CWR stays on every segment.
    pub accurate_ecn: bool,
    /// Bytes before the payload, for the kernel to keep together; 0 leaves it to guess.
    pub header_len: u16,
}

/// The metadata of one frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum still to be finished, if any.
    pub checksum: Option<PartialChecksum>,
    /// How to cut it, where it is a super-frame.
    pub super_frame: Option<SuperFrame>,
}

/// What an egress takes as it is, and so need not be done in software.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Unfinished checksums; super-frames need it.
    pub checksum: bool,
    /// TCP super-frames over IPv4.
    pub tso4: bool,
    /// TCP super-frames over IPv6.
    pub tso6: bool,
    /// TCP super-frames that carry CWR.
    pub ecn: bool,
    /// UDP super-frames.
    pub uso: bool,
    /// TCP segments that follow each other are worth merging: one super-frame costs less than they do.
    pub merge: bool,
    /// Datagrams of a tunnel may be sent, and received, several in one call.
    pub runs: bool,
}

impl Features {
    /// Everything.
    pub const ALL: Self =
        Self { checksum: true, tso4: true, tso6: true, ecn: true, uso: true, merge: true, runs: true };
    /// Nothing: finished frames of wire size alone.
    pub const NONE: Self =
        Self { checksum: false, tso4: false, tso6: false, ecn: false, uso: false, merge: false, runs: false };

    /// Whether `super_frame` can be passed on whole.
    #[must_use]
    #[inline]
    pub fn take(self, super_frame: &SuperFrame) -> bool {
        let kind = match super_frame.kind {
            SuperFrameKind::Tcp4 => self.tso4,
            SuperFrameKind::Tcp6 => self.tso6,
            SuperFrameKind::Udp => self.uso,
        };
        self.checksum && kind && (self.ecn || !super_frame.ecn)
    }
}

/// The virtio header names a kind of super-frame that cannot be cut: tunnels, UFO, or one yet to be invented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown super-frame type {0:#04x}")]
pub struct UnknownKind(pub u8);

impl Offload {
    /// Reads a virtio header in native byte order. Its `hdr_len` is not taken over: kernels fill it with
    /// lengths that have nothing to do with the headers.
    ///
    /// # Errors
    /// [`UnknownKind`] where the frame is a super-frame of a kind that is none of [`SuperFrameKind`].
    #[inline]
    pub fn decode(header: &[u8; VIRTIO_HEADER_LEN]) -> Result<Self, UnknownKind> {
        let [flags, kind, _, _, s0, s1, c0, c1, o0, o1] = *header;
        let checksum = (flags & NEEDS_CSUM != 0)
            .then_some(PartialChecksum { start: u16::from_ne_bytes([c0, c1]), offset: u16::from_ne_bytes([o0, o1]) });
        let segment_size = u16::from_ne_bytes([s0, s1]);
        if kind == GSO_NONE {
            return Ok(Self { checksum, super_frame: None });
        }
        let super_frame = SuperFrame {
            kind: match kind & !(GSO_ECN | GSO_ACCECN) {
                GSO_TCPV4 => SuperFrameKind::Tcp4,
                GSO_TCPV6 => SuperFrameKind::Tcp6,
                GSO_UDP_L4 => SuperFrameKind::Udp,
                _ => return Err(UnknownKind(kind)),
            },
            segment_size,
            ecn: kind & GSO_ECN != 0,
            accurate_ecn: kind & GSO_ACCECN != 0,
            header_len: 0,
        };
        if segment_size == 0 {
            return Err(UnknownKind(kind));
        }
        Ok(Self { checksum, super_frame: Some(super_frame) })
    }

    /// Writes the virtio header in native byte order.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; VIRTIO_HEADER_LEN] {
        let mut flags = 0;
        let (mut start, mut offset) = ([0; 2], [0; 2]);
        if let Some(checksum) = self.checksum {
            flags = NEEDS_CSUM;
            start = checksum.start.to_ne_bytes();
            offset = checksum.offset.to_ne_bytes();
        }
        let (mut kind, mut size, mut headers) = (GSO_NONE, [0; 2], [0; 2]);
        if let Some(super_frame) = self.super_frame {
            kind = match super_frame.kind {
                SuperFrameKind::Tcp4 => GSO_TCPV4,
                SuperFrameKind::Tcp6 => GSO_TCPV6,
                SuperFrameKind::Udp => GSO_UDP_L4,
            };
            kind |= if super_frame.ecn { GSO_ECN } else { 0 };
            kind |= if super_frame.accurate_ecn { GSO_ACCECN } else { 0 };
            size = super_frame.segment_size.to_ne_bytes();
            headers = super_frame.header_len.to_ne_bytes();
        }
        let ([h0, h1], [s0, s1], [c0, c1], [o0, o1]) = (headers, size, start, offset);
        [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1]
    }

    /// The same metadata for the frame with a VLAN tag put back: offsets move by the tag's length.
    ///
    /// AF_PACKET counts `csum_start` without the tag that it hands over beside the frame.
    #[must_use]
    pub fn behind_tag(mut self) -> Self {
        if let Some(checksum) = &mut self.checksum {
            checksum.start = checksum.start.saturating_add(4);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_encoding() {
        for kind in [SuperFrameKind::Tcp4, SuperFrameKind::Tcp6, SuperFrameKind::Udp] {
            for (ecn, accurate_ecn) in [(false, false), (true, false), (false, true)] {
                let offload = Offload {
                    checksum: Some(PartialChecksum { start: 34, offset: 16 }),
                    super_frame: Some(SuperFrame { kind, segment_size: 1448, ecn, accurate_ecn, header_len: 0 }),
                };
                assert_eq!(Offload::decode(&offload.encode()), Ok(offload));
            }
        }
        let plain = Offload::default();
        assert_eq!(plain.encode(), [0; VIRTIO_HEADER_LEN]);
        assert_eq!(Offload::decode(&[0; VIRTIO_HEADER_LEN]), Ok(plain));
    }

    #[test]
    fn what_cannot_be_cut_is_named() {
        let mut header = [0; VIRTIO_HEADER_LEN];
        header[4] = 100;
        for kind in [2, 3, 6, 0x21, 0x41, 0x83] {
            header[1] = kind;
            assert_eq!(Offload::decode(&header), Err(UnknownKind(kind)));
        }
        header[1] = GSO_TCPV4;
        header[4] = 0;
        assert_eq!(Offload::decode(&header), Err(UnknownKind(GSO_TCPV4)), "a segment size of 0");
    }
}
