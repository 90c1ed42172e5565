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
use super::{read_u16, write_u16};

const TCP_FLAGS: usize = 13;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

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
        let sequence = frame.get(at + 4..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        Self {
            headers,
            segment_size: usize::from(segment_size.max(1)),
            frame_len: frame.len(),
            next_at: headers.payload_at,
            headers_at: 0,
            pseudo,
            identification: read_u16(frame, headers.ip_at + 4).unwrap_or_default(),
            sequence: u32::from_be_bytes(sequence),
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
        match self.headers.ip {
            IpVersion::V4 => self.amend_ipv4(segment),
            IpVersion::V6 => {
                let length = length_field(segment.len() - self.headers.ip_at - 40);
                write_u16(segment, self.headers.ip_at + 4, length);
            }
        }
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

    fn amend_ipv4(&self, segment: &mut [u8]) {
        let at = self.headers.ip_at;
        write_u16(segment, at + 2, length_field(segment.len() - at));
        write_u16(segment, at + 4, self.identification);
        write_u16(segment, at + 10, 0);
        let checksum = segment.get(at..self.headers.transport_at).map(|header| Sum::default().bytes(header).checksum());
        write_u16(segment, at + 10, checksum.unwrap_or_default());
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

fn pseudo_header(frame: &[u8], headers: &Headers) -> Sum {
    Sum::default().bytes(headers.addresses(frame)).number(u16::from(headers.transport.protocol()))
}

/// A UDP checksum of 0 means "none", so 0xffff, its equal, stands in for it (RFC 768).
fn never_zero(transport: Transport, checksum: u16) -> u16 {
    if checksum == 0 && transport == Transport::Udp { 0xffff } else { checksum }
}

/// A length as the headers' 16-bit fields hold it.
fn length_field(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
