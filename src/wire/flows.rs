//! What is known of TCP flows: how large their segments are.

use std::hash::{BuildHasher, RandomState};

use super::headers::{Headers, IpVersion, Transport};
use super::read_u16;
use super::segment::{TCP_FIN, TCP_FLAGS, TCP_PSH, TCP_SYN};

/// Flows that are remembered: one that has not been seen for the longest time makes room for a new one.
const SETS: usize = 256;
const WAYS: usize = 4;

/// What Linux takes at the least (`TCP_MIN_SND_MSS`, include/net/tcp.h): a smaller announcement would only make us cut
/// a frame into thousands.
const SMALLEST_MSS: u16 = 48;

/// Less payload than this is a rest, a keepalive or a window probe, and says nothing of a flow's segments.
const SMALLEST_SEGMENT: u16 = 256;

/// What holds where a SYN announces nothing (RFC 9293, 3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;

/// The segment sizes of TCP flows, each way for itself.
#[derive(Debug)]
pub struct FlowTable {
    sets: Box<[[Flow; WAYS]]>,
    /// Keyed at random, so that nobody can choose flows that displace each other.
    hasher: RandomState,
    clock: u64,
}

/// One way of a flow.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    key: u64,
    used: u64,
    /// What its receiver announced; 0 where that has not been seen.
    announced: u16,
    /// The most payload in a segment that was not the last of what its sender had; 0 where there has been none.
    seen: u16,
}

/// What is known of a segment's flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentSize {
    /// The most payload that its receiver takes in a segment with headers like these, in bytes.
    pub announced: Option<usize>,
    /// The most that has been seen, in bytes.
    pub seen: Option<usize>,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self { sets: vec![[Flow::default(); WAYS]; SETS].into_boxed_slice(), hasher: RandomState::new(), clock: 0 }
    }
}

impl FlowTable {
    /// Whether `frame` begins a TCP connection, or agrees to.
    #[must_use]
    pub fn is_syn(frame: &[u8], headers: &Headers) -> bool {
        headers.transport == Transport::Tcp && flags(frame, headers) & TCP_SYN != 0
    }

    /// Learns from `frame`, where it is a SYN, what its sender takes.
    pub fn learn_syn(&mut self, frame: &[u8], headers: &Headers) {
        if !Self::is_syn(frame, headers) {
            return;
        }
        let key = self.key(frame, headers, true);
        let flow = self.flow(key);
        // A new connection between the same ports.
        flow.seen = 0;
        flow.announced = announced_mss(frame, headers).max(SMALLEST_MSS);
    }

    /// Learns from `frame`, one segment, how large those of its flow are.
    pub fn learn_segment(&mut self, frame: &[u8], headers: &Headers) {
        // The last of what the sender had may be of any length.
        if flags(frame, headers) & (TCP_PSH | TCP_FIN) != 0 {
            return;
        }
        let payload = u16::try_from(frame.len() - headers.payload_at).unwrap_or(u16::MAX);
        if payload < SMALLEST_SEGMENT {
            return;
        }
        let key = self.key(frame, headers, false);
        let flow = self.flow(key);
        flow.seen = flow.seen.max(payload);
    }

    /// What is known of the flow of `frame`, which is TCP.
    pub fn segment_size(&mut self, frame: &[u8], headers: &Headers) -> SegmentSize {
        let Headers { ip, ip_at, transport_at, payload_at, .. } = *headers;
        let shortest_ip = if ip == IpVersion::V4 { 20 } else { 40 };
        // A receiver announces what it takes without options (RFC 6691).
        let options = (payload_at - transport_at - 20) + (transport_at - ip_at - shortest_ip);
        let key = self.key(frame, headers, false);
        let Flow { announced, seen, .. } = *self.flow(key);
        SegmentSize {
            announced: (announced != 0).then(|| usize::from(announced).saturating_sub(options).max(1)),
            seen: (seen != 0).then_some(usize::from(seen)),
        }
    }

    /// The key of the flow of `frame`, or of the way back.
    fn key(&self, frame: &[u8], headers: &Headers, back: bool) -> u64 {
        let addresses = headers.addresses(frame);
        let (from, to) = addresses.split_at(addresses.len() / 2);
        let ports = [0, 2].map(|at| read_u16(frame, headers.transport_at + at));
        let key = if back {
            self.hasher.hash_one((to, from, ports[1], ports[0]))
        } else {
            self.hasher.hash_one((from, to, ports[0], ports[1]))
        };
        // 0 is an empty place's.
        key.max(1)
    }

    fn flow(&mut self, key: u64) -> &mut Flow {
        self.clock += 1;
        #[expect(clippy::cast_possible_truncation, reason = "any bits of it will do")]
        let set = &mut self.sets[key as usize % SETS];
        let place = set.iter().position(|flow| flow.key == key).unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|&place| set[place].used).unwrap_or(0);
            set[oldest] = Flow { key, ..Flow::default() };
            oldest
        });
        set[place].used = self.clock;
        &mut set[place]
    }
}

fn flags(frame: &[u8], headers: &Headers) -> u8 {
    frame.get(headers.transport_at + TCP_FLAGS).copied().unwrap_or_default()
}

/// What the options of a SYN say of the segments that its sender takes.
fn announced_mss(frame: &[u8], headers: &Headers) -> u16 {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const MSS: u8 = 2;

    let mut options = frame.get(headers.transport_at + 20..headers.payload_at).unwrap_or_default();
    while let [kind, rest @ ..] = options {
        options = match (*kind, rest) {
            (END, _) => break,
            (NOTHING, _) => rest,
            (MSS, [4, high, low, ..]) => return u16::from_be_bytes([*high, *low]),
            (_, [len, ..]) if *len >= 2 => options.get(usize::from(*len)..).unwrap_or_default(),
            _ => break,
        };
    }
    if headers.ip == IpVersion::V4 { DEFAULT_MSS_V4 } else { DEFAULT_MSS_V6 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};

    /// A SYN from port `from` to port `to` that announces an MSS, or nothing.
    fn syn(from: u16, to: u16, mss: Option<u16>) -> Vec<u8> {
        let (source, destination) = if from < to { (1, 2) } else { (2, 1) };
        let options: Vec<_> = mss.map(TcpOptionElement::MaximumSegmentSize).into_iter().collect();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, source], [10, 0, 0, destination], 64)
            .tcp(from, to, 3, 4)
            .syn()
            .options(&options)
            .unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, &[]).unwrap();
        frame
    }

    /// A segment from port `from` to port `to`, with TCP options of so many bytes.
    fn segment(from: u16, to: u16, options: usize, payload: usize) -> Vec<u8> {
        let (source, destination) = if from < to { (1, 2) } else { (2, 1) };
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, source], [10, 0, 0, destination], 64)
            .tcp(from, to, 3, 4)
            .options_raw(&vec![1; options])
            .unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, &vec![7; payload]).unwrap();
        frame
    }

    fn learn(flows: &mut FlowTable, frame: &[u8]) {
        flows.learn_syn(frame, &Headers::parse(frame).unwrap());
    }

    fn announced(flows: &mut FlowTable, frame: &[u8]) -> Option<usize> {
        flows.segment_size(frame, &Headers::parse(frame).unwrap()).announced
    }

    #[test]
    fn what_a_receiver_announces_holds_for_what_is_sent_to_it_less_the_options() {
        let mut flows = FlowTable::default();
        learn(&mut flows, &syn(1000, 80, Some(1410)));
        learn(&mut flows, &syn(80, 1000, Some(900)));
        assert_eq!(announced(&mut flows, &segment(80, 1000, 0, 1)), Some(1410));
        assert_eq!(announced(&mut flows, &segment(80, 1000, 12, 1)), Some(1398));
        assert_eq!(announced(&mut flows, &segment(1000, 80, 12, 1)), Some(888));
        assert_eq!(announced(&mut flows, &segment(1001, 80, 0, 1)), None);
    }

    #[test]
    fn a_padded_syn_counts_and_one_that_announces_nothing_or_nonsense_too() {
        let mut flows = FlowTable::default();
        let mut padded = syn(1000, 80, Some(1300));
        padded.resize(60, 0);
        learn(&mut flows, &padded);
        assert_eq!(announced(&mut flows, &segment(80, 1000, 0, 1)), Some(1300));
        for (mss, taken) in [(None, 536), (Some(0), 48), (Some(47), 48), (Some(u16::MAX), 65_535)] {
            learn(&mut flows, &syn(1000, 80, mss));
            assert_eq!(announced(&mut flows, &segment(80, 1000, 0, 1)), Some(taken), "{mss:?}");
        }
        // Options that are all there is room for are no reason for a size of 0.
        learn(&mut flows, &syn(1000, 80, Some(48)));
        assert_eq!(announced(&mut flows, &segment(80, 1000, 40, 1)), Some(8));
    }

    #[test]
    fn options_are_followed_to_the_mss_and_no_further_than_they_go() {
        for (options, mss) in [
            (&[1, 1, 2, 4, 5, 180][..], 1460),
            (&[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 2, 0], 512),
            (&[0, 2, 4, 5, 180], 536),
            (&[2, 3, 5], 536),
            (&[3, 0, 2, 4, 5, 180], 536),
            (&[3, 1, 2, 4, 5, 180], 536),
            (&[3, 255, 2, 4, 5, 180], 536),
            (&[1, 1, 1, 2], 536),
        ] {
            let mut padded = options.to_vec();
            padded.resize(options.len().next_multiple_of(4), 0);
            let mut frame = segment(1000, 80, padded.len(), 0);
            let at = frame.len() - padded.len();
            frame[at..].copy_from_slice(&padded);
            assert_eq!(announced_mss(&frame, &Headers::parse(&frame).unwrap()), mss, "{options:?}");
        }
    }

    #[test]
    fn segments_are_remembered_unless_they_may_be_the_last_of_what_there_was() {
        let mut flows = FlowTable::default();
        for (payload, flags, seen) in
            [(700, 0, 700), (1000, TCP_PSH, 700), (1100, TCP_FIN, 700), (900, 0, 900), (1, 0, 900)]
        {
            let mut frame = segment(1000, 80, 0, payload);
            frame[34 + TCP_FLAGS] = 0x10 | flags;
            let headers = Headers::parse(&frame).unwrap();
            flows.learn_segment(&frame, &headers);
            assert_eq!(flows.segment_size(&frame, &headers).seen, Some(seen));
        }
        // A keepalive of one byte must not have a super-frame cut into 60,000.
        let keepalive = segment(1001, 80, 0, 1);
        let headers = Headers::parse(&keepalive).unwrap();
        flows.learn_segment(&keepalive, &headers);
        assert_eq!(flows.segment_size(&keepalive, &headers).seen, None);
        // A new connection between the same ports.
        learn(&mut flows, &syn(80, 1000, Some(800)));
        let frame = segment(1000, 80, 0, 1);
        let known = flows.segment_size(&frame, &Headers::parse(&frame).unwrap());
        assert_eq!(known, SegmentSize { announced: Some(800), seen: None });
    }

    #[test]
    fn flows_in_use_outlive_thousands_of_others() {
        let mut flows = FlowTable::default();
        learn(&mut flows, &syn(1, 2, Some(1234)));
        for port in 10..6_000 {
            learn(&mut flows, &syn(port, 5, Some(1000)));
            assert_eq!(announced(&mut flows, &segment(2, 1, 0, 1)), Some(1234));
        }
    }
}
