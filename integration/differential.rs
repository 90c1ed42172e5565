//! The kernel as oracle: what it makes of a super-frame is what we must make of it, bit by bit.

use nix::sys::signal::Signal;

use crate::lab::frames::{Built, Random, Recipe, virtio};
use crate::lab::{Namespace, Rubridge, WireTap, stay_on_one_cpu};

/// Two ways from a sender to a receiver: through a veth pair whose sending end has no offloads, so that the
/// kernel cuts; and through the program, which is told to cut everything.
struct Ways {
    kernel_in: WireTap,
    kernel_out: WireTap,
    ours_in: WireTap,
    ours_out: WireTap,
    _program: Rubridge,
    _namespaces: [Namespace; 3],
    marks: u16,
}

impl Ways {
    fn new(mtu: u16) -> Self {
        stay_on_one_cpu();
        let [source, bridge, sink] = [(); 3].map(|()| Namespace::new());
        source.veth("kernel0", &sink, "kernel1");
        source.veth("ours0", &bridge, "in0");
        bridge.veth("out0", &sink, "ours1");
        for (namespace, interface) in [
            (&source, "kernel0"),
            (&sink, "kernel1"),
            (&source, "ours0"),
            (&bridge, "in0"),
            (&bridge, "out0"),
            (&sink, "ours1"),
        ] {
            namespace.ip(&format!("link set {interface} mtu {mtu}"));
        }
        source.ethtool("kernel0", "tso off gso off tx off");
        let program = Rubridge::start(&bridge, "linux_raw:in0 linux_raw:out0 --offload no-csum");
        Self {
            kernel_in: WireTap::new(&source, "kernel0"),
            kernel_out: WireTap::new(&sink, "kernel1"),
            ours_in: WireTap::new(&source, "ours0"),
            ours_out: WireTap::new(&sink, "ours1"),
            _program: program,
            _namespaces: [source, bridge, sink],
            marks: 0,
        }
    }

    /// Sends a frame both ways; returns what the kernel made of it, after checking that we made the same.
    fn compare(&mut self, what: &dyn std::fmt::Debug, header: &[u8; 10], frame: &[u8]) -> Vec<Vec<u8>> {
        self.marks += 1;
        let mut heard = Vec::new();
        for (into, out) in [(&self.kernel_in, &mut self.kernel_out), (&self.ours_in, &mut self.ours_out)] {
            into.send(header, frame);
            into.send_plain(&WireTap::mark(self.marks));
            heard.push(out.until_mark(self.marks));
        }
        let [kernel, ours] = heard.try_into().expect("two ways");
        assert_eq!(kernel.len(), ours.len(), "frames: {what:?}");
        for (index, (kernel, ours)) in kernel.iter().zip(&ours).enumerate() {
            assert_eq!(kernel.header[..2], [0, 0], "the kernel finished frame {index}: {what:?}");
            assert_eq!(ours.header[..2], [0, 0], "we finished frame {index}: {what:?}");
            assert_eq!(kernel.frame, ours.frame, "frame {index} of {}: {what:?}", ours.frame.len());
        }
        kernel.into_iter().map(|heard| heard.frame).collect()
    }
}

/// The parts of a recipe that all kinds have.
fn random_recipe(random: &mut Random, v6: bool, udp: bool) -> Recipe {
    let mut recipe = Recipe {
        tags: match random.below(4) {
            0 => vec![(0x8100, 0x6064)],
            1 => vec![(0x88a8, 0x0ffe), (0x8100, 1)],
            _ => vec![],
        },
        v6,
        udp,
        identification: random.one_of(&[0, 1, 0x1234, 0xfffe, 0xffff]),
        dont_fragment: random.chance(2),
        traffic_class: random.one_of(&[0, 1, 2, 0xb8]),
        sequence: random.one_of(&[0, 1, 0x1234_5678, 0xffff_f000]),
        tcp_options: match random.below(3) {
            0 => vec![],
            1 => vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            _ => vec![1; 4 * random.below(11)],
        },
        ..Recipe::default()
    };
    if random.chance(4) {
        if v6 {
            recipe.first_extension = random.one_of(&[0, 60]);
            // A header of 8 bytes, PadN inside, then a second one of 16.
            recipe.ip_options =
                [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[if udp { 17 } else { 6 }, 1, 1, 12], &[0; 12]].concat();
        } else {
            recipe.ip_options = vec![1; 4 * (1 + random.below(10))];
        }
    }
    recipe
}

/// A payload and a segment size that fits the MTU.
fn random_sizes(random: &mut Random, recipe: &Recipe, mtu: usize) -> (usize, u16) {
    let headers = recipe.begun().payload_at;
    let tags = 4 * recipe.tags.len().saturating_sub(1);
    let room = mtu + 14 + 4 * recipe.tags.len().min(1) - headers - tags;
    let size = match random.below(4) {
        0 => 1 + random.below(room),
        1 => 536.min(room),
        _ => room,
    };
    let most = 65_000.min(size * 60);
    let payload = match random.below(3) {
        0 => size + 1,
        1 => (2 * size).min(most),
        _ => size + 1 + random.below((most - size).max(1)),
    };
    (payload, u16::try_from(size).expect("a segment"))
}

#[test]
fn tcp_super_frames_are_cut_as_the_kernel_cuts_them() {
    for (mtu, count) in [(1500, 200), (9000, 60)] {
        let mut ways = Ways::new(mtu);
        let mut random = Random(u64::from(mtu));
        for round in 0..count {
            let v6 = round % 2 == 1;
            let mut recipe = random_recipe(&mut random, v6, false);
            let cwr = random.chance(3);
            recipe.tcp_flags = 0x10 | random.one_of(&[0, 1, 8, 9, 0x40, 0x20]) | if cwr { 0x80 } else { 0 };
            recipe.urgent = if recipe.tcp_flags & 0x20 != 0 { 5 } else { 0 };
            let (payload, size) = random_sizes(&mut random, &recipe, usize::from(mtu));
            recipe.payload = random.bytes(payload);
            let gso_type = if v6 { 4 } else { 1 } | if cwr { 0x80 } else { 0 };
            let built = recipe.begun();
            let pieces =
                ways.compare(&(&recipe.tags, round, payload, size), &built.virtio(gso_type, size), &built.bytes);
            assert_eq!(pieces.len(), payload.div_ceil(usize::from(size)), "round {round}");
            assert_whole(&pieces, &built, &recipe);
        }
    }
}

#[test]
fn tcp_super_frames_without_an_unfinished_checksum_are_cut_as_the_kernel_cuts_them() {
    let mut ways = Ways::new(1500);
    let mut random = Random(3);
    for round in 0..60 {
        let v6 = round % 2 == 1;
        // The kernel finds the headers of such a frame only without tags, options and extensions.
        let mut recipe = Recipe { tcp_flags: 0x18, tcp_options: vec![1; 12], v6, ..Recipe::default() };
        let (payload, size) = random_sizes(&mut random, &recipe, 1500);
        recipe.payload = random.bytes(payload);
        let mut built = recipe.begun();
        // Whatever the field holds is stale.
        let at = built.transport_at + 16;
        built.bytes[at..at + 2].copy_from_slice(&random.bytes(2));
        let header = virtio(0, if v6 { 4 } else { 1 }, built.payload_at, size, 0, 0);
        let pieces = ways.compare(&(round, payload, size), &header, &built.bytes);
        assert_whole(&pieces, &built, &recipe);
    }
}

#[test]
fn udp_super_frames_are_cut_as_the_kernel_cuts_them() {
    let mut ways = Ways::new(1500);
    let mut random = Random(17);
    for round in 0..120 {
        let mut recipe = random_recipe(&mut random, round % 2 == 1, true);
        let (payload, size) = random_sizes(&mut random, &recipe, 1500);
        recipe.payload = random.bytes(payload);
        let built = recipe.begun();
        let pieces = ways.compare(&(&recipe.tags, round, payload, size), &built.virtio(5, size), &built.bytes);
        assert_eq!(pieces.len(), payload.div_ceil(usize::from(size)), "round {round}");
        assert_whole(&pieces, &built, &recipe);
    }
}

#[test]
fn unfinished_checksums_of_small_frames_are_finished_as_the_kernel_finishes_them() {
    let mut ways = Ways::new(1500);
    let mut random = Random(5);
    for round in 0..120 {
        let (v6, udp) = (round % 2 == 1, round % 4 > 1);
        let mut recipe = random_recipe(&mut random, v6, udp);
        recipe.tcp_flags = random.one_of(&[0x02, 0x10, 0x12, 0x18]);
        let payload = random.one_of(&[0, 1, 2, 300, 301, 1300]);
        recipe.payload = random.bytes(payload);
        let built = recipe.begun();
        let pieces = ways.compare(&(round, payload), &built.virtio(0, 0), &built.bytes);
        assert_eq!(pieces, [recipe.finished().bytes], "round {round}");
    }
}

/// The pieces' payloads, one behind the other, are the super-frame's, and every checksum holds: said by code
/// that shares nothing with the product.
fn assert_whole(pieces: &[Vec<u8>], built: &Built, recipe: &Recipe) {
    let payload: Vec<u8> = pieces.iter().flat_map(|piece| &piece[built.payload_at..]).copied().collect();
    assert!(payload == recipe.payload, "the payload is whole");
    for piece in pieces {
        if !recipe.v6 {
            assert_eq!(crate::lab::frames::sum(&piece[built.ip_at..built.transport_at]), 0xffff, "IPv4 checksum");
        }
        let mut packet = Recipe { payload: piece[built.payload_at..].to_vec(), ..recipe.clone() };
        packet.identification = u16::from_be_bytes([piece[built.ip_at + 4], piece[built.ip_at + 5]]);
        if !recipe.udp {
            let at = built.transport_at;
            packet.sequence = u32::from_be_bytes(*piece[at + 4..].first_chunk().expect("a sequence number"));
            packet.tcp_flags = piece[at + 13];
        }
        assert_eq!(*piece, packet.finished().bytes, "as built by hand");
    }
}

#[test]
fn the_kernel_cuts_what_we_merged_into_the_frames_it_was_made_of() {
    stay_on_one_cpu();
    let [outside, bridge] = [(); 2].map(|()| Namespace::new());
    outside.veth("l0", &bridge, "l1");
    outside.veth("r0", &bridge, "r1");
    bridge.ethtool("r1", "tso off gso off tx off");
    let program = Rubridge::start(&bridge, "linux_raw:l1 linux_raw:r1");
    let (left, mut right) = (WireTap::new(&outside, "l0"), WireTap::new(&outside, "r0"));
    let mut random = Random(23);
    let mut sent = Vec::new();
    // While the program stands still, whole bursts are waiting for it.
    program.signal(Signal::SIGSTOP);
    for burst in 0..60 {
        let udp = burst % 3 == 2;
        let mut recipe = random_recipe(&mut random, burst % 2 == 1, udp);
        recipe.identification = random.one_of(&[0, 0xfffd]);
        let size = 1 + random.below(1300);
        for _ in 0..1 + random.below(6) {
            let short = random.chance(5);
            recipe.payload = random.bytes(if short { 1 + size / 2 } else { size });
            recipe.tcp_flags = if random.chance(6) { 0x18 } else { 0x10 };
            let frame = recipe.finished().bytes;
            left.send_plain(&frame);
            sent.push(frame);
            recipe.sequence = recipe.sequence.wrapping_add(u32::try_from(recipe.payload.len()).expect("short"));
            recipe.identification = recipe.identification.wrapping_add(1);
        }
    }
    left.send_plain(&WireTap::mark(1));
    program.signal(Signal::SIGCONT);
    let heard = right.until_mark(1);
    assert_eq!(heard.len(), sent.len());
    for (index, (heard, sent)) in heard.iter().zip(&sent).enumerate() {
        assert_eq!(heard.header[..2], [0, 0], "the kernel finished frame {index}");
        assert_eq!(heard.frame, *sent, "frame {index}");
    }
    let merged = program.stop(Signal::SIGINT).number("linux_raw:l1", "{} merged");
    assert!(merged > 30, "{merged} bursts were merged");
}
