//! Frames to send, built by hand so that they share nothing with the code under test.

/// A small random number generator with a fixed start (splitmix64), so that every run sees the same frames.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit - 1`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// So many frames, each of 1 to 1600 bytes.
    pub(crate) fn frames(&mut self, count: usize) -> Vec<Vec<u8>> {
        let lens: Vec<usize> = (0..count).map(|_| 1 + self.below(1600)).collect();
        lens.into_iter().map(|len| self.bytes(len)).collect()
    }

    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// What a frame is made of.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) tags: Vec<(u16, u16)>,
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    /// IPv4 options or IPv6 extension headers, ready made.
    pub(crate) ip_options: Vec<u8>,
    /// The IPv6 next-header number of `ip_options`.
    pub(crate) first_extension: u8,
    pub(crate) identification: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) traffic_class: u8,
    pub(crate) sequence: u32,
    pub(crate) tcp_flags: u8,
    pub(crate) tcp_options: Vec<u8>,
    pub(crate) urgent: u16,
    pub(crate) payload: Vec<u8>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            tags: Vec::new(),
            v6: false,
            udp: false,
            ip_options: Vec::new(),
            first_extension: 0,
            identification: 7,
            dont_fragment: true,
            traffic_class: 0,
            sequence: 1000,
            tcp_flags: 0x10,
            tcp_options: Vec::new(),
            urgent: 0,
            payload: Vec::new(),
        }
    }
}

/// A frame with the places that a virtio header tells.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ip_at: usize,
    pub(crate) transport_at: usize,
    pub(crate) payload_at: usize,
    pub(crate) checksum_offset: usize,
}

impl Recipe {
    /// The frame with a finished checksum.
    pub(crate) fn finished(&self) -> Built {
        let mut built = self.begun();
        let at = built.transport_at;
        let mut checksum = !sum(&built.bytes[at..]);
        if checksum == 0 && self.udp {
            checksum = 0xffff;
        }
        built.set_checksum(checksum);
        built
    }

    /// The frame as a kernel hands it to hardware: the field holds the pseudo-header's sum.
    pub(crate) fn begun(&self) -> Built {
        let mut bytes = vec![0x02, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0, 0, 0x0a];
        for (tpid, tci) in &self.tags {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        bytes.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let ip_at = bytes.len();
        let transport = self.transport();
        let packet_len = short(transport.len() + self.payload.len() + self.ip_options.len());
        let protocol = if self.udp { 17 } else { 6 };
        let pseudo = if self.v6 {
            let next = if self.ip_options.is_empty() { protocol } else { self.first_extension };
            bytes.extend([0x60 | (self.traffic_class >> 4), self.traffic_class << 4, 0x12, 0x34]);
            bytes.extend(packet_len.to_be_bytes());
            bytes.extend([next, 64]);
            let addresses: Vec<u8> = (0..32).map(|i| if i % 16 == 0 { 0xfd } else { i }).collect();
            bytes.extend(&addresses);
            addresses
        } else {
            bytes.extend([0x45 + words(&self.ip_options), self.traffic_class]);
            bytes.extend((packet_len + 20).to_be_bytes());
            bytes.extend(self.identification.to_be_bytes());
            bytes.extend([if self.dont_fragment { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
            bytes.extend([10, 77, 0, 1, 10, 77, 0, 2]);
            bytes[ip_at + 12..].to_vec()
        };
        bytes.extend(&self.ip_options);
        let transport_at = bytes.len();
        if !self.v6 {
            let checksum = !sum(&bytes[ip_at..transport_at]);
            bytes[ip_at + 10..ip_at + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        let transport_len = short(transport.len() + self.payload.len());
        bytes.extend(&transport);
        let payload_at = bytes.len();
        bytes.extend(&self.payload);
        let checksum_offset = if self.udp { 6 } else { 16 };
        let mut built = Built { bytes, ip_at, transport_at, payload_at, checksum_offset };
        built.set_checksum(sum(&[&pseudo[..], &transport_len.to_be_bytes(), &[0, protocol]].concat()));
        built
    }

    fn transport(&self) -> Vec<u8> {
        if self.udp {
            let length = short(8 + self.payload.len()).to_be_bytes();
            return [&[0x30, 0x39, 0x00, 0x35], &length[..], &[0, 0]].concat();
        }
        let mut header = vec![0x30, 0x39, 0x14, 0x51];
        header.extend(self.sequence.to_be_bytes());
        header.extend([0, 0, 0, 99]);
        header.extend([(5 + words(&self.tcp_options)) << 4, self.tcp_flags, 0x20, 0, 0, 0]);
        header.extend(self.urgent.to_be_bytes());
        header.extend(&self.tcp_options);
        header
    }
}

impl Built {
    fn set_checksum(&mut self, value: u16) {
        let at = self.transport_at + self.checksum_offset;
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// The same frame the other way, whose checksums are the same.
    pub(crate) fn turned_round(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let (addresses_at, len) = if bytes[self.ip_at] >> 4 == 4 { (self.ip_at + 12, 4) } else { (self.ip_at + 8, 16) };
        for (at, len) in [(0, 6), (addresses_at, len), (self.transport_at, 2)] {
            let (from, to) = bytes[at..at + 2 * len].split_at_mut(len);
            from.swap_with_slice(to);
        }
        bytes
    }

    /// The virtio header of a frame whose checksum is unfinished; `gso_type` 0 where it is no super-frame.
    pub(crate) fn virtio(&self, gso_type: u8, gso_size: u16) -> [u8; 10] {
        let header = if gso_type == 0 { 0 } else { self.payload_at };
        virtio(1, gso_type, header, gso_size, self.transport_at, self.checksum_offset)
    }
}

/// A virtio header, field by field.
pub(crate) fn virtio(
    flags: u8,
    gso_type: u8,
    header_len: usize,
    gso_size: u16,
    start: usize,
    offset: usize,
) -> [u8; 10] {
    let mut header = [0; 10];
    header[..2].copy_from_slice(&[flags, gso_type]);
    header[2..4].copy_from_slice(&short(header_len).to_ne_bytes());
    header[4..6].copy_from_slice(&gso_size.to_ne_bytes());
    header[6..8].copy_from_slice(&short(start).to_ne_bytes());
    header[8..10].copy_from_slice(&short(offset).to_ne_bytes());
    header
}

fn short(length: usize) -> u16 {
    u16::try_from(length).expect("a packet is shorter than 64 KiB")
}

/// The length of options, in the 32-bit words that headers count in.
fn words(options: &[u8]) -> u8 {
    u8::try_from(options.len() / 4).expect("options are short")
}

/// The one's complement sum, by the textbook.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += (u32::from(pair[0]) << 8) | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}
