//! What a frame needs before an egress can take it.

use crate::wire::headers::{HeaderError, Headers, IpVersion, Transport, link_len};
use crate::wire::offload::{Features, Offload, PartialChecksum, SuperFrame, SuperFrameKind};
use crate::wire::segment::{self, Cutter, segment_count};
use crate::wire::{ETHERNET_LEN, VLAN_TAG_LEN};

use super::counters::DropReason;

/// A frame's way to the egress.
#[derive(Debug)]
pub enum Plan {
    /// Send it as it now is, with this metadata.
    Whole(Offload),
    /// Send it in pieces.
    Cut(Cutter),
}

/// A plan, and the size of the frame in frames as they were, or will be, on the wire.
#[derive(Debug)]
pub struct Planned {
    /// What to do.
    pub plan: Plan,
    /// What came in.
    pub input: WireSize,
    /// What will go out.
    pub output: WireSize,
    /// A checksum was finished in software.
    pub finished: bool,
}

/// A number of frames on the wire and their length in all, in bytes from the Ethernet header on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireSize {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

impl WireSize {
    /// One frame as it is.
    #[must_use]
    pub fn one(frame: &[u8]) -> Self {
        Self { frames: 1, bytes: frame.len() as u64 }
    }

    /// A super-frame's pieces, each with the headers.
    fn pieces(frame: &[u8], headers: &Headers, segment_size: u16) -> Self {
        let frames = segment_count(frame.len() - headers.payload_at, segment_size) as u64;
        Self { frames, bytes: frame.len() as u64 + (frames - 1) * headers.payload_at as u64 }
    }
}

/// Plans `frame` for an egress that takes `features` as they are and packets of at most `mtu` bytes, and does
/// to the frame what must be done before the first byte leaves.
///
/// # Errors
/// The reason for which it cannot be forwarded.
pub fn plan(frame: &mut [u8], offload: Offload, features: Features, mtu: Option<u32>) -> Result<Planned, DropReason> {
    match offload.super_frame {
        Some(super_frame) => plan_super_frame(frame, offload, super_frame, features, mtu),
        None => plan_frame(frame, offload, features),
    }
}

fn plan_frame(frame: &mut [u8], offload: Offload, features: Features) -> Result<Planned, DropReason> {
    let size = WireSize::one(frame);
    let mut plan = Planned { plan: Plan::Whole(offload), input: size, output: size, finished: false };
    if let Some(unfinished) = offload.checksum {
        if !features.checksum || segment::is_sctp(frame, unfinished) {
            segment::finish_checksum(frame, unfinished).map_err(|_| DropReason::Malformed)?;
            plan.plan = Plan::Whole(Offload::default());
            plan.finished = true;
        }
    }
    Ok(plan)
}

fn plan_super_frame(
    frame: &mut [u8],
    offload: Offload,
    super_frame: SuperFrame,
    features: Features,
    mtu: Option<u32>,
) -> Result<Planned, DropReason> {
    let headers = Headers::parse(frame).map_err(|error| match error {
        HeaderError::Malformed => DropReason::Malformed,
        HeaderError::Unsupported => DropReason::Unsupported,
    })?;
    check_kind(super_frame.kind, &headers)?;
    let unfinished =
        PartialChecksum { start: field(headers.transport_at)?, offset: field(headers.transport.checksum_offset())? };
    // A checksum elsewhere belongs to a packet inside this one: a tunnel.
    if offload.checksum.is_some_and(|told| told != unfinished) {
        return Err(DropReason::Unsupported);
    }

    let input = WireSize::pieces(frame, &headers, super_frame.segment_size);
    let segment_size = fitting_size(frame, &headers, super_frame, mtu)?;
    let output = WireSize::pieces(frame, &headers, segment_size);
    if features.take(&super_frame) {
        if offload.checksum.is_none() {
            segment::begin_checksum(frame, &headers);
        }
        // A kernel refuses to cut what makes one segment (tcp_gso_segment: EINVAL).
        let super_frame = (output.frames > 1).then_some(SuperFrame {
            segment_size,
            header_len: field(headers.payload_at)?,
            ..super_frame
        });
        let plan = Plan::Whole(Offload { checksum: Some(unfinished), super_frame });
        return Ok(Planned { plan, input, output, finished: false });
    }
    let cutter = Cutter::new(frame, headers, segment_size, offload.checksum.is_some(), super_frame.accurate_ecn);
    Ok(Planned { plan: Plan::Cut(cutter), input, output, finished: true })
}

fn check_kind(kind: SuperFrameKind, headers: &Headers) -> Result<(), DropReason> {
    let fits = match kind {
        SuperFrameKind::Tcp4 => (headers.ip, headers.transport) == (IpVersion::V4, Transport::Tcp),
        SuperFrameKind::Tcp6 => (headers.ip, headers.transport) == (IpVersion::V6, Transport::Tcp),
        SuperFrameKind::Udp => headers.transport == Transport::Udp,
    };
    // The kernel tells of the inner packet, the frame starts with the outer: a tunnel.
    if fits { Ok(()) } else { Err(DropReason::Unsupported) }
}

/// The kernel's segment size, or less where such a segment does not fit the egress. A byte stream may be cut
/// anew; datagrams may not, so they are left to the egress to refuse.
fn fitting_size(frame: &[u8], headers: &Headers, super_frame: SuperFrame, mtu: Option<u32>) -> Result<u16, DropReason> {
    let Some(mtu) = mtu.filter(|_| super_frame.kind != SuperFrameKind::Udp) else {
        return Ok(super_frame.segment_size);
    };
    // One tag is carried on top of the MTU, as on any Ethernet; further ones are part of the packet.
    let link = link_len(frame).unwrap_or(ETHERNET_LEN).min(ETHERNET_LEN + VLAN_TAG_LEN);
    let room = (mtu as usize + link).checked_sub(headers.payload_at).filter(|&room| room > 0);
    let room = room.ok_or(DropReason::TooBig)?;
    Ok(super_frame.segment_size.min(u16::try_from(room).unwrap_or(u16::MAX)))
}

/// An offset as the virtio header's fields hold it.
fn field(offset: usize) -> Result<u16, DropReason> {
    u16::try_from(offset).map_err(|_| DropReason::Malformed)
}
