//! Flows: TCP or UDP, over IPv4 or IPv6, with or without tags and options, one valid segment after another.

use crate::reference::checksum;

/// What payload is a part of; as a constant, since made byte by byte it would take most of a case's time.
const PATTERN: &[u8; 4096] = &{
    let mut bytes = [0; 4096];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at.to_le_bytes()[0];
        at += 1;
    }
    bytes
};

/// Which flow: each bit makes it another one.
#[derive(Debug, Clone, Copy)]
struct Kind(u8);

impl Kind {
    fn is_v6(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_udp(self) -> bool {
        self.0 & 2 != 0
    }

    fn tags(self) -> &'static [u8] {
        match self.0 >> 2 & 3 {
            0 | 1 => &[],
            2 => &[0x81, 0x00, 0, 7],
            _ => &[0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 8],
        }
    }

    /// Options of TCP, or of IPv4, or an extension header of IPv6.
    fn has_options(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// IPv4 identifications count up, or are all 0.
    fn counts(self) -> bool {
        self.0 & 0x20 == 0
    }
}

/// A flow, and where its next segment goes on.
#[derive(Debug)]
pub struct Flow {
    kind: Kind,
    sequence: u32,
    identification: u16,
}

/// Where a frame's headers are, for as long as they are what they were made to be.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    v6: bool,
    ip_at: usize,
    transport_at: usize,
    checksum_at: usize,
    payload_at: usize,
}

impl Flow {
    /// The flow that `kind` says. Its numbers are about to wrap.
    pub fn new(kind: u8) -> Self {
        Self { kind: Kind(kind), sequence: u32::MAX - 4000, identification: u16::MAX - 5 }
    }

    /// The next segment, with so many bytes of payload, 2048 at most. `flags` are those of TCP; ACK is always there.
    pub fn next(&mut self, payload: u16, flags: u8) -> (Vec<u8>, Layout) {
        let Kind(number) = self.kind;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend(self.kind.tags());
        frame.extend(if self.kind.is_v6() { [0x86, 0xdd] } else { [0x08, 0x00] });
        let ip_at = frame.len();
        let transport = self.transport(number, usize::from(payload), flags);
        if self.kind.is_v6() {
            self.ipv6(&mut frame, transport.len())
        } else {
            self.ipv4(&mut frame, transport.len())
        }
        let transport_at = frame.len();
        frame.extend(&transport);
        let checksum_at = transport_at + if self.kind.is_udp() { 6 } else { 16 };
        let payload_at = frame.len() - usize::from(payload);
        let layout = Layout { v6: self.kind.is_v6(), ip_at, transport_at, checksum_at, payload_at };
        layout.repair(&mut frame);
        self.sequence = self.sequence.wrapping_add(u32::from(payload));
        self.identification = self.identification.wrapping_add(u16::from(self.kind.counts()));
        (frame, layout)
    }

    fn transport(&self, number: u8, payload: usize, flags: u8) -> Vec<u8> {
        let mut bytes = vec![4, number >> 6, 7, 0];
        if self.kind.is_udp() {
            bytes.extend(length(8 + payload));
            bytes.extend([0; 2]);
        } else {
            let options: &[u8] = if self.kind.has_options() { &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2] } else { &[] };
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend([0, 0, 0, 9, if options.is_empty() { 0x50 } else { 0x80 }, 0x10 | flags, 1, 0, 0, 0, 0, 0]);
            bytes.extend(options);
        }
        // Unlike in each segment, so that none is taken for another.
        let first = usize::from(self.sequence.to_le_bytes()[0]);
        bytes.extend(&PATTERN[first..first + payload]);
        bytes
    }

    fn ipv4(&self, frame: &mut Vec<u8>, payload: usize) {
        let options: &[u8] = if self.kind.is_udp() && self.kind.has_options() { &[1; 4] } else { &[] };
        let header = 20 + options.len();
        frame.extend([if options.is_empty() { 0x45 } else { 0x46 }, 0]);
        frame.extend(length(header + payload));
        frame.extend(if self.kind.counts() { self.identification } else { 0 }.to_be_bytes());
        frame.extend([0x40, 0, 64, if self.kind.is_udp() { 17 } else { 6 }, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(options);
    }

    fn ipv6(&self, frame: &mut Vec<u8>, payload: usize) {
        let protocol = if self.kind.is_udp() { 17 } else { 6 };
        // Destination options that are padding.
        let extension: &[u8] =
            if self.kind.is_udp() && self.kind.has_options() { &[protocol, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(length(extension.len() + payload));
        frame.extend([if extension.is_empty() { protocol } else { 60 }, 64]);
        frame.extend([1; 16]);
        frame.extend([2; 16]);
        frame.extend(extension);
    }
}

impl Layout {
    /// Makes the checksums right.
    pub fn repair(self, frame: &mut [u8]) {
        if !self.v6 {
            frame[self.ip_at + 10..self.ip_at + 12].fill(0);
            let sum = checksum(&[&frame[self.ip_at..self.transport_at]]);
            frame[self.ip_at + 10..self.ip_at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let sum = self.transport_checksum(frame);
        // A UDP checksum that comes out as 0 is sent as its other form.
        let is_udp = self.checksum_at == self.transport_at + 6;
        self.write_checksum(frame, if sum == 0 && is_udp { 0xffff } else { sum });
    }

    /// Chooses the payload so that the checksum comes out as 0, and writes `form`, which should be 0 or 0xffff.
    pub fn make_zero(self, frame: &mut [u8], form: u16) {
        // A word at an even place adds to the sum as it is.
        let at = self.payload_at;
        if at + 2 <= frame.len() {
            frame[at..at + 2].fill(0);
            let sum = self.transport_checksum(frame);
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        self.write_checksum(frame, form);
    }

    fn transport_checksum(self, frame: &mut [u8]) -> u16 {
        self.write_checksum(frame, 0);
        let addresses = if self.v6 { self.ip_at + 8..self.ip_at + 40 } else { self.ip_at + 12..self.ip_at + 20 };
        let protocol = if self.checksum_at == self.transport_at + 6 { 17 } else { 6 };
        let segment = &frame[self.transport_at..];
        checksum(&[&frame[addresses], &[0, protocol], &length(segment.len()), segment])
    }

    fn write_checksum(self, frame: &mut [u8], sum: u16) {
        frame[self.checksum_at..self.checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}
