//! Captures of frames that really pass a bridge.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::lab::capture_file::{HEADER_LEN, frames_of, frames_so_far, link_type_of};
use crate::lab::check::check_segments;
use crate::lab::frames::{Random, Recipe};
use crate::lab::{Hypervisor, LEFT, Namespace, RIGHT, Tunnel, TwoTunnels, WireTap, stay_on_one_cpu, wait_until};

impl TwoTunnels<'_> {
    fn capture_to(&mut self, file: &str) {
        self.client.tell(&format!("bridge start_capture b {file}"));
    }

    fn end_capture(&mut self) {
        self.client.tell("bridge stop_capture b");
    }
}

#[test]
fn a_capture_may_begin_before_everything_else() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge start_capture b \"with blank.pcap\""]);
    let path = hypervisor.path("with blank.pcap");
    assert_eq!(fs::metadata(&path).expect("the file is there").len(), HEADER_LEN as u64, "with its header");
    client.tell_all(&[LEFT, RIGHT, "bridge start b"]);
    let (left, right) = (Tunnel::new(&namespace, 20001, 20000), Tunnel::new(&namespace, 20003, 20002));
    left.send_marks([1]);
    right.expect_mark(1);
    client.tell_all(&["bridge stop b", "bridge start b"]);
    left.send_marks([2]);
    right.expect_mark(2);
    client.tell("bridge stop_capture b");
    assert_eq!(frames_of(&path), [WireTap::mark(1), WireTap::mark(2)]);
}

#[test]
fn a_reader_that_follows_along_sees_every_frame_of_both_directions() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.capture_to("live.pcap");
    let path = tunnels.hypervisor.path("live.pcap");
    let mut expected = Vec::new();
    for (number, frame) in Random(31).frames(60).into_iter().enumerate() {
        let (from, to) =
            if number % 2 == 0 { (&tunnels.left, &tunnels.right) } else { (&tunnels.right, &tunnels.left) };
        from.send(&frame);
        assert!(to.next() == frame);
        expected.push(frame);
        wait_until("the frame is in the file", || frames_so_far(&path) == expected);
    }
    tunnels.end_capture();
    assert!(frames_of(&path) == expected);
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
    assert!(frames_of(&path) == expected, "nothing comes after the end");
}

#[test]
fn a_capture_shows_what_the_filters_made_of_frames() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.capture_to("filtered.pcap");
    tunnels.client.tell("bridge add_packet_filter b odd bpf \"ether[15] & 1 == 1\"");
    tunnels.client.tell("bridge add_packet_filter b damage corrupt 100");
    let mut arrived = Vec::new();
    tunnels.left.send_marks(0..10);
    for number in [0, 2, 4, 6, 8] {
        let frame = tunnels.right.next();
        assert_eq!(frame[..16], WireTap::mark(number)[..16]);
        assert!(frame != WireTap::mark(number), "it is damaged");
        arrived.push(frame);
    }
    tunnels.wait_for_frames(10);
    tunnels.end_capture();
    assert_eq!(frames_of(&tunnels.hypervisor.path("filtered.pcap")), arrived);

    // What is held back is not there before it is sent.
    tunnels.client.tell("bridge reset_packet_filters b");
    tunnels.client.tell("bridge add_packet_filter b held delay 3600000");
    tunnels.capture_to("held.pcap");
    tunnels.left.send_marks(0..10);
    tunnels.wait_for_frames(20);
    tunnels.end_capture();
    assert!(frames_of(&tunnels.hypervisor.path("held.pcap")).is_empty());
}

#[test]
fn frames_that_nobody_takes_are_captured_all_the_same() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.capture_to("alone.pcap");
    let nobody = Tunnel::new(&namespace, 20005, 20004);
    tunnels.right = nobody;
    tunnels.left.send_marks(0..10);
    tunnels.wait_for_frames(10);
    tunnels.end_capture();
    assert_eq!(frames_of(&tunnels.hypervisor.path("alone.pcap")).len(), 10);
}

#[test]
fn super_frames_are_captured_as_they_are_on_a_wire() {
    stay_on_one_cpu();
    let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
    outside.veth("wan0", &bridge, "nic0");
    for kind in ["linux_raw", "ethernet"] {
        for other in [LEFT, "bridge add_nio_tap b tap0"] {
            let hypervisor = Hypervisor::start(&bridge);
            let mut client = hypervisor.client();
            let nic = format!("bridge add_nio_{kind} b nic0");
            client.tell_all(&["bridge create b", other, &nic, "bridge start b", "bridge start_capture b c.pcap"]);
            let wire = WireTap::new(&outside, "wan0");
            let path = hypervisor.path("c.pcap");
            let mut before = 0;
            for (v6, udp, gso_type, fits) in [(false, false, 1, 1460), (true, false, 4, 1440), (false, true, 5, 0)] {
                // libpcap does not tell the segment size, so it is as large as fits, and not known for datagrams.
                let size = if kind == "ethernet" { fits } else { 1400 };
                if size == 0 {
                    continue;
                }
                let recipe = Recipe { v6, udp, payload: Random(2).bytes(30_001), ..Recipe::default() };
                let built = recipe.begun();
                wire.send(&built.virtio(gso_type, 1400), &built.bytes);
                let pieces = 30_001usize.div_ceil(size);
                wait_until("all pieces are in the file", || frames_so_far(&path).len() == before + pieces);
                check_segments(&recipe, &built, &frames_so_far(&path)[before..], 1500);
                before += pieces;
            }
            client.tell("bridge delete b");
            assert_eq!(frames_of(&path).len(), before);
        }
    }
}

#[test]
fn a_capture_to_the_same_file_starts_anew() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let path = tunnels.hypervisor.path("again.pcap");
    for number in [1, 2] {
        tunnels.capture_to("again.pcap");
        assert_eq!(frames_so_far(&path), [[0; 0]; 0], "nothing old is shown");
        let active = ["209-packet capture is already active on bridge 'b'"];
        assert_eq!(tunnels.client.ask("bridge start_capture b other.pcap"), active);
        assert!(!tunnels.hypervisor.path("other.pcap").exists());
        tunnels.left.send_marks([number]);
        tunnels.right.expect_mark(number);
        tunnels.end_capture();
        assert_eq!(frames_of(&path), [WireTap::mark(number)]);
    }
}

#[test]
fn link_types_are_known_by_their_names() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::stopped(&namespace, "");
    for (name, number) in [
        ("", 1),
        ("EN10MB", 1),
        ("DLT_EN10MB", 1),
        ("frelay", 107),
        ("C_HDLC", 104),
        ("DLT_C_HDLC", 104),
        ("PPP_SERIAL", 50),
        ("ATM_RFC1483", 100),
        ("NOSUCH", 1),
    ] {
        tunnels.capture_to(&format!("typed.pcap {name}"));
        tunnels.end_capture();
        assert_eq!(link_type_of(&tunnels.hypervisor.path("typed.pcap")), number, "{name}");
        let told = tunnels.hypervisor.log().contains("unknown link type");
        assert!(!told || name == "NOSUCH", "{name}");
    }
    tunnels.hypervisor.wait_for_log("unknown link type NOSUCH, assuming Ethernet.\n");
}

#[test]
fn a_file_called_minus_is_a_file() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let log = tunnels.hypervisor.log();
    tunnels.capture_to("-");
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
    tunnels.end_capture();
    assert_eq!(frames_of(&tunnels.hypervisor.path("-")), [WireTap::mark(1)]);
    assert_eq!(tunnels.hypervisor.log(), log);
}

#[test]
fn a_capture_is_complete_when_its_bridge_is_gone() {
    let namespace = Namespace::new();
    for end in ["bridge delete b", "hypervisor reset", "hypervisor stop"] {
        let mut tunnels = TwoTunnels::start(&namespace);
        tunnels.capture_to("last.pcap");
        tunnels.left.send_marks(0..500);
        (0..500).for_each(|number| tunnels.right.expect_mark(number));
        tunnels.client.tell(end);
        let path = tunnels.hypervisor.path("last.pcap");
        if end == "hypervisor stop" {
            assert_eq!(tunnels.hypervisor.end(), Some(0));
        }
        assert_eq!(frames_of(&path).len(), 500, "{end}");
    }
}

/// How often each of these lengths occurs.
fn lengths(frames: &[Vec<u8>]) -> BTreeMap<usize, usize> {
    frames.iter().fold(BTreeMap::new(), |mut counts, frame| {
        *counts.entry(frame.len()).or_default() += 1;
        counts
    })
}

#[test]
fn captures_start_and_stop_under_traffic_for_ever() {
    let namespace = Namespace::new();
    let TwoTunnels { hypervisor, mut client, left, right } = TwoTunnels::start(&namespace);
    let (fds, threads) = (hypervisor.count("fd"), hypervisor.count("task"));
    let done = AtomicBool::new(false);
    // Each direction has a length of its own.
    let pump = |tunnel: &Tunnel, len: usize| {
        tunnel.socket.set_nonblocking(true).expect("a socket");
        while !done.load(Relaxed) {
            (0..20).for_each(|_| tunnel.send(&vec![2; len]));
            while tunnel.socket.recv(&mut [0; 2000]).is_ok() {}
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut recorded = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| pump(&left, 100));
        scope.spawn(|| pump(&right, 200));
        for round in 0..500 {
            let refused = ["209-packet capture could not be started on bridge 'b'"];
            assert_eq!(client.ask("bridge start_capture b /no/such/folder/c.pcap"), refused);
            let file = format!("{}.pcap", round % 3);
            client.tell(&format!("bridge start_capture b {file}"));
            if round % 10 == 0 {
                wait_until("frames of both directions are there", || {
                    lengths(&frames_so_far(&hypervisor.path(&file))).len() == 2
                });
            }
            client.tell("bridge stop_capture b");
            for (len, count) in lengths(&frames_of(&hypervisor.path(&file))) {
                *recorded.entry(len).or_insert(0) += count;
            }
            assert_eq!(client.ask("bridge stop_capture b"), ["209-no packet capture active on bridge 'b'"]);
        }
        done.store(true, Relaxed);
    });
    assert_eq!(recorded.keys().copied().collect::<Vec<_>>(), [100, 200], "whole frames, of both directions");
    wait_until("no descriptor is left behind", || hypervisor.count("fd") == fds);
    wait_until("no thread is left behind", || hypervisor.count("task") == threads);
}

#[test]
fn every_frame_of_a_burst_is_captured() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.capture_to("burst.pcap");
    let mut random = Random(44);
    let mut sent = Vec::new();
    for _ in 0..20 {
        // As many as surely fit into the buffers on their way.
        let frames = random.frames(500);
        frames.iter().for_each(|frame| tunnels.left.send(frame));
        assert!(frames.iter().all(|frame| tunnels.right.next() == *frame));
        sent.extend(frames);
    }
    tunnels.end_capture();
    assert!(frames_of(&tunnels.hypervisor.path("burst.pcap")) == sent);
    check_tcpdump_reads(&namespace, &tunnels.hypervisor.path("burst.pcap"), sent.len());
}

fn check_tcpdump_reads(namespace: &Namespace, path: &Path, frames: usize) {
    let told = namespace.command("tcpdump", &format!("-Z root --count -r {}", path.display()));
    assert_eq!(told.trim(), format!("{frames} packets"));
}
