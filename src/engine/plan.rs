//! What a frame needs before an egress can take it.

use crate::wire::headers::{HeaderError, Headers, IpVersion, Transport, link_len};
use crate::wire::offload::{Features, Offload, PartialChecksum, SuperFrame, SuperFrameKind};
use crate::wire::segment::{self, Cutter, segment_count};
use crate::wire::{ETHERNET_LEN, VLAN_TAG_LEN};

use super::counters::{DropReason, WireSize};

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

    let input = pieces(frame, &headers, super_frame.segment_size);
    let segment_size = fitting_size(frame, &headers, super_frame, mtu)?;
    let output = pieces(frame, &headers, segment_size);
    let single = output.frames == 1;
    if single || features.take(&super_frame) {
        if offload.checksum.is_none() {
            segment::begin_checksum(frame, &headers);
        }
        if single {
            // A kernel refuses to cut what makes one segment (tcp_gso_segment: EINVAL).
            return plan_frame(frame, Offload { checksum: Some(unfinished), super_frame: None }, features);
        }
        let header_len = field(headers.payload_at)?;
        let super_frame = Some(SuperFrame { segment_size, header_len, ..super_frame });
        let plan = Plan::Whole(Offload { checksum: Some(unfinished), super_frame });
        return Ok(Planned { plan, input, output, finished: false });
    }
    let cutter = Cutter::new(frame, headers, segment_size, offload.checksum.is_some(), super_frame.accurate_ecn);
    Ok(Planned { plan: Plan::Cut(cutter), input, output, finished: true })
}

/// A super-frame's pieces, each with the headers.
fn pieces(frame: &[u8], headers: &Headers, segment_size: u16) -> WireSize {
    let frames = segment_count(frame.len() - headers.payload_at, segment_size) as u64;
    WireSize { frames, bytes: frame.len() as u64 + (frames - 1) * headers.payload_at as u64 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    const UNFINISHED: PartialChecksum = PartialChecksum { start: 34, offset: 16 };

    fn tcp4(payload: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4);
        builder.write(&mut frame, &vec![7; payload]).unwrap();
        frame
    }

    fn super_frame(segment_size: u16) -> Option<SuperFrame> {
        let kind = SuperFrameKind::Tcp4;
        Some(SuperFrame { kind, segment_size, ecn: false, accurate_ecn: false, header_len: 0 })
    }

    #[test]
    fn a_frame_that_needs_nothing_is_left_alone() {
        let mut frame = tcp4(100);
        let before = frame.clone();
        let planned = plan(&mut frame, Offload::default(), Features::NONE, Some(68)).unwrap();
        assert!(matches!(planned.plan, Plan::Whole(offload) if offload == Offload::default()));
        assert_eq!(frame, before);
    }

    #[test]
    fn sizes_are_those_of_the_wire() {
        let offload = Offload { checksum: Some(UNFINISHED), super_frame: super_frame(1000) };
        for (features, payload) in [(Features::ALL, 2500), (Features::NONE, 2500)] {
            let planned = plan(&mut tcp4(payload), offload, features, Some(1500)).unwrap();
            let wire = WireSize { frames: 3, bytes: 3 * 54 + 2500 };
            assert_eq!((planned.input, planned.output), (wire, wire));
            // An egress of MTU 540 takes 500 payload bytes a frame.
            let planned = plan(&mut tcp4(payload), offload, features, Some(540)).unwrap();
            assert_eq!(planned.output, WireSize { frames: 5, bytes: 5 * 54 + 2500 });
        }
    }

    #[test]
    fn metadata_that_a_kernel_refuses_is_made_acceptable() {
        // No unfinished checksum told: it is begun. One segment only: it is no super-frame.
        for (size, frames) in [(1000, 3), (3000, 1), (2500, 1)] {
            let mut frame = tcp4(2500);
            let offload = Offload { checksum: None, super_frame: super_frame(size) };
            let planned = plan(&mut frame, offload, Features::ALL, None).unwrap();
            let Plan::Whole(offload) = planned.plan else { panic!("it passes whole") };
            assert_eq!(offload.checksum, Some(UNFINISHED));
            assert_eq!(offload.super_frame.is_some(), frames > 1);
            assert_eq!(planned.output.frames, frames);
        }
    }

    #[test]
    fn a_super_frame_without_payload_is_one_frame() {
        let offload = Offload { checksum: Some(UNFINISHED), super_frame: super_frame(1000) };
        let planned = plan(&mut tcp4(0), offload, Features::NONE, Some(1500)).unwrap();
        assert!(matches!(planned.plan, Plan::Whole(_)));
        assert_eq!(planned.output.frames, 1);
    }

    #[test]
    fn what_the_egress_lacks_is_done_in_software() {
        let ecn = SuperFrame { ecn: true, ..super_frame(1000).unwrap() };
        let offload = Offload { checksum: Some(UNFINISHED), super_frame: Some(ecn) };
        for features in [
            Features { ecn: false, ..Features::ALL },
            Features { tso4: false, ..Features::ALL },
            Features { checksum: false, ..Features::ALL },
        ] {
            let planned = plan(&mut tcp4(2500), offload, features, None).unwrap();
            assert!(matches!(planned.plan, Plan::Cut(_)), "{features:?}");
        }
        let others = Features { tso6: false, uso: false, ..Features::ALL };
        assert!(matches!(plan(&mut tcp4(2500), offload, others, None).unwrap().plan, Plan::Whole(_)));
    }

    #[test]
    fn no_room_for_payload_is_too_big() {
        let offload = Offload { checksum: Some(UNFINISHED), super_frame: super_frame(1000) };
        assert_eq!(plan(&mut tcp4(2500), offload, Features::ALL, Some(40)).unwrap_err(), DropReason::TooBig);
    }
}
