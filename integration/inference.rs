//! Frames that come without metadata: what they are is inferred.

use rubridge::sys::tun::TapFile;

use crate::lab::check::check_segments;
use crate::lab::frames::{Random, Recipe};
use crate::lab::{Folder, Hypervisor, LEFT, Namespace, Rubridge, Tunnel, WireTap, stay_on_one_cpu, wait_until};
use crate::transfer::{BYTES, Made, Path};

/// Whole transfers through libpcap, which tells nothing of super-frames.
fn transfer(made: Made) {
    let totals = Path::new(made, 1500, &["ethernet:nic0 tap:tap0".to_owned()]).transfer().remove(0);
    let number = |from, pattern| totals.number(from, pattern);
    assert!(number("ethernet:nic0", "super-frames {} whole") > 100, "{totals:?}");
    assert!(number("ethernet:nic0", "out {} frames") * 1500 > 2 * BYTES as u64, "{totals:?}");
    assert!(number("tap:tap0", "{} cut") > 100, "{totals:?}");
    assert!(!totals.0.contains("dropped too_big") && !totals.0.contains("dropped malformed"), "{totals:?}");
}

#[test]
fn what_gro_merged_passes_through_libpcap() {
    transfer(Made::ByGro);
}

#[test]
fn what_tso_left_unfinished_passes_through_libpcap() {
    transfer(Made::ByTso);
}

/// What a peer's NIC merged comes out of a tunnel, or a UNIX socket, in one piece.
#[test]
fn frames_too_long_for_the_wire_are_cut_whoever_sends_them() {
    stay_on_one_cpu();
    let folder = Folder::new();
    for unix in [false, true] {
        let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
        outside.veth("wan0", &bridge, "nic0");
        // Cut by the program, not by the kernel behind it.
        let hypervisor = Hypervisor::start_with(&bridge, "--offload no-csum");
        let mut client = hypervisor.client();
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name).display().to_string());
        let nio = if unix { format!("bridge add_nio_unix b {ours} {theirs}") } else { LEFT.to_owned() };
        client.tell_all(&["bridge create b", &nio, "bridge add_nio_linux_raw b nic0", "bridge start b"]);
        let tunnel = Tunnel::new(&bridge, 20001, 20000);
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        let send = |frame: &[u8]| {
            if unix {
                socket.send_to(frame, &ours).expect("sent");
            } else {
                tunnel.send(frame);
            }
        };
        let mut wire = WireTap::new(&outside, "wan0");
        let mut number = 0;
        for (v6, bytes, unfinished, mss) in [
            (false, 1461, false, None),
            (false, 9000, true, None),
            (true, 20_001, false, None),
            (false, 9000, false, Some(700)),
        ] {
            number += 1;
            let payload = Random(3).bytes(bytes);
            let recipe = Recipe { v6, payload, ..Recipe::default() };
            if let Some(mss) = mss {
                // Its receiver is behind the wire.
                let [high, low] = u16::to_be_bytes(mss);
                let options = vec![2, 4, high, low];
                let syn = Recipe { tcp_flags: 2, tcp_options: options, payload: vec![], ..recipe.clone() };
                wire.send_plain(&syn.finished().turned_round());
                if !unix {
                    assert_eq!(tunnel.next(), syn.finished().turned_round());
                } else {
                    client.wait_for_frames("b", "Destination", 1);
                }
            }
            let built = if unfinished { recipe.begun() } else { recipe.finished() };
            send(&built.bytes);
            send(&WireTap::mark(number));
            let pieces: Vec<_> = wire.until_mark(number).into_iter().map(|heard| heard.frame).collect();
            let size = mss.map_or(if v6 { 1440 } else { 1460 }, usize::from);
            assert_eq!(pieces.len(), bytes.div_ceil(size), "{v6} {bytes} {mss:?}");
            check_segments(&recipe, &recipe.begun(), &pieces, 1500);
        }
        // What is no TCP cannot be cut.
        let datagram = Recipe { udp: true, payload: vec![1; 4000], ..Recipe::default() };
        send(&datagram.finished().bytes);
        send(&WireTap::mark(100));
        assert!(wire.until_mark(100).is_empty());
        hypervisor.wait_for_log("bytes=4042 mtu=1500 held_back=0 reason=\"too_big\"");
    }
}

#[test]
fn the_plain_bridge_infers_nothing() {
    let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
    outside.veth("wan0", &bridge, "nic0");
    let hypervisor = Hypervisor::start_with(&bridge, "--offload off");
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", LEFT, "bridge add_nio_ethernet b nic0", "bridge start b"]);
    let tunnel = Tunnel::new(&bridge, 20001, 20000);
    let built = Recipe { payload: vec![5; 9000], ..Recipe::default() }.begun();
    WireTap::new(&outside, "wan0").send(&built.virtio(1, 1460), &built.bytes);
    assert!(tunnel.next() == built.bytes, "whatever offloads did to it");
}

/// A virtio header cannot say what a datagram is that the kernel calls UFO, no more than what LRO hardware makes.
#[test]
fn an_interface_with_frames_that_the_kernel_cannot_describe_does_without_its_descriptions() {
    stay_on_one_cpu();
    let bridge = Namespace::quiet();
    let (nic, _) = bridge.run(|| TapFile::create("nic0", true)).expect("a TAP");
    bridge.ip("link set nic0 up");
    let hypervisor = Hypervisor::start(&bridge);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", LEFT, "bridge add_nio_linux_raw b nic0", "bridge start b"]);
    let tunnel = Tunnel::new(&bridge, 20001, 20000);
    let arrive = |header: [u8; 10], frame: &[u8]| nic.send(&[&header[..], frame].concat()).expect("taken");
    let datagram = Recipe { udp: true, payload: vec![1; 9000], ..Recipe::default() }.begun();
    for _ in 0..8 {
        arrive(datagram.virtio(3, 1400), &datagram.bytes);
    }
    hypervisor.wait_for_log("they are inferred");
    // It is too long for the wire, and no TCP.
    arrive(datagram.virtio(3, 1400), &datagram.bytes);
    let recipe = Recipe { payload: Random(4).bytes(20_000), ..Recipe::default() };
    let built = recipe.begun();
    arrive(built.virtio(1, 1460), &built.bytes);
    arrive([0; 10], &WireTap::mark(1));
    let pieces = tunnel.until_mark(1);
    assert_eq!(pieces.len(), 20_000usize.div_ceil(1460));
    check_segments(&recipe, &built, &pieces, 1500);
    // Nor do frames to it have a header any more.
    tunnel.send_marks([2]);
    let mut buffer = [0; 2000];
    let mut len = 0;
    wait_until("the frame leaves", || {
        len = nic.receive(&mut buffer).unwrap_or_default();
        len > 0
    });
    assert!(buffer[10..len] == WireTap::mark(2));
}

/// A TAP takes a single frame of any size, and hardware frames with tags on top of its MTU.
#[test]
fn what_an_interface_received_is_not_too_long_for_it() {
    stay_on_one_cpu();
    let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
    outside.veth("wan0", &bridge, "nic0");
    outside.ip("link set wan0 mtu 9000");
    bridge.ip("tuntap add dev tap0 mode tap");
    bridge.ip("link set tap0 mtu 1400");
    let _program = Rubridge::start(&bridge, "ethernet:nic0 tap:tap0");
    bridge.ip("link set tap0 up");
    let wire = WireTap::new(&outside, "wan0");
    let mut guest = WireTap::new(&bridge, "tap0");
    let mut number = 0;
    for tags in [vec![], vec![(0x88a8, 7)], vec![(0x88a8, 7), (0x8100, 8)]] {
        number += 1;
        // A veth takes one tag on top of its MTU.
        let payload = Random(6).bytes(1472 - 4 * tags.len().saturating_sub(1));
        let built = Recipe { tags: tags.clone(), udp: true, payload, ..Recipe::default() }.finished();
        wire.send_plain(&built.bytes);
        wire.send_plain(&WireTap::mark(number));
        let heard: Vec<_> = guest.until_mark(number).into_iter().map(|heard| heard.frame).collect();
        assert!(heard == [built.bytes], "{tags:?}: {} frames", heard.len());
    }
}
