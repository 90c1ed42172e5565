//! What a frame needs before an egress can take it.

use crate::wire::headers::{HeaderError, Headers, IpVersion, Transport};
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

/// A frame that cannot be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unplannable {
    /// Why.
    pub reason: DropReason,
    /// What came in; one frame where its pieces could not be told.
    pub input: WireSize,
}

/// Plans `frame` for an egress that takes `features` as they are and packets of at most `mtu` bytes, and does
/// to the frame what must be done before the first byte leaves.
///
/// # Errors
/// The reason for which it cannot be forwarded.
pub fn plan(frame: &mut [u8], offload: Offload, features: Features, mtu: Option<u32>) -> Result<Planned, Unplannable> {
    let mut input = WireSize::one(frame);
    let planned = match offload.super_frame {
        Some(super_frame) => plan_super_frame(frame, offload, super_frame, features, mtu, &mut input),
        None => plan_frame(frame, offload, features),
    };
    planned.map_err(|reason| Unplannable { reason, input })
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
    input: &mut WireSize,
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

    *input = pieces(frame, &headers, super_frame.segment_size);
    let whole = features.take(&super_frame);
    let room = mtu.map(|mtu| room_for_payload(frame, &headers, mtu, whole)).transpose()?;
    let segment_size = fitting_size(super_frame, frame.len() - headers.payload_at, room)?;
    let output = pieces(frame, &headers, segment_size);
    let single = output.frames == 1;
    if single || whole {
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
        return Ok(Planned { plan, input: *input, output, finished: false });
    }
    let cutter = Cutter::new(frame, headers, segment_size, offload.checksum.is_some(), super_frame.accurate_ecn);
    Ok(Planned { plan: Plan::Cut(cutter), input: *input, output, finished: true })
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

/// How many payload bytes of each piece fit a packet of `mtu` bytes.
///
/// Tags are carried on top of the MTU. But a packet socket takes a single frame longer than the MTU only for an
/// outer 802.1Q tag (`packet_extra_vlan_len_allowed`, net/packet/af_packet.c), so pieces must do with that.
fn room_for_payload(frame: &[u8], headers: &Headers, mtu: u32, whole: bool) -> Result<usize, DropReason> {
    let on_top = if whole {
        headers.ip_at
    } else if frame.get(12..14) == Some(&[0x81, 0x00]) {
        ETHERNET_LEN + VLAN_TAG_LEN
    } else {
        ETHERNET_LEN
    };
    let room = (mtu as usize + on_top).checked_sub(headers.payload_at);
    room.filter(|&room| room > 0).ok_or(DropReason::TooBig)
}

/// The kernel's segment size, or less where such a segment does not fit. A byte stream may be cut anew;
/// datagrams may not, and nobody else would refuse them: neither a packet socket nor a TAP looks at the size of
/// a super-frame's pieces.
fn fitting_size(super_frame: SuperFrame, payload: usize, room: Option<usize>) -> Result<u16, DropReason> {
    let size = super_frame.segment_size;
    let Some(room) = room.filter(|&room| room < usize::from(size).min(payload)) else { return Ok(size) };
    match super_frame.kind {
        SuperFrameKind::Udp => Err(DropReason::TooBig),
        SuperFrameKind::Tcp4 | SuperFrameKind::Tcp6 => Ok(u16::try_from(room).unwrap_or(u16::MAX)),
    }
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
    fn datagrams_are_not_cut_anew() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
        builder.write(&mut frame, &[7; 5000]).unwrap();
        let super_frame = Some(SuperFrame {
            kind: SuperFrameKind::Udp,
            segment_size: 2000,
            ecn: false,
            accurate_ecn: false,
            header_len: 0,
        });
        let offload = Offload { checksum: Some(PartialChecksum { start: 34, offset: 6 }), super_frame };
        for features in [Features::ALL, Features::NONE] {
            let refused = plan(&mut frame.clone(), offload, features, Some(1500)).unwrap_err();
            let input = WireSize { frames: 3, bytes: 5000 + 3 * 42 };
            assert_eq!(refused, Unplannable { reason: DropReason::TooBig, input });
            assert_eq!(plan(&mut frame.clone(), offload, features, Some(2028)).unwrap().output.frames, 3);
        }
    }

    #[test]
    fn tags_are_carried_on_top_of_the_mtu_where_the_egress_takes_them() {
        let untagged = tcp4(5000);
        // Payload bytes of each piece at an MTU of 1500: whole, and cut.
        for (tags, whole, cut) in [
            (&[][..], 1460, 1460),
            (&[[0x81, 0, 0, 7]], 1460, 1460),
            (&[[0x88, 0xa8, 0, 7]], 1460, 1456),
            (&[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 8]], 1460, 1452),
        ] {
            let tagged = [&untagged[..12], &tags.concat(), &untagged[12..]].concat();
            let start = u16::try_from(34 + 4 * tags.len()).unwrap();
            let offload =
                Offload { checksum: Some(PartialChecksum { start, offset: 16 }), super_frame: super_frame(4000) };
            let planned = plan(&mut tagged.clone(), offload, Features::ALL, Some(1500)).unwrap();
            let Plan::Whole(Offload { super_frame: Some(passed), .. }) = planned.plan else { panic!("{tags:?}") };
            assert_eq!(passed.segment_size, whole, "{tags:?}");
            let mut frame = tagged.clone();
            let planned = plan(&mut frame, offload, Features::NONE, Some(1500)).unwrap();
            let Plan::Cut(mut cutter) = planned.plan else { panic!("{tags:?}") };
            let first = cutter.next_segment(&mut frame).unwrap();
            assert_eq!(first.len(), 54 + 4 * tags.len() + cut, "{tags:?}");
        }
    }

    #[test]
    fn no_room_for_payload_is_too_big() {
        let offload = Offload { checksum: Some(UNFINISHED), super_frame: super_frame(1000) };
        assert_eq!(plan(&mut tcp4(2500), offload, Features::ALL, Some(40)).unwrap_err().reason, DropReason::TooBig);
    }
}
