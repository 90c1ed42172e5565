//! The `linux_raw` NIO on veth pairs.

use std::net::UdpSocket;

use nix::sys::signal::Signal;

use crate::lab::frames::{Random, Recipe};
use crate::lab::{Heard, Namespace, PATIENCE, Rubridge, WireTap, stay_on_one_cpu};

/// `left` and `right` are wires to a bridge between `linux_raw:l1` and `linux_raw:r1`.
struct Wires {
    namespaces: [Namespace; 2],
    left: WireTap,
    right: WireTap,
    program: Rubridge,
}

fn wires(options: &str, mtu: u16) -> Wires {
    stay_on_one_cpu();
    let [outside, bridge] = [(); 2].map(|()| Namespace::new());
    for (here, there) in [("l0", "l1"), ("r0", "r1")] {
        outside.veth(here, &bridge, there);
        outside.ip(&format!("link set {here} mtu {mtu}"));
        bridge.ip(&format!("link set {there} mtu {mtu}"));
    }
    let program = Rubridge::start(&bridge, &format!("linux_raw:l1 linux_raw:r1 {options}"));
    Wires {
        left: WireTap::new(&outside, "l0"),
        right: WireTap::new(&outside, "r0"),
        program,
        namespaces: [outside, bridge],
    }
}

impl Wires {
    /// Gives the right wire an MTU smaller than the left one's.
    fn narrow_right(&self, mtu: u16) {
        let [outside, bridge] = &self.namespaces;
        outside.ip(&format!("link set r0 mtu {mtu}"));
        bridge.ip(&format!("link set r1 mtu {mtu}"));
    }
}

#[test]
fn frames_that_need_nothing_pass_byte_for_byte() {
    let mut wires = wires("", 1500);
    let mut random = Random(1);
    let reserved = [0x00, 0x02, 0x0e].map(|last| [0x01, 0x80, 0xc2, 0, 0, last]);
    let mut frames = Vec::new();
    for destination in reserved.into_iter().chain([[0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc], [0xff; 6]]) {
        // An LLC length, an unknown EtherType, and tags of every sort; from a runt to a full frame.
        for kind in [[0x00, 0x26], [0x12, 0x34], [0x81, 0x00], [0x88, 0xa8]] {
            for len in [14, 20, 60, 64, 301, 1514] {
                // The kernel itself drops a frame that ends behind its tag.
                if kind[0] >= 0x80 && len < 20 {
                    continue;
                }
                let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 9], &kind, &random.bytes(1600)].concat();
                frame.truncate(len);
                frames.push(frame);
            }
        }
    }
    // A full frame and its tag: VLANs 0 with priority, 1, 100 and 4094.
    for tci in [0x6000u16, 1, 100, 0xeffe] {
        let mut frame = [&[2; 12][..], &[0x81, 0x00], &tci.to_be_bytes(), &[0x88, 0xb6], &random.bytes(1600)].concat();
        frame.truncate(1518);
        frames.push(frame);
    }
    for (number, frame) in (0..).zip(&frames) {
        for swap in [false, true] {
            let (from, to) = if swap { (&wires.right, &mut wires.left) } else { (&wires.left, &mut wires.right) };
            from.send_plain(frame);
            from.send_plain(&WireTap::mark(number));
            let heard: Vec<_> = to.until_mark(number).into_iter().map(|heard| heard.frame).collect();
            assert_eq!(heard, [frame.as_slice()], "frame {number}: {:02x?}", &frame[..14]);
        }
    }
}

#[test]
fn tagged_super_frames_keep_their_tags_whole_and_cut() {
    for (options, whole) in [("", true), ("--offload no-csum", false)] {
        let mut wires = wires(options, 1500);
        for (number, tags) in (0..).zip([vec![(0x8100, 100)], vec![(0x88a8, 0x2064), (0x8100, 7)]]) {
            let recipe = Recipe { tags, payload: Random(9).bytes(20_000), ..Recipe::default() };
            let built = recipe.begun();
            wires.left.send(&built.virtio(1, 1000), &built.bytes);
            wires.left.send_plain(&WireTap::mark(number));
            let heard = wires.right.until_mark(number);
            assert_eq!(heard.len(), if whole { 1 } else { 20 }, "{options}");
            for piece in &heard {
                assert_eq!(piece.frame[..built.ip_at], built.bytes[..built.ip_at], "{options}");
            }
            if whole {
                assert_eq!(heard[0].frame, built.bytes);
                assert_eq!((heard[0].header[1], heard[0].header[4..6].to_vec()), (1, 1000u16.to_ne_bytes().to_vec()));
            }
        }
    }
}

#[test]
fn the_largest_super_frames_arrive_whole() {
    let mut wires = wires("", 1500);
    // An IPv4 packet of 65,535 bytes, and the tag that is put back on top.
    let room = 65_535 - 40;
    for (number, tags) in (0..).zip([vec![], vec![(0x8100, 0x0ffe)]]) {
        let recipe = Recipe { tags, payload: Random(2).bytes(room), ..Recipe::default() };
        let built = recipe.begun();
        wires.left.send(&built.virtio(1, 1400), &built.bytes);
        wires.left.send_plain(&WireTap::mark(number));
        // The kernel may have cut it on its way to us, or from us: the payload must be all there.
        let heard = wires.right.until_mark(number);
        let payload: Vec<u8> = heard.iter().flat_map(|piece| &piece.frame[built.payload_at..]).copied().collect();
        assert!(payload == recipe.payload, "{} bytes in {} frames", payload.len(), heard.len());
    }
    assert!(!wires.program.stop(Signal::SIGINT).0.contains("dropped"));
}

#[test]
fn segments_too_large_for_the_egress_are_cut_anew() {
    for options in ["", "--offload no-csum"] {
        let mut wires = wires(options, 9000);
        wires.narrow_right(1450);
        let [_, bridge] = &wires.namespaces;
        drop(wires.program);
        wires.program = Rubridge::start(bridge, &format!("linux_raw:l1 linux_raw:r1 {options}"));
        assert!(wires.program.plan.contains("linux_raw:r1 (MTU 1450)"), "{}", wires.program.plan);
        // The first fits and must not be touched, the second does not.
        for (number, size, expected) in [(1, 1398, 1398), (2, 8948, 1410)] {
            let recipe = Recipe { payload: Random(4).bytes(20_000), ..Recipe::default() };
            let built = recipe.begun();
            wires.left.send(&built.virtio(1, size), &built.bytes);
            wires.left.send_plain(&WireTap::mark(number));
            let mut payload = Vec::new();
            for piece in wires.right.until_mark(number) {
                let size = if options.is_empty() { piece.header[4..6].to_vec() } else { vec![] };
                assert!(options.is_empty() || piece.frame.len() <= 1464, "{} bytes", piece.frame.len());
                assert!(size.is_empty() || size == u16::to_ne_bytes(expected), "{size:?}");
                payload.extend_from_slice(&piece.frame[built.payload_at..]);
            }
            assert!(payload == recipe.payload, "segments of {size} with {options}");
        }
    }
}

#[test]
fn a_frame_that_does_not_fit_is_dropped_and_counted_and_the_next_one_passes() {
    let mut wires = wires("", 9000);
    wires.narrow_right(1500);
    let mut frame = WireTap::mark(1);
    frame.resize(4000, 0);
    wires.left.send_plain(&frame);
    wires.left.send_plain(&WireTap::mark(2));
    assert!(wires.right.until_mark(2).is_empty());
    let totals = wires.program.stop(Signal::SIGTERM);
    assert_eq!(totals.number("linux_raw:l1", "dropped too_big {}"), 1);
}

#[test]
fn what_the_host_itself_sends_is_bridged_and_nothing_comes_back() {
    let mut wires = wires("", 1500);
    let [_, bridge] = &wires.namespaces;
    bridge.ip("addr add 10.9.0.1/24 dev l1");
    bridge.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:77 dev l1");
    bridge.run(|| {
        let socket = UdpSocket::bind("10.9.0.1:0").expect("bound");
        socket.send_to(b"from the host", "10.9.0.2:9").expect("sent");
    });
    for number in 0..100 {
        wires.left.send_plain(&WireTap::mark(number));
    }
    wires.right.send_plain(&WireTap::mark(1000));
    let own = wires.left.until_mark(1000);
    assert!(own.iter().all(|heard| heard.frame.ends_with(b"from the host")), "nothing returns: {own:?}");
    let bridged = wires.right.until_mark(99);
    assert!(bridged.iter().any(|heard| heard.frame.ends_with(b"from the host")), "{bridged:?}");
}

/// When the kernel cuts what we sent, it forgets of most pieces that they are ours.
#[test]
fn super_frames_that_the_kernel_cuts_on_their_way_out_do_not_come_back() {
    let mut wires = wires("", 1500);
    let [_, bridge] = &wires.namespaces;
    let mut number = 0;
    let mut check = |what: &str| {
        for (v6, udp, gso_type) in [(false, false, 1), (true, false, 4), (false, true, 5)] {
            number += 1;
            let recipe = Recipe { v6, udp, payload: Random(6).bytes(60_000), ..Recipe::default() };
            let built = recipe.begun();
            wires.left.send(&built.virtio(gso_type, 1000), &built.bytes);
            wires.left.send_plain(&WireTap::mark(number));
            let there: usize = wires.right.until_mark(number).iter().map(|heard| heard.frame.len()).sum();
            assert!(there > 60_000, "{what}: it arrives");
            wires.right.send_plain(&WireTap::mark(number));
            let back = wires.left.until_mark(number);
            assert!(back.is_empty(), "{what}, type {gso_type}: {} frames came back", back.len());
        }
    };
    check("with every offload on");
    bridge.ethtool("r1", "tx-udp-segmentation off tso off");
    check("cut by the kernel");
    bridge.ethtool("r1", "tx-udp-segmentation on tso on");
    bridge.ip("link set r1 gso_max_size 40000");
    check("cut by the kernel to half its size");
}

#[test]
fn datagrams_too_large_for_the_egress_are_dropped_and_counted() {
    let mut wires = wires("", 9000);
    wires.narrow_right(1500);
    let [_, bridge] = &wires.namespaces;
    drop(wires.program);
    wires.program = Rubridge::start(bridge, "linux_raw:l1 linux_raw:r1");
    let built = Recipe { udp: true, payload: vec![1; 10_000], ..Recipe::default() }.begun();
    wires.left.send(&built.virtio(5, 4000), &built.bytes);
    wires.left.send_plain(&WireTap::mark(1));
    assert!(wires.right.until_mark(1).is_empty());
    let totals = wires.program.stop(Signal::SIGINT);
    assert_eq!(totals.number("linux_raw:l1", "dropped too_big {}"), 3);
}

#[test]
fn a_link_that_goes_down_and_up_again_is_forwarded_again() {
    let mut wires = wires("", 1500);
    let [outside, bridge] = &wires.namespaces;
    bridge.ip("link set r1 down");
    wires.left.send_plain(&WireTap::mark(1));
    bridge.ip("link set l1 down");
    bridge.ip("link set l1 up");
    bridge.ip("link set r1 up");
    for (namespace, name) in [(bridge, "l1"), (bridge, "r1"), (outside, "l0"), (outside, "r0")] {
        namespace.wait_for_link(name);
    }
    wires.left.send_plain(&WireTap::mark(2));
    wires.right.until_mark(2);
    wires.right.send_plain(&WireTap::mark(3));
    wires.left.until_mark(3);
}

#[test]
fn frames_lost_while_the_program_stands_still_are_counted() {
    let mut wires = wires("", 1500);
    wires.program.signal(Signal::SIGSTOP);
    let recipe = Recipe { payload: Random(1).bytes(60_000), ..Recipe::default() };
    let built = recipe.begun();
    // Far more than the receive buffer takes.
    for _ in 0..1000 {
        wires.left.send(&built.virtio(1, 1000), &built.bytes);
    }
    wires.program.signal(Signal::SIGCONT);
    // Once it has read one there is room again; the count comes with the next frame that finds room.
    let is_ours = |heard: &Heard| heard.frame.len() > 60_000;
    while !is_ours(&wires.right.next(PATIENCE).expect("those that found room arrive")) {}
    let mut passed = 1;
    for number in 1..=3 {
        wires.left.send_plain(&WireTap::mark(number));
        passed += wires.right.until_mark(number).iter().filter(|heard| is_ours(heard)).count();
    }
    let totals = wires.program.stop(Signal::SIGINT);
    let lost = totals.number("linux_raw:l1", "dropped overflow {}");
    assert!(lost > 0 && passed > 0, "{passed} passed: {totals:?}");
    assert_eq!(lost + passed as u64, 1000, "{totals:?}");
}
