//! Where the headers of a frame are: Ethernet with any number of VLAN tags, IPv4 and IPv6, TCP and UDP.

use super::{ETHERNET_LEN, VLAN_TAG_LEN, read_u16};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_8021Q: u16 = 0x8100;
const ETHERTYPE_8021AD: u16 = 0x88a8;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_SCTP: u8 = 132;

/// The version of a frame's IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The transport protocols that this crate knows the headers of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, whose checksum is a CRC.
    Sctp,
}

impl Transport {
    /// Where the checksum field is within the transport header.
    #[must_use]
    pub fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
            Self::Sctp => 8,
        }
    }

    /// The protocol's number in the IP header.
    #[must_use]
    pub fn protocol(self) -> u8 {
        match self {
            Self::Tcp => PROTOCOL_TCP,
            Self::Udp => PROTOCOL_UDP,
            Self::Sctp => PROTOCOL_SCTP,
        }
    }
}

/// Offsets into a frame, all of them within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// The IP version.
    pub ip: IpVersion,
    /// Where the IP header starts.
    pub ip_at: usize,
    /// Where the transport header starts: behind IPv4 options or IPv6 extension headers.
    pub transport_at: usize,
    /// The transport protocol.
    pub transport: Transport,
    /// Where the payload starts.
    pub payload_at: usize,
}

/// Why the headers could not be followed to a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A header claims to be longer than the frame, or shorter than it can be.
    #[error("a header does not fit the frame")]
    Malformed,
    /// Another network or transport protocol, an IP fragment, or an extension header that ends the chain.
    #[error("not TCP, UDP or SCTP in a whole IP packet")]
    Unsupported,
}

impl Headers {
    /// Follows the headers of `frame`. Lengths in the IP header are not looked at: those of a super-frame
    /// may be 0 (BIG TCP), and the kernel does not look at them either.
    ///
    /// # Errors
    /// [`HeaderError`] where there is no TCP, UDP or SCTP header to be found.
    pub fn parse(frame: &[u8]) -> Result<Self, HeaderError> {
        let (ethertype, ip_at) = skip_tags(frame)?;
        let (ip, protocol, transport_at) = match ethertype {
            ETHERTYPE_IPV4 => ipv4(frame, ip_at)?,
            ETHERTYPE_IPV6 => ipv6(frame, ip_at)?,
            _ => return Err(HeaderError::Unsupported),
        };
        let (transport, length) = match protocol {
            PROTOCOL_TCP => {
                let offset = frame.get(transport_at + 12).ok_or(HeaderError::Malformed)? >> 4;
                if offset < 5 {
                    return Err(HeaderError::Malformed);
                }
                (Transport::Tcp, usize::from(offset) * 4)
            }
            PROTOCOL_UDP => (Transport::Udp, 8),
            PROTOCOL_SCTP => (Transport::Sctp, 12),
            _ => return Err(HeaderError::Unsupported),
        };
        let payload_at = transport_at + length;
        if payload_at > frame.len() {
            return Err(HeaderError::Malformed);
        }
        Ok(Self { ip, ip_at, transport_at, transport, payload_at })
    }

    /// Source and destination address, one behind the other, as the pseudo-header wants them.
    #[must_use]
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let range = match self.ip {
            IpVersion::V4 => self.ip_at + 12..self.ip_at + 20,
            IpVersion::V6 => self.ip_at + 8..self.ip_at + 40,
        };
        frame.get(range).unwrap_or_default()
    }
}

/// The EtherType behind all tags, and where what it names starts.
fn skip_tags(frame: &[u8]) -> Result<(u16, usize), HeaderError> {
    let mut at = ETHERNET_LEN;
    loop {
        let ethertype = read_u16(frame, at - 2).ok_or(HeaderError::Malformed)?;
        if !matches!(ethertype, ETHERTYPE_8021Q | ETHERTYPE_8021AD) {
            return Ok((ethertype, at));
        }
        at += VLAN_TAG_LEN;
    }
}

fn ipv4(frame: &[u8], at: usize) -> Result<(IpVersion, u8, usize), HeaderError> {
    let header = frame.get(at..at + 20).ok_or(HeaderError::Malformed)?;
    let length = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return Err(HeaderError::Malformed);
    }
    // More Fragments or an offset: the transport header is not whole here.
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Err(HeaderError::Unsupported);
    }
    Ok((IpVersion::V4, header[9], at + length))
}

fn ipv6(frame: &[u8], at: usize) -> Result<(IpVersion, u8, usize), HeaderError> {
    /// The extension headers behind which Linux still segments (net/ipv6/ip6_offload.c).
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION: u8 = 60;

    let header = frame.get(at..at + 40).ok_or(HeaderError::Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(HeaderError::Malformed);
    }
    let (mut next, mut at) = (header[6], at + 40);
    while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
        let extension = frame.get(at..at + 2).ok_or(HeaderError::Malformed)?;
        next = extension[0];
        at += (usize::from(extension[1]) + 1) * 8;
    }
    Ok((IpVersion::V6, next, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    fn tcp4(options: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 3, 4)
            .options_raw(options)
            .unwrap();
        builder.write(&mut frame, &[9; 100]).unwrap();
        frame
    }

    #[test]
    fn tcp_over_ipv4_with_options() {
        let headers = Headers::parse(&tcp4(&[1; 12])).unwrap();
        assert_eq!((headers.ip, headers.transport), (IpVersion::V4, Transport::Tcp));
        assert_eq!((headers.ip_at, headers.transport_at, headers.payload_at), (14, 34, 66));
    }

    #[test]
    fn any_number_of_tags_is_skipped() {
        let plain = tcp4(&[]);
        for tags in 0..5 {
            let mut frame = plain[..12].to_vec();
            for tag in 0..tags {
                frame.extend([if tag % 2 == 0 { 0x88 } else { 0x81 }, if tag % 2 == 0 { 0xa8 } else { 0 }, 0, 7]);
            }
            frame.extend(&plain[12..]);
            assert_eq!(Headers::parse(&frame).unwrap().payload_at, 54 + 4 * tags);
        }
    }

    #[test]
    fn extension_headers_are_followed_and_fragments_are_not() {
        let mut frame = vec![0; 14 + 40 + 8 + 24 + 8 + 20];
        frame[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        frame[14] = 0x60;
        frame[20] = 0; // hop-by-hop options, 8 bytes
        frame[54..56].copy_from_slice(&[43, 0]);
        frame[62..64].copy_from_slice(&[60, 2]); // routing, 24 bytes
        frame[86..88].copy_from_slice(&[6, 0]); // destination options, 8 bytes
        frame[94 + 12] = 5 << 4;
        let headers = Headers::parse(&frame).unwrap();
        assert_eq!((headers.transport_at, headers.payload_at), (94, 114));
        frame[86] = 44;
        assert_eq!(Headers::parse(&frame), Err(HeaderError::Unsupported));
        let mut fragment = tcp4(&[]);
        fragment[20] = 0x20;
        assert_eq!(Headers::parse(&fragment), Err(HeaderError::Unsupported));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let frame = tcp4(&[1; 8]);
        for len in 0..62 {
            assert_eq!(Headers::parse(&frame[..len]), Err(HeaderError::Malformed), "{len}");
        }
    }

    proptest! {
        #[test]
        fn never_points_outside_the_frame(mut frame in proptest::collection::vec(any::<u8>(), 0..300), v6: bool) {
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&if v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 }.to_be_bytes());
                frame[14] = if v6 { 0x60 } else { 0x45 };
            }
            if let Ok(headers) = Headers::parse(&frame) {
                prop_assert!(headers.ip_at < headers.transport_at);
                prop_assert!(headers.transport_at < headers.payload_at);
                prop_assert!(headers.payload_at <= frame.len());
            }
        }
    }
}
