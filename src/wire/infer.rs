//! What a frame is that nobody describes: libpcap tells neither the segment size of a super-frame nor whether its
//! checksum is finished, and a peer may send what its NIC merged.

use super::flows::FlowTable;
use super::headers::{Headers, IpVersion, Transport};
use super::offload::{Offload, PartialChecksum, SuperFrame, SuperFrameKind};
use super::read_u16;
use super::segment::{TCP_CWR, TCP_FLAGS, TCP_RST, TCP_SYN, TCP_URG, length_field, pseudo_header};

/// Where the IP packet ends; behind it there may be padding.
fn end_of_packet(frame: &[u8], headers: &Headers) -> Option<usize> {
    let (field, without) = match headers.ip {
        IpVersion::V4 => (headers.ip_at + 2, 0),
        IpVersion::V6 => (headers.ip_at + 4, 40),
    };
    let end = headers.ip_at + usize::from(read_u16(frame, field)?) + without;
    (headers.payload_at..=frame.len()).contains(&end).then_some(end)
}

/// The unfinished checksum of `frame`: one that is no more than the pseudo-header's sum. (Where a finished one is the same
/// by chance, finishing it again changes nothing.)
///
/// Zeros behind the `end` of the packet do not change a sum.
fn unfinished_checksum(frame: &[u8], headers: &Headers, end: usize) -> Option<PartialChecksum> {
    if headers.transport == Transport::Sctp || frame[end..].iter().any(|&byte| byte != 0) {
        return None;
    }
    let (start, offset) = (headers.transport_at, headers.transport.checksum_offset());
    let begun = pseudo_header(frame, headers).number(length_field(end - start)).fold();
    let field = read_u16(frame, start + offset)?;
    let unfinished = PartialChecksum { start: u16::try_from(start).ok()?, offset: u16::try_from(offset).ok()? };
    // A datagram may go without.
    (field == begun && field != 0).then_some(unfinished)
}

/// How `frame` is to be cut, where it is TCP with more payload than one segment of its flow has, or than fits a packet of
/// `mtu` bytes. Learns from it where it is one segment.
fn super_frame(frame: &[u8], headers: &Headers, flows: &mut FlowTable, mtu: u32) -> Option<SuperFrame> {
    let payload = frame.len() - headers.payload_at;
    let flags = *frame.get(headers.transport_at + TCP_FLAGS)?;
    // Nobody merges those.
    if headers.transport != Transport::Tcp || payload == 0 || flags & (TCP_SYN | TCP_RST | TCP_URG) != 0 {
        return None;
    }
    let room = (mtu as usize).checked_sub(headers.payload_at - headers.ip_at).filter(|&room| room > 0)?;
    let known = flows.segment_size(frame, headers);
    let size = match known.announced {
        Some(announced) => announced.min(room),
        // What was seen may be little because there was little to send, so it alone makes no frame too long.
        None if payload > room => known.seen.unwrap_or(room).min(room),
        None => room,
    };
    if payload <= size {
        if known.announced.is_none() {
            flows.learn_segment(frame, headers);
        }
        return None;
    }
    let kind = if headers.ip == IpVersion::V4 { SuperFrameKind::Tcp4 } else { SuperFrameKind::Tcp6 };
    let segment_size = u16::try_from(size).ok()?;
    Some(SuperFrame { kind, segment_size, ecn: flags & TCP_CWR != 0, accurate_ecn: false, header_len: 0 })
}

/// What `frame` is, as far as it tells: how it is to be cut for packets of at most `mtu` bytes, the length that those of
/// its wire have, and whether its checksum is unfinished. Learns from it what it says of its flow.
#[must_use]
pub fn infer(frame: &[u8], flows: &mut FlowTable, mtu: u32) -> Offload {
    let Ok(headers) = Headers::parse(frame) else { return Offload::default() };
    flows.learn_syn(frame, &headers);
    let Some(end) = end_of_packet(frame, &headers) else { return Offload::default() };
    let checksum = unfinished_checksum(frame, &headers, end);
    // A merged frame has no padding.
    let super_frame = if end == frame.len() { super_frame(frame, &headers, flows, mtu) } else { None };
    Offload { checksum, super_frame }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::segment::{self, Cutter};
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    fn tcp(payload: usize) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 3, 4)
            .options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
            .unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, &vec![7; payload]).unwrap();
        frame
    }

    /// The receiver of [`tcp`] announces an MSS.
    fn announce(flows: &mut FlowTable, mss: u16) {
        let builder = PacketBuilder::ethernet2([4; 6], [2; 6])
            .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
            .tcp(2, 1, 3, 4)
            .syn()
            .options(&[TcpOptionElement::MaximumSegmentSize(mss)])
            .unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, &[]).unwrap();
        assert_eq!(infer(&frame, flows, 1500), Offload::default());
    }

    fn size(frame: &[u8], flows: &mut FlowTable) -> Option<u16> {
        infer(frame, flows, 1500).super_frame.map(|super_frame| super_frame.segment_size)
    }

    #[test]
    fn a_frame_within_the_mtu_is_cut_where_its_receiver_announced_less() {
        let mut flows = FlowTable::default();
        announce(&mut flows, 1410);
        assert_eq!(size(&tcp(1398), &mut flows), None);
        assert_eq!(size(&tcp(1448), &mut flows), Some(1398));
        assert_eq!(size(&tcp(40_000), &mut flows), Some(1398));
        // More than the wire takes it cannot have been.
        announce(&mut flows, 8960);
        assert_eq!(size(&tcp(40_000), &mut flows), Some(1448));
    }

    #[test]
    fn without_an_announcement_earlier_segments_tell_and_then_the_mtu() {
        let mut flows = FlowTable::default();
        assert_eq!(size(&tcp(40_000), &mut flows), Some(1448));
        assert_eq!(size(&tcp(1200), &mut flows), None);
        assert_eq!(size(&tcp(40_000), &mut flows), Some(1200));
        assert_eq!(size(&tcp(1448), &mut flows), None, "it fits, and may be the first full one");
        assert_eq!(size(&tcp(40_000), &mut flows), Some(1448));
    }

    #[test]
    fn what_nobody_merges_and_what_is_padded_is_left_alone() {
        let mut flows = FlowTable::default();
        for flag in [TCP_SYN, TCP_RST, TCP_URG] {
            let mut frame = tcp(3000);
            frame[34 + TCP_FLAGS] |= flag;
            assert_eq!(infer(&frame, &mut flows, 1500).super_frame, None);
        }
        let mut frame = tcp(3000);
        frame.push(0);
        assert_eq!(infer(&frame, &mut flows, 1500), Offload::default());
    }

    #[test]
    fn an_unfinished_checksum_is_told_from_a_finished_one() {
        let mut flows = FlowTable::default();
        let builder = |v6: bool| {
            let start = PacketBuilder::ethernet2([2; 6], [4; 6]);
            if v6 { start.ipv6([1; 16], [2; 16], 64) } else { start.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) }
        };
        for (v6, udp, payload) in [(false, false, 9), (true, false, 10), (false, true, 9), (true, true, 1000)] {
            let payload = vec![9; payload];
            let mut finished = Vec::new();
            if udp {
                builder(v6).udp(5, 6).write(&mut finished, &payload).unwrap();
            } else {
                builder(v6).tcp(5, 6, 7, 8).write(&mut finished, &payload).unwrap();
            }
            assert_eq!(infer(&finished, &mut flows, 1500), Offload::default());
            let mut frame = finished.clone();
            segment::begin_checksum(&mut frame, &Headers::parse(&finished).unwrap());
            let unfinished = infer(&frame, &mut flows, 1500).checksum.expect("unfinished");
            segment::finish_checksum(&mut frame, unfinished).unwrap();
            assert_eq!(frame, finished);
            // Padded on its way.
            segment::begin_checksum(&mut frame, &Headers::parse(&finished).unwrap());
            frame.extend([0; 5]);
            let unfinished = infer(&frame, &mut flows, 1500).checksum.expect("unfinished");
            segment::finish_checksum(&mut frame, unfinished).unwrap();
            assert_eq!(frame[..finished.len()], finished);
        }
        let mut without = Vec::new();
        builder(false).udp(5, 6).write(&mut without, &[1; 9]).unwrap();
        without[40..42].fill(0);
        assert_eq!(infer(&without, &mut flows, 1500), Offload::default(), "a datagram without a checksum");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_pieces_fit_the_mtu(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..4000),
            v6: bool, tcp: bool, mtu in 0u32..3000, mss: u16,
        ) {
            let mut flows = FlowTable::default();
            announce(&mut flows, mss);
            if bytes.len() > 60 {
                bytes[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
                bytes[14] = if v6 { 0x60 } else { 0x45 };
                bytes[if v6 { 20 } else { 23 }] = if tcp { 6 } else { 17 };
                bytes[20..22].fill(0);
                let length = u16::try_from(bytes.len() - if v6 { 54 } else { 14 }).unwrap();
                bytes[if v6 { 18..20 } else { 16..18 }].copy_from_slice(&length.to_be_bytes());
            }
            let offload = infer(&bytes, &mut flows, mtu);
            if let Some(super_frame) = offload.super_frame {
                let headers = Headers::parse(&bytes).unwrap();
                let mut cutter = Cutter::new(&bytes, headers, super_frame.segment_size, offload.checksum.is_some(), false);
                let mut pieces = 0;
                while let Some(range) = cutter.next_segment(&mut bytes) {
                    prop_assert!(range.len() <= mtu as usize + headers.ip_at);
                    pieces += 1;
                }
                prop_assert!(pieces > 1);
            }
        }
    }
}
