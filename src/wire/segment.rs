//! The cutter: a super-frame becomes the frames that Linux would have put on the wire.
//!
//! It works in place and copies no payload. The first segment is the start of the super-frame with its
//! headers amended; for each next one the headers move along the payload to stand right before the next
//! piece, over payload that has been sent already. So at any time exactly one segment is whole in the
//! buffer, and a segment that could not be sent stays there until it can.
//!
//! Rules as in Linux: `tcp_gso_segment` (net/ipv4/tcp_offload.c), `__udp_gso_segment`
//! (net/ipv4/udp_offload.c), `inet_gso_segment` (net/ipv4/af_inet.c), `ipv6_gso_segment`
//! (net/ipv6/ip6_offload.c).

use std::ops::Range;

use super::checksum::{Sum, crc32c};
use super::headers::{Headers, IpVersion, Transport};
use super::offload::PartialChecksum;
use super::{read_u16, read_u32, write_u16};

pub(super) const TCP_FLAGS: usize = 13;
pub(super) const TCP_FIN: u8 = 0x01;
pub(super) const TCP_SYN: u8 = 0x02;
pub(super) const TCP_RST: u8 = 0x04;
pub(super) const TCP_PSH: u8 = 0x08;
pub(super) const TCP_URG: u8 = 0x20;
pub(super) const TCP_CWR: u8 = 0x80;

/// Cuts one super-frame. It holds no reference to the frame, so a caller can keep both between two sends.
#[derive(Debug, Clone)]
pub struct Cutter {
    headers: Headers,
    segment_size: usize,
    frame_len: usize,
    /// Payload of the next segment starts here.
    next_at: usize,
    /// The headers, as last used, start here.
    headers_at: usize,
    /// The transport checksum's share that all segments have in common, without the length.
    pseudo: Sum,
    identification: u16,
    sequence: u32,
    tcp_flags: u8,
    accurate_ecn: bool,
}

impl Cutter {
    /// Prepares to cut `frame`, whose headers are `headers`, into pieces of `segment_size` payload bytes.
    ///
    /// `unfinished` says that the checksum field holds the pseudo-header's sum. It is built upon then, as
    /// Linux does, so that a routing header's final destination stays accounted for; otherwise the field's
    /// content is ignored. `accurate_ecn` keeps CWR on every segment instead of the first alone.
    #[must_use]
    pub fn new(frame: &[u8], headers: Headers, segment_size: u16, unfinished: bool, accurate_ecn: bool) -> Self {
        let at = headers.transport_at;
        let length = length_field(frame.len() - at);
        let pseudo = if unfinished {
            let field = read_u16(frame, at + headers.transport.checksum_offset()).unwrap_or_default();
            Sum::default().number(field).without(length)
        } else {
            pseudo_header(frame, &headers)
        };
        Self {
            headers,
            segment_size: usize::from(segment_size.max(1)),
            frame_len: frame.len(),
            next_at: headers.payload_at,
            headers_at: 0,
            pseudo,
            identification: read_u16(frame, headers.ip_at + 4).unwrap_or_default(),
            sequence: read_u32(frame, at + 4).unwrap_or_default(),
            tcp_flags: frame.get(at + TCP_FLAGS).copied().unwrap_or_default(),
            accurate_ecn,
        }
    }

    /// Builds the next segment within `frame` and says where it is; `None` after the last.
    ///
    /// `frame` must be the buffer of [`Cutter::new`], as the cutter left it.
    pub fn next_segment(&mut self, frame: &mut [u8]) -> Option<Range<usize>> {
        if self.next_at >= self.frame_len || self.frame_len > frame.len() {
            return None;
        }
        let payload = self.next_at..(self.next_at + self.segment_size).min(self.frame_len);
        let first = payload.start == self.headers.payload_at;
        let last = payload.end == self.frame_len;
        let start = payload.start - self.headers.payload_at;
        frame.copy_within(self.headers_at..self.headers_at + self.headers.payload_at, start);

        let segment = frame.get_mut(start..payload.end)?;
        if self.headers.ip == IpVersion::V4 {
            write_u16(segment, self.headers.ip_at + 4, self.identification);
        }
        fit_ip_header(segment, &self.headers);
        match self.headers.transport {
            Transport::Tcp => self.amend_tcp(segment, first, last),
            Transport::Udp => write_u16(
                segment,
                self.headers.transport_at + 4,
                length_field(segment.len() - self.headers.transport_at),
            ),
            Transport::Sctp => {}
        }
        self.finish_checksum(segment);

        self.headers_at = start;
        self.next_at = payload.end;
        self.identification = self.identification.wrapping_add(1);
        #[expect(clippy::cast_possible_truncation, reason = "a segment is shorter than 64 KiB")]
        let advance = payload.len() as u32;
        self.sequence = self.sequence.wrapping_add(advance);
        Some(start..payload.end)
    }

    /// How many segments are still to come.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.frame_len.saturating_sub(self.next_at).div_ceil(self.segment_size)
    }

    fn amend_tcp(&self, segment: &mut [u8], first: bool, last: bool) {
        let at = self.headers.transport_at;
        let mut flags = self.tcp_flags;
        if !last {
            flags &= !(TCP_FIN | TCP_PSH);
        }
        if !first && !self.accurate_ecn {
            flags &= !TCP_CWR;
        }
        if let Some(header) = segment.get_mut(at..at + TCP_FLAGS + 1) {
            header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
            header[TCP_FLAGS] = flags;
        }
    }

    fn finish_checksum(&self, segment: &mut [u8]) {
        let at = self.headers.transport_at;
        let field = at + self.headers.transport.checksum_offset();
        write_u16(segment, field, 0);
        let packet = segment.get(at..).unwrap_or_default();
        let sum = self.pseudo.number(length_field(packet.len())).bytes(packet);
        write_u16(segment, field, never_zero(self.headers.transport, sum.checksum()));
    }
}

/// How many frames `payload` bytes make when cut into pieces of `segment_size`.
#[must_use]
pub fn segment_count(payload: usize, segment_size: u16) -> usize {
    payload.div_ceil(usize::from(segment_size.max(1))).max(1)
}

/// Makes the IP header fit what follows it: its length, and IPv4's checksum.
pub(super) fn fit_ip_header(frame: &mut [u8], headers: &Headers) {
    let at = headers.ip_at;
    match headers.ip {
        IpVersion::V4 => {
            write_u16(frame, at + 2, length_field(frame.len() - at));
            write_u16(frame, at + 10, 0);
            let header = frame.get(at..headers.transport_at).unwrap_or_default();
            let checksum = Sum::default().bytes(header).checksum();
            write_u16(frame, at + 10, checksum);
        }
        IpVersion::V6 => write_u16(frame, at + 4, length_field(frame.len() - at - 40)),
    }
}

/// Writes the pseudo-header's sum into the checksum field, so that whoever cuts the frame can build on it.
pub fn begin_checksum(frame: &mut [u8], headers: &Headers) {
    let at = headers.transport_at;
    let sum = pseudo_header(frame, headers).number(length_field(frame.len() - at));
    write_u16(frame, at + headers.transport.checksum_offset(), sum.fold());
}

/// Finishes a checksum that the kernel left to the hardware: sums from `start` to the end of the frame, the
/// field included, since it holds the pseudo-header's sum (`skb_checksum_help`, net/core/dev.c).
///
/// # Errors
/// [`OutsideFrame`] where the frame ends before the field.
pub fn finish_checksum(frame: &mut [u8], unfinished: PartialChecksum) -> Result<(), OutsideFrame> {
    let start = usize::from(unfinished.start);
    let field = start + usize::from(unfinished.offset);
    if field + 2 > frame.len() {
        return Err(OutsideFrame);
    }
    if is_sctp(frame, unfinished) {
        return finish_crc32c(frame, start, field);
    }
    let checksum = Sum::default().bytes(&frame[start..]).checksum();
    // The kernel writes 0xffff for 0 whatever the protocol: in UDP 0 means "no checksum".
    write_u16(frame, field, if checksum == 0 { 0xffff } else { checksum });
    Ok(())
}

/// A checksum field lies outside the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the checksum field lies outside the frame")]
pub struct OutsideFrame;

/// Whether the unfinished checksum is SCTP's CRC: a virtio header cannot say so, and a kernel told of it would
/// finish it as an Internet checksum. Only SCTP has its field at 8.
#[must_use]
pub fn is_sctp(frame: &[u8], unfinished: PartialChecksum) -> bool {
    usize::from(unfinished.offset) == Transport::Sctp.checksum_offset()
        && Headers::parse(frame).is_ok_and(|headers| {
            headers.transport == Transport::Sctp && headers.transport_at == usize::from(unfinished.start)
        })
}

fn finish_crc32c(frame: &mut [u8], start: usize, field: usize) -> Result<(), OutsideFrame> {
    frame.get_mut(field..field + 4).ok_or(OutsideFrame)?.fill(0);
    let crc = crc32c(&frame[start..]);
    frame[field..field + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

pub(super) fn pseudo_header(frame: &[u8], headers: &Headers) -> Sum {
    Sum::default().bytes(headers.addresses(frame)).number(u16::from(headers.transport.protocol()))
}

/// A UDP checksum of 0 means "none", so 0xffff, its equal, stands in for it (RFC 768).
fn never_zero(transport: Transport, checksum: u16) -> u16 {
    if checksum == 0 && transport == Transport::Udp { 0xffff } else { checksum }
}

/// A length as the headers' 16-bit fields hold it.
pub(super) fn length_field(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    /// A TCP or UDP frame as etherparse builds it, with right checksums.
    fn frame(v6: bool, udp: bool, tags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = match (v6, tags) {
            (false, 0) => ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            (false, 1) => ethernet.single_vlan(7.try_into().unwrap()).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            (false, _) => ethernet.double_vlan(7.try_into().unwrap(), 9.try_into().unwrap()).ipv4(
                [10, 0, 0, 1],
                [10, 0, 0, 2],
                64,
            ),
            (true, 0) => ethernet.ipv6([1; 16], [2; 16], 64),
            (true, 1) => ethernet.single_vlan(7.try_into().unwrap()).ipv6([1; 16], [2; 16], 64),
            (true, _) => ethernet.double_vlan(7.try_into().unwrap(), 9.try_into().unwrap()).ipv6([1; 16], [2; 16], 64),
        };
        let mut frame = Vec::new();
        if udp {
            ip.udp(1000, 2000).write(&mut frame, payload).unwrap();
        } else {
            let tcp = ip.tcp(1000, 2000, u32::MAX - 700, 500).ack(3).psh().fin().cwr();
            tcp.options_raw(options).unwrap().write(&mut frame, payload).unwrap();
        }
        frame
    }

    fn cut(frame: &mut [u8], size: u16, unfinished: bool) -> Vec<Vec<u8>> {
        let headers = Headers::parse(frame).unwrap();
        let mut cutter = Cutter::new(frame, headers, size, unfinished, false);
        let mut pieces = Vec::new();
        let count = cutter.remaining();
        while let Some(range) = cutter.next_segment(frame) {
            pieces.push(frame[range].to_vec());
            assert_eq!(cutter.remaining(), count - pieces.len());
        }
        pieces
    }

    proptest! {
        #[test]
        fn pieces_are_valid_frames_and_put_together_give_the_whole(
            (v6, udp, unfinished) in any::<(bool, bool, bool)>(),
            tags in 0u8..3,
            options in 0usize..11,
            size in 1u16..2000,
            payload in proptest::collection::vec(any::<u8>(), 1..6000),
        ) {
            let mut whole = frame(v6, udp, tags, &vec![1; options * 4], &payload);
            let headers = Headers::parse(&whole).unwrap();
            if unfinished {
                begin_checksum(&mut whole, &headers);
            }
            let pieces = cut(&mut whole, size, unfinished);
            prop_assert_eq!(pieces.len(), segment_count(payload.len(), size));

            let mut reassembled = Vec::new();
            for (index, piece) in pieces.iter().enumerate() {
                let sliced = SlicedPacket::from_ethernet(piece).unwrap();
                if let Some(NetSlice::Ipv4(ip)) = &sliced.net {
                    let header = ip.header().to_header();
                    prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                    prop_assert_eq!(usize::from(header.identification), index);
                }
                let net = sliced.net.as_ref().unwrap();
                match sliced.transport.unwrap() {
                    TransportSlice::Tcp(tcp) => {
                        let header = tcp.to_header();
                        let expected = match net {
                            NetSlice::Ipv4(ip) => tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()),
                            NetSlice::Ipv6(ip) => tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
                            NetSlice::Arp(_) => unreachable!("not built"),
                        };
                        prop_assert_eq!(header.checksum, expected.unwrap());
                        let offset = u32::try_from(reassembled.len()).unwrap();
                        prop_assert_eq!(header.sequence_number, (u32::MAX - 700).wrapping_add(offset));
                        let last = index + 1 == pieces.len();
                        prop_assert_eq!((header.fin, header.psh, header.ack), (last, last, true));
                        prop_assert_eq!(header.cwr, index == 0);
                        reassembled.extend_from_slice(tcp.payload());
                    }
                    TransportSlice::Udp(udp) => {
                        let header = udp.to_header();
                        let expected = match net {
                            NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
                            NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
                            NetSlice::Arp(_) => unreachable!("not built"),
                        };
                        prop_assert_eq!(header.checksum, expected.unwrap());
                        reassembled.extend_from_slice(udp.payload());
                    }
                    _ => unreachable!("not built"),
                }
            }
            prop_assert_eq!(reassembled, payload);
        }

        #[test]
        fn no_bytes_make_it_panic_or_leave_the_frame(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
            ethertype in prop::sample::select(vec![[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00]]),
            (protocol, size, start, offset) in any::<(bool, u16, u16, u16)>(),
            unfinished: bool,
        ) {
            if bytes.len() > 40 {
                bytes[12..14].copy_from_slice(&ethertype);
                bytes[14] = if ethertype[0] == 0x08 { 0x45 } else { 0x60 };
                bytes[if ethertype[0] == 0x08 { 23 } else { 20 }] = if protocol { 6 } else { 17 };
            }
            let _ = finish_checksum(&mut bytes, PartialChecksum { start: start % 500, offset: offset % 500 });
            if let Ok(headers) = Headers::parse(&bytes) {
                let payload = bytes.len() - headers.payload_at;
                let mut cutter = Cutter::new(&bytes, headers, size, unfinished, false);
                let mut count = 0;
                while let Some(range) = cutter.next_segment(&mut bytes) {
                    prop_assert!(range.end <= bytes.len());
                    count += 1;
                }
                prop_assert_eq!(count, if payload == 0 { 0 } else { segment_count(payload, size) });
            }
        }
    }

    #[test]
    fn accurate_ecn_keeps_cwr_on_every_piece() {
        let mut whole = frame(false, false, 0, &[], &[1; 3000]);
        let headers = Headers::parse(&whole).unwrap();
        let mut cutter = Cutter::new(&whole, headers, 1000, false, true);
        let mut pieces = 0;
        while let Some(range) = cutter.next_segment(&mut whole) {
            assert_eq!(whole[range][headers.transport_at + TCP_FLAGS] & TCP_CWR, TCP_CWR);
            pieces += 1;
        }
        assert_eq!(pieces, 3);
    }

    #[test]
    fn a_udp_checksum_is_never_zero() {
        // The payload is chosen so that the sum comes out as 0xffff.
        let mut bytes = frame(false, true, 0, &[], &[0, 0]);
        let headers = Headers::parse(&bytes).unwrap();
        let field = headers.transport_at + 6;
        let checksum = read_u16(&bytes, field).unwrap();
        write_u16(&mut bytes, headers.payload_at, checksum);
        begin_checksum(&mut bytes, &headers);
        let start = u16::try_from(headers.transport_at).unwrap();
        finish_checksum(&mut bytes, PartialChecksum { start, offset: 6 }).unwrap();
        assert_eq!(read_u16(&bytes, field), Some(0xffff));
    }

    #[test]
    fn sctp_gets_its_crc() {
        let mut bytes = frame(false, true, 0, &[], &[0x5a; 40]);
        bytes[23] = 132;
        let unfinished = PartialChecksum { start: 34, offset: 8 };
        assert!(is_sctp(&bytes, unfinished));
        finish_checksum(&mut bytes, unfinished).unwrap();
        let mut zeroed = bytes[34..].to_vec();
        zeroed[8..12].fill(0);
        assert_eq!(bytes[42..46], crc32c(&zeroed).to_le_bytes());
        bytes[23] = 17;
        assert!(!is_sctp(&bytes, unfinished));
    }

    #[test]
    fn a_checksum_outside_the_frame_is_refused() {
        let mut bytes = [0; 60];
        for (start, offset) in [(59, 0), (0, 59), (60, 0), (u16::MAX, u16::MAX)] {
            assert_eq!(finish_checksum(&mut bytes, PartialChecksum { start, offset }), Err(OutsideFrame));
        }
        assert_eq!(bytes, [0; 60]);
    }
}
