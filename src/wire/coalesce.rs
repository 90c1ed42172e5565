//! Merging: TCP segments, or UDP datagrams, that follow each other become a super-frame, as GRO makes them.
//!
//! A merged frame can be cut back into the very frames it was made of, so the rules are the kernel's
//! (`tcp_gro_receive` in net/ipv4/tcp_offload.c, `udp_gro_receive` in net/ipv4/udp_offload.c, `inet_gro_receive`
//! in net/ipv4/af_inet.c, `ipv6_gro_receive` in net/ipv6/ip6_offload.c), and stricter where a cut could not
//! restore what a merge would forget: IPv4 identifications must count up.

use super::checksum::Sum;
use super::headers::{Headers, IpVersion, Transport};
use super::offload::{Features, Offload, PartialChecksum, SuperFrame, SuperFrameKind};
use super::segment::{
    TCP_CWR, TCP_FIN, TCP_FLAGS, TCP_PSH, TCP_RST, TCP_SYN, TCP_URG, begin_checksum, fit_ip_header, length_field,
    pseudo_header,
};
use super::{read_u16, read_u32, write_u16};

/// The longest merged frame. Below the limit of an IP packet, as some drivers want room for headers of their
/// own in front of a super-frame.
const MAX_MERGED_LEN: usize = 65_535 - 160;

/// The most datagrams that every kernel cuts a super-frame into (`UDP_MAX_SEGMENTS` before Linux 6.9).
const MAX_DATAGRAMS: u16 = 64;

/// A segment that others may be appended to.
#[derive(Debug)]
pub struct Merger {
    headers: Headers,
    /// The metadata of the first segment.
    offload: Offload,
    segment_size: usize,
    segments: u16,
    /// Nothing may follow: the last segment was short, or carried FIN or PSH.
    closed: bool,
}

impl Merger {
    /// Begins with `frame`, if it is a segment that another one could follow to make what `features` take.
    #[must_use]
    pub fn begin(frame: &[u8], offload: Offload, features: Features) -> Option<Self> {
        let headers = segment_headers(frame, offload)?;
        let taken = match (headers.transport, headers.ip) {
            (Transport::Udp, _) => features.uso,
            (_, IpVersion::V4) => features.tso4,
            (_, IpVersion::V6) => features.tso6,
        };
        if !(taken && features.checksum && features.merge) || ends(frame, &headers) {
            return None;
        }
        let segment_size = frame.len() - headers.payload_at;
        Some(Self { headers, offload, segment_size, segments: 1, closed: false })
    }

    /// The part of `next` to append to `frame`, if it is the segment that follows: its payload.
    ///
    /// The caller appends it; `frame` takes over its FIN and PSH at once.
    pub fn follow<'a>(&mut self, frame: &mut [u8], next: &'a [u8], offload: Offload) -> Option<&'a [u8]> {
        let payload = next.get(self.headers.payload_at..)?;
        let fits = payload.len() <= self.segment_size && frame.len() + payload.len() <= MAX_MERGED_LEN;
        let full = self.headers.transport == Transport::Udp && self.segments == MAX_DATAGRAMS;
        if self.closed || full || !fits || segment_headers(next, offload) != Some(self.headers) {
            return None;
        }
        if !self.continues(frame, next) || !is_intact(next, &self.headers, offload) {
            return None;
        }
        // Only now is the first one summed: many have nothing to follow them.
        if !self.has_merged() && !is_intact(frame, &self.headers, self.offload) {
            return None;
        }
        if self.headers.transport == Transport::Tcp {
            let flags_at = self.headers.transport_at + TCP_FLAGS;
            frame[flags_at] |= next[flags_at] & (TCP_FIN | TCP_PSH);
        }
        self.closed = ends(next, &self.headers) || payload.len() < self.segment_size;
        self.segments += 1;
        Some(payload)
    }

    /// Whether the headers of `next` are those of the segment behind `frame`.
    fn continues(&self, frame: &[u8], next: &[u8]) -> bool {
        let Headers { ip, ip_at, transport_at, payload_at, .. } = self.headers;
        let same = |range: std::ops::Range<usize>| frame.get(range.clone()) == next.get(range);
        let same_ip = match ip {
            // All but total length, identification and checksum.
            IpVersion::V4 => {
                let follows = |id: u16| read_u16(next, ip_at + 4) == Some(id.wrapping_add(self.segments));
                same(0..ip_at + 2)
                    && same(ip_at + 6..ip_at + 10)
                    && same(ip_at + 12..transport_at)
                    && read_u16(frame, ip_at + 4).is_some_and(follows)
            }
            // All but payload length.
            IpVersion::V6 => same(0..ip_at + 4) && same(ip_at + 6..transport_at),
        };
        if self.headers.transport == Transport::Udp {
            // All but length and checksum.
            return same_ip && same(transport_at..transport_at + 4);
        }
        // All but sequence number, FIN, PSH and checksum.
        let flags = |frame: &[u8]| frame.get(transport_at + TCP_FLAGS).map(|flags| flags & !(TCP_FIN | TCP_PSH));
        let same_tcp = same(transport_at..transport_at + 4)
            && same(transport_at + 8..transport_at + TCP_FLAGS)
            && same(transport_at + TCP_FLAGS + 1..transport_at + 16)
            && same(transport_at + 18..payload_at)
            && flags(frame) == flags(next);
        same_ip && same_tcp && read_u32(next, transport_at + 4) == self.end_of(frame)
    }

    /// The sequence number behind the last byte of `frame`.
    fn end_of(&self, frame: &[u8]) -> Option<u32> {
        let payload = u32::try_from(frame.len() - self.headers.payload_at).ok()?;
        Some(read_u32(frame, self.headers.transport_at + 4)?.wrapping_add(payload))
    }

    /// Whether anything was appended.
    #[must_use]
    pub fn has_merged(&self) -> bool {
        self.segments > 1
    }

    /// Completes the headers of the merged `frame` and returns its metadata; those it came with, where
    /// nothing was appended.
    #[must_use]
    pub fn complete(self, frame: &mut [u8]) -> Offload {
        if !self.has_merged() {
            return self.offload;
        }
        let Headers { ip, transport, transport_at, payload_at, .. } = self.headers;
        let kind = match (transport, ip) {
            (Transport::Udp, _) => SuperFrameKind::Udp,
            (_, IpVersion::V4) => SuperFrameKind::Tcp4,
            (_, IpVersion::V6) => SuperFrameKind::Tcp6,
        };
        if transport == Transport::Udp {
            write_u16(frame, transport_at + 4, length_field(frame.len() - transport_at));
        }
        fit_ip_header(frame, &self.headers);
        begin_checksum(frame, &self.headers);
        let [start, offset, header_len, segment_size] =
            [transport_at, transport.checksum_offset(), payload_at, self.segment_size].map(length_field);
        Offload {
            checksum: Some(PartialChecksum { start, offset }),
            super_frame: Some(SuperFrame { kind, segment_size, ecn: false, accurate_ecn: false, header_len }),
        }
    }
}

/// Whether a segment says of itself that it is the last of a burst.
fn ends(frame: &[u8], headers: &Headers) -> bool {
    headers.transport == Transport::Tcp
        && frame.get(headers.transport_at + TCP_FLAGS).is_some_and(|flags| flags & (TCP_PSH | TCP_FIN) != 0)
}

/// The headers of a TCP segment or UDP datagram with payload that may be part of a super-frame.
#[inline]
fn segment_headers(frame: &[u8], offload: Offload) -> Option<Headers> {
    if offload.super_frame.is_some() {
        return None;
    }
    let headers = Headers::parse(frame).ok()?;
    let at = headers.transport_at;
    let fits_ip = match headers.ip {
        IpVersion::V4 => read_u16(frame, headers.ip_at + 2)? == length_field(frame.len() - headers.ip_at),
        IpVersion::V6 => {
            let length = (frame.len() - headers.ip_at).checked_sub(40)?;
            read_u16(frame, headers.ip_at + 4)? == length_field(length)
        }
    };
    let may_be_merged = match headers.transport {
        Transport::Tcp => frame.get(at + TCP_FLAGS)? & (TCP_SYN | TCP_RST | TCP_URG | TCP_CWR) == 0,
        // Without a checksum, each would get one from whoever cuts it.
        Transport::Udp => {
            read_u16(frame, at + 4)? == length_field(frame.len() - at)
                && (offload.checksum.is_some() || read_u16(frame, at + 6)? != 0)
        }
        Transport::Sctp => false,
    };
    let has_payload = headers.payload_at < frame.len() && frame.len() <= MAX_MERGED_LEN;
    (has_payload && fits_ip && may_be_merged).then_some(headers)
}

/// Whether the checksums are right; a transport checksum that is still to be finished counts as right.
fn is_intact(frame: &[u8], headers: &Headers, offload: Offload) -> bool {
    let (at, end) = (headers.transport_at, frame.len());
    // 0xffff stands for 0 as well, but only UDP writes it so; a cut would give back the other one.
    let canonical = |at: usize| read_u16(frame, at) != Some(0xffff);
    let header = headers.ip == IpVersion::V6
        || (Sum::default().bytes(&frame[headers.ip_at..at]).fold() == 0xffff && canonical(headers.ip_at + 10));
    let transport = match offload.checksum {
        Some(unfinished) => {
            (usize::from(unfinished.start), usize::from(unfinished.offset)) == (at, headers.transport.checksum_offset())
        }
        None => {
            pseudo_header(frame, headers).number(length_field(end - at)).bytes(&frame[at..]).fold() == 0xffff
                && (headers.transport == Transport::Udp || canonical(at + headers.transport.checksum_offset()))
        }
    };
    header && transport
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::segment::Cutter;
    use etherparse::{PacketBuilder, PacketBuilderStep, TcpHeader};
    use proptest::prelude::*;

    fn write(tcp: PacketBuilderStep<TcpHeader>, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        tcp.write(&mut frame, payload).unwrap();
        frame
    }

    fn tcp(v6: bool, sequence: u32) -> PacketBuilderStep<TcpHeader> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 { ethernet.ipv6([1; 16], [2; 16], 64) } else { ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        ip.tcp(1000, 2000, sequence, 500).ack(3)
    }

    /// Frames as a kernel would cut them.
    fn segments(v6: bool, flags: u8, payload: &[u8], size: u16) -> Vec<Vec<u8>> {
        let mut whole = write(tcp(v6, 7).options_raw(&[1; 12]).unwrap(), payload);
        let headers = Headers::parse(&whole).unwrap();
        whole[headers.transport_at + TCP_FLAGS] |= flags;
        let mut cutter = Cutter::new(&whole, headers, size, false, false);
        let mut pieces = Vec::new();
        while let Some(range) = cutter.next_segment(&mut whole) {
            pieces.push(whole[range].to_vec());
        }
        pieces
    }

    /// Datagrams of one flow, as a kernel would cut them.
    fn datagrams(v6: bool, payload: &[u8], size: u16) -> Vec<Vec<u8>> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 { ethernet.ipv6([1; 16], [2; 16], 64) } else { ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let mut whole = Vec::new();
        ip.udp(1000, 2000).write(&mut whole, payload).unwrap();
        let headers = Headers::parse(&whole).unwrap();
        let mut cutter = Cutter::new(&whole, headers, size, false, false);
        let mut pieces = Vec::new();
        while let Some(range) = cutter.next_segment(&mut whole) {
            pieces.push(whole[range].to_vec());
        }
        pieces
    }

    /// Merges what can be merged, as a direction does.
    fn merge(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
        let mut merged = Vec::new();
        let mut rest = frames.iter();
        let mut held = rest.next().cloned();
        while let Some(mut frame) = held.take() {
            let mut merger = Merger::begin(&frame, Offload::default(), Features::ALL);
            for next in rest.by_ref() {
                let appended = merger.as_mut().and_then(|m| m.follow(&mut frame, next, Offload::default()));
                let Some(payload) = appended else {
                    held = Some(next.clone());
                    break;
                };
                frame.extend_from_slice(payload);
            }
            let offload = merger.map_or_else(Offload::default, |m| m.complete(&mut frame));
            merged.push((frame, offload));
        }
        merged
    }

    /// Cuts what was merged.
    fn cut(merged: Vec<(Vec<u8>, Offload)>) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for (mut frame, offload) in merged {
            let Some(super_frame) = offload.super_frame else {
                frames.push(frame);
                continue;
            };
            let headers = Headers::parse(&frame).unwrap();
            let mut cutter = Cutter::new(&frame, headers, super_frame.segment_size, true, false);
            while let Some(range) = cutter.next_segment(&mut frame) {
                frames.push(frame[range].to_vec());
            }
        }
        frames
    }

    proptest! {
        #[test]
        fn cutting_what_was_merged_gives_the_very_frames(
            (v6, psh) in any::<(bool, bool)>(),
            size in 1u16..1449,
            payload in proptest::collection::vec(any::<u8>(), 1..20_000),
        ) {
            let frames = segments(v6, if psh { TCP_PSH } else { 0 }, &payload, size);
            let merged = merge(&frames);
            prop_assert!(merged.len() == 1 || frames.len() > 1);
            prop_assert_eq!(merged.len(), 1, "all of one flow, all in order");
            prop_assert_eq!(cut(merged), frames);
        }

        #[test]
        fn cutting_merged_datagrams_gives_the_very_datagrams(
            v6: bool,
            size in 1u16..1473,
            payload in proptest::collection::vec(any::<u8>(), 1..20_000),
        ) {
            let frames = datagrams(v6, &payload, size);
            let merged = merge(&frames);
            prop_assert_eq!(merged.len(), frames.len().div_ceil(64), "all of one flow, all in order");
            prop_assert_eq!(cut(merged), frames);
        }

        #[test]
        fn whatever_comes_in_comes_out_the_same(
            v6: bool,
            choices in proptest::collection::vec((0usize..12, any::<u8>()), 0..60),
        ) {
            // Segments of two flows, each with some byte of its headers or payload changed now and then.
            let payload: Vec<u8> = (0..=255).cycle().take(6000).collect();
            let mut sources = [segments(v6, 0, &payload, 500), segments(v6, TCP_PSH, &payload[..5000], 500)];
            for frame in &mut sources[1] {
                frame[11] = 9;
            }
            let mut frames = Vec::new();
            let mut at = [0, 0];
            for (choice, change) in choices {
                let flow = choice % 2;
                let Some(mut frame) = sources[flow].get(at[flow]).cloned() else { continue };
                at[flow] += 1;
                if choice > 9 {
                    let place = 14 + usize::from(change) % 80;
                    frame[place] = frame[place].wrapping_add(1);
                }
                frames.push(frame);
            }
            prop_assert_eq!(cut(merge(&frames)), frames);
        }
    }

    #[test]
    fn what_the_kernel_does_not_merge_is_not_merged() {
        let pair = segments(false, 0, &[7; 2000], 1000);
        assert_eq!(merge(&pair).len(), 1);
        // Each change is made to the second segment, with its checksums made right again.
        type Change = (&'static str, fn(&mut Vec<u8>));
        let changes: [Change; 12] = [
            ("another address", |frame| frame[29] = 77),
            ("another type of service", |frame| frame[15] = 4),
            ("another time to live", |frame| frame[22] = 63),
            ("may be fragmented", |frame| frame[20] ^= 0x40),
            ("a gap in identifications", |frame| frame[19] = 9),
            ("another port", |frame| frame[35] = 1),
            ("a gap in the sequence", |frame| frame[41] ^= 1),
            ("another acknowledgement", |frame| frame[45] ^= 1),
            ("SYN", |frame| frame[47] |= TCP_SYN),
            ("CWR", |frame| frame[47] |= TCP_CWR),
            ("another window", |frame| frame[49] ^= 1),
            ("another option", |frame| frame[60] = 2),
        ];
        for (what, change) in changes {
            let mut frames = pair.clone();
            change(&mut frames[1]);
            restore_checksums(&mut frames[1]);
            assert_eq!(merge(&frames).len(), 2, "{what}");
        }
        for at in [24, 50, 100] {
            let mut frames = pair.clone();
            frames[1][at] ^= 1;
            assert_eq!(merge(&frames).len(), 2, "a wrong checksum at {at}");
        }
        let mut padded = pair.clone();
        padded[1].push(0);
        assert_eq!(merge(&padded).len(), 2, "bytes behind the packet");
        let longer = [segments(false, 0, &[7; 500], 500), segments(false, 0, &[7; 2000], 1000)].concat();
        assert_eq!(merge(&longer[..2]).len(), 2, "a longer one after a shorter one");
    }

    #[test]
    fn datagrams_are_merged_only_where_a_cut_gives_them_back() {
        let pair = datagrams(false, &[7; 2000], 1000);
        assert_eq!(merge(&pair).len(), 1);
        type Change = (&'static str, fn(&mut Vec<u8>));
        let changes: [Change; 6] = [
            ("another address", |frame| frame[29] = 77),
            ("a gap in identifications", |frame| frame[19] = 9),
            ("another port", |frame| frame[35] = 1),
            ("another length", |frame| frame[39] -= 1),
            ("no checksum", |frame| frame[40..42].fill(0)),
            ("a wrong checksum", |frame| frame[50] ^= 1),
        ];
        for (what, change) in changes {
            let mut frames = pair.clone();
            change(&mut frames[1]);
            write_u16(&mut frames[1], 24, 0);
            let checksum = Sum::default().bytes(&frames[1][14..34]).checksum();
            write_u16(&mut frames[1], 24, checksum);
            assert_eq!(merge(&frames).len(), 2, "{what}");
        }
        let longer = [datagrams(false, &[7; 500], 500), datagrams(false, &[7; 2000], 1000)].concat();
        assert_eq!(merge(&longer[..2]).len(), 2, "a longer one after a shorter one");
    }

    #[test]
    fn a_checksum_of_0_may_not_be_written_as_ffff() {
        let mut pair = segments(false, 0, &[0; 2000], 1000);
        // The word that makes the sum come out right for a checksum of 0 (options of 12 bytes lie before the payload).
        let checksum = read_u16(&pair[1], 50).unwrap();
        write_u16(&mut pair[1], 66, checksum);
        write_u16(&mut pair[1], 50, 0);
        assert_eq!(merge(&pair).len(), 1);
        write_u16(&mut pair[1], 50, 0xffff);
        assert_eq!(merge(&pair).len(), 2, "it would come back as 0");
    }

    fn restore_checksums(frame: &mut [u8]) {
        let headers = Headers::parse(frame).unwrap();
        write_u16(frame, 24, 0);
        let checksum = Sum::default().bytes(&frame[14..34]).checksum();
        write_u16(frame, 24, checksum);
        begin_checksum(frame, &headers);
        let unfinished = PartialChecksum { start: 34, offset: 16 };
        crate::wire::segment::finish_checksum(frame, unfinished).unwrap();
    }
}
