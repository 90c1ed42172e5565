//! Commands that change a bridge, with and without traffic.

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::{BRIDGE, INSTANCE, Instance, Lab, add_nio, path, with_bridge};
use crate::lab::capture_file::frames_so_far;
use crate::lab::{EndsThreads, Tunnel, is_free, wait_until};

const MOMENT: Duration = Duration::from_millis(20);

/// Keeps frames coming from both sides of port 1/3 while `task` runs.
fn under_traffic<T>(instance: &Instance, tunnel: &Tunnel, task: impl FnOnce() -> T) -> T {
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.set_nonblocking(true).expect("it does not wait");
    let frame = [&[0, 0, 0, 0, 0x31, 0, 0, 0], &[7; 100][..]].concat();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndsThreads(&done);
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // The bridge may be gone, or have no room.
                let _ = sender.send_to(&frame, path(BRIDGE));
                tunnel.send(&frame);
                std::thread::yield_now();
            }
        });
        // Both ends are emptied, so that nothing is lost for want of room there.
        scope.spawn(|| {
            instance.socket.set_read_timeout(Some(MOMENT)).expect("a timeout");
            while !done.load(Relaxed) || instance.socket.recv(&mut [0; 200]).is_ok() {
                let _ = instance.socket.recv(&mut [0; 200]);
            }
        });
        scope.spawn(|| {
            while !done.load(Relaxed) || tunnel.receive_within(MOMENT).is_some() {
                tunnel.receive_within(MOMENT);
            }
        });
        task()
    })
}

/// Frames get through a port both ways, whatever is still under way.
fn check_passes(lab: &mut Lab<'_>, port: (&str, u8), tunnel: &Tunnel) {
    let (words, number) = port;
    let instance = Instance::new(INSTANCE);
    let mark = format!("{words} {:?}", std::time::Instant::now());
    wait_until("a frame reaches the instance", || {
        tunnel.send(mark.as_bytes());
        instance.receive().1 == mark.as_bytes()
    });
    wait_until("a frame reaches the tunnel", || {
        instance.send(number, mark.as_bytes());
        tunnel.next() == mark.as_bytes()
    });
    assert!(lab.hypervisor.is_running());
}

#[test]
fn a_tunnel_added_to_a_running_bridge_forwards_at_once() {
    with_bridge("", |lab| {
        for unit in 0..16u8 {
            let port = format!("15 {unit}");
            let tunnel = lab.connect(&port, 10_000 + u16::from(unit));
            check_passes(lab, (&port, unit << 4 | 15), &tunnel);
        }
    });
}

#[test]
fn a_port_is_unlinked_and_relinked_under_traffic() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        let file = lab.hypervisor.path("port.pcap");
        let capture = format!("iol_bridge start_capture b 1 3 {}", file.display());
        under_traffic(&instance, &tunnel, || {
            for _ in 0..30 {
                for filter in ["slow delay 1", "some packet_loss 10", "bits corrupt 10"] {
                    lab.client.tell(&format!("iol_bridge add_packet_filter b 1 3 {filter}"));
                }
                lab.client.tell(&capture);
                wait_until("it is captured", || !frames_so_far(&file).is_empty());
                lab.expect("iol_bridge delete_nio_udp b 1 3", "100-NIO UDP deleted from IOL bridge 'b'");
                lab.expect("iol_bridge reset_packet_filters b 1 3", "100-OK");
                lab.expect("iol_bridge stop_capture b 1 3", "214-no packet capture active on port 1/3");
                lab.expect("iol_bridge delete_nio_udp b 1 3", "100-NIO UDP deleted from IOL bridge 'b'");
                lab.expect(&add_nio("1 3", 10_000), "100-NIO UDP added to IOL bridge 'b'");
                lab.expect("iol_bridge delete_packet_filter b 1 3 slow", "206-Failed to delete filter 'slow'");
            }
        });
        check_passes(lab, ("1 3", 0x31), &tunnel);
    });
}

/// What was at a port goes with its tunnel.
fn check_replaced(lab: &mut Lab<'_>, second: u16) {
    let file = lab.hypervisor.path("port.pcap");
    lab.client.tell("iol_bridge add_packet_filter b 1 3 all frequency_drop -1");
    lab.client.tell(&format!("iol_bridge start_capture b 1 3 {}", file.display()));
    lab.expect(&add_nio("1 3", second), "100-NIO UDP added to IOL bridge 'b'");
    lab.expect("iol_bridge delete_packet_filter b 1 3 all", "206-Failed to delete filter 'all'");
    lab.expect("iol_bridge stop_capture b 1 3", "214-no packet capture active on port 1/3");
    assert_eq!(lab.client.ask("iol_bridge list"), ["101 b (ports = 1)", "100-OK"]);
}

#[test]
fn a_tunnel_is_replaced() {
    with_bridge("", |lab| {
        lab.connect("1 3", 10_000);
        let tunnels = [10_001, 10_002].map(|local| Tunnel::new(lab.namespace, local + 10_000, local));
        check_replaced(lab, 10_001);
        check_passes(lab, ("1 3", 0x31), &tunnels[0]);
        // By the very same.
        check_replaced(lab, 10_001);
        check_passes(lab, ("1 3", 0x31), &tunnels[0]);
        lab.expect("iol_bridge stop b", "100-IOL bridge 'b' stopped");
        check_replaced(lab, 10_001);
        check_replaced(lab, 10_002);
        lab.expect("iol_bridge start b", "100-IOL bridge 'b' started");
        check_passes(lab, ("1 3", 0x31), &tunnels[1]);
    });
}

#[test]
fn a_tunnel_that_another_port_has_is_refused() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        lab.expect(&add_nio("1 4", 10_000), "206-unable to create NIO UDP for IOL bridge 'b'");
        // What cannot be had replaces nothing.
        lab.client.tell("iol_bridge add_packet_filter b 1 3 none frequency_drop 0");
        let unknown = format!("iol_bridge add_nio_udp b {INSTANCE} 1 3 1 no.such.host.invalid 2");
        lab.expect(&unknown, "206-unable to create NIO UDP for IOL bridge 'b'");
        lab.expect("iol_bridge delete_packet_filter b 1 3 none", "100-Filter 'none' deleted from bridge 'b'");
        check_passes(lab, ("1 3", 0x31), &tunnel);
    });
}

#[test]
fn a_renamed_bridge_goes_on_and_starts_again() {
    with_bridge("-d 1", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        lab.expect("iol_bridge rename b c", "100-IOL bridge 'b' renamed to 'c'");
        lab.expect("iol_bridge rename c c", "213-IOL bridge 'c' already exist");
        tunnel.send(b"frame");
        instance.receive();
        let line = "Received 5 bytes from destination NIO on IOL bridge 'c'\n";
        wait_until("its name is told", || lab.hypervisor.log().contains(line));
        for command in ["stop", "start"] {
            lab.client.tell(&format!("iol_bridge {command} c"));
        }
        check_passes(lab, ("1 3", 0x31), &tunnel);
        lab.client.tell("iol_bridge stop c");
        lab.client.tell("iol_bridge rename c b");
        lab.client.tell("iol_bridge start b");
        check_passes(lab, ("1 3", 0x31), &tunnel);
    });
}

#[test]
fn frames_wait_while_a_bridge_is_stopped() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        lab.client.tell("iol_bridge stop b");
        tunnel.send(b"waiting for the instance");
        instance.send(0x31, b"waiting for the tunnel");
        lab.client.tell("iol_bridge start b");
        assert_eq!(instance.receive(), (0x31, b"waiting for the instance".to_vec()));
        assert_eq!(tunnel.next(), b"waiting for the tunnel");
    });
}

#[test]
fn a_bridge_is_deleted_under_traffic_again_and_again() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        let file = lab.hypervisor.path("port.pcap");
        under_traffic(&instance, &tunnel, || {
            for _ in 0..100 {
                lab.client.tell("iol_bridge add_packet_filter b 1 3 slow delay 1");
                lab.client.tell(&format!("iol_bridge start_capture b 1 3 {}", file.display()));
                wait_until("frames flow", || lab.received() > 0);
                lab.expect("iol_bridge delete b", "100-IOL bridge 'b' deleted");
                assert!(!path(BRIDGE).exists());
                lab.client.tell(&format!("iol_bridge create b {BRIDGE}"));
                lab.client.tell(&add_nio("1 3", 10_000));
                lab.client.tell("iol_bridge start b");
            }
        });
        check_passes(lab, ("1 3", 0x31), &tunnel);
    });
}

#[test]
fn a_deleted_bridge_leaves_nothing_open() {
    with_bridge("", |lab| {
        lab.client.tell("iol_bridge delete b");
        let count = |lab: &Lab<'_>| (lab.hypervisor.count("fd"), lab.hypervisor.count("task"));
        let before = count(lab);
        let file = lab.hypervisor.path("port.pcap");
        let restarts: [&[&str]; 4] = [&[], &["start"], &["start", "stop"], &["start", "stop", "start"]];
        for commands in restarts {
            lab.client.tell(&format!("iol_bridge create b {BRIDGE}"));
            lab.client.tell(&add_nio("1 3", 10_000));
            lab.client.tell("iol_bridge add_packet_filter b 1 3 slow delay 1");
            for port in ["1 3", "2 0"] {
                lab.client.tell(&format!("iol_bridge start_capture b {port} {}", file.display()));
            }
            for command in commands {
                lab.client.tell(&format!("iol_bridge {command} b"));
            }
            lab.client.tell("iol_bridge delete b");
            // The thread of a capture may take a moment to end.
            wait_until("everything is closed", || count(lab) == before);
            assert!(is_free(lab.namespace, 10_000));
            assert!(!path(BRIDGE).exists());
        }
    });
}

#[test]
fn a_reset_ends_every_bridge() {
    with_bridge("", |lab| {
        let other = path(BRIDGE + 1);
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        under_traffic(&instance, &tunnel, || {
            for _ in 0..20 {
                lab.client.tell(&format!("iol_bridge create never-started {}", BRIDGE + 1));
                lab.expect("hypervisor reset", "100-OK");
                lab.expect("iol_bridge list", "100-OK");
                assert!(!path(BRIDGE).exists() && !other.exists());
                lab.client.tell(&format!("iol_bridge create b {BRIDGE}"));
                lab.client.tell(&add_nio("1 3", 10_000));
                lab.client.tell("iol_bridge start b");
            }
        });
        check_passes(lab, ("1 3", 0x31), &tunnel);
    });
}

#[test]
fn ports_and_ids_have_their_ranges() {
    with_bridge("", |lab| {
        for (port, key) in
            [("16 0", "16"), ("0 16", "256"), ("-1 0", "-1"), ("x 0", "x/0"), ("0 x", "0/x"), ("256 0", "256")]
        {
            let text = format!("Port number {key} exceeding 256 on bridge 'b'");
            for (code, command) in [
                ("206", add_nio(port, 10_000)),
                ("214", format!("iol_bridge delete_nio_udp b {port}")),
                ("214", format!("iol_bridge start_capture b {port} /tmp/none.pcap")),
                ("206", format!("iol_bridge stop_capture b {port}")),
                ("206", format!("iol_bridge add_packet_filter b {port} f delay 1")),
                ("206", format!("iol_bridge delete_packet_filter b {port} f")),
                ("206", format!("iol_bridge reset_packet_filters b {port}")),
            ] {
                lab.expect(&command, &format!("{code}-{text}"));
            }
        }
        assert!(!std::fs::exists("/tmp/none.pcap").expect("readable"));
        for id in ["0", "65536", "-5", "x", "4294967296", "4294968209"] {
            let failed = "206-could not create IOL bridge 'c': cannot create UNIX domain socket";
            lab.expect(&format!("iol_bridge create c {id}"), failed);
            let add = format!("iol_bridge add_nio_udp b {id} 0 0 10000 127.0.0.1 20000");
            lab.expect(&add, "206-unable to create NIO UDP for IOL bridge 'b'");
        }
        let own = format!("iol_bridge add_nio_udp b {BRIDGE} 0 0 10000 127.0.0.1 20000");
        lab.expect(&own, &format!("206-IOU ID {BRIDGE} cannot be the same as bridge 'b' ID"));
        lab.expect("iol_bridge create c 65535", "100-IOL bridge 'c' created");
        assert_eq!(lab.client.ask("iol_bridge list"), ["101 c (ports = 0)", "101 b (ports = 0)", "100-OK"]);
    });
}

#[test]
fn an_iou_node_is_started_and_its_links_change() {
    with_bridge("", |lab| {
        let [first, second, third] =
            [10_000, 10_001, 10_002].map(|port| Tunnel::new(lab.namespace, port + 10_000, port));
        lab.expect("iol_bridge delete IOL-BRIDGE-913", "214-IOL bridge 'IOL-BRIDGE-913' doesn't exist");
        // The node is started a second time: its bridge is still there.
        lab.client.tell("iol_bridge rename b IOL-BRIDGE-913");
        lab.client.tell("iol_bridge delete IOL-BRIDGE-913");
        let instance = Instance::new(INSTANCE);
        lab.client.tell(&format!("iol_bridge create IOL-BRIDGE-913 {BRIDGE}"));
        let file = lab.hypervisor.path("link.pcap");
        let on = |rest: &str| rest.replace(" b ", " IOL-BRIDGE-913 ");
        for (port, local) in [("0 0", 10_000), ("1 3", 10_001)] {
            lab.client.tell(&on(&add_nio(port, local)));
            lab.client.tell(&on(&format!("iol_bridge start_capture b {port} \"{}\" EN10MB", file.display())));
            lab.client.tell(&on(&format!("iol_bridge reset_packet_filters b {port} ")));
            lab.client.tell(&on(&format!("iol_bridge add_packet_filter b {port} filter0 packet_loss 0")));
        }
        lab.client.tell("iol_bridge start IOL-BRIDGE-913");
        for (number, tunnel) in [(0x00, &first), (0x31, &second)] {
            tunnel.send(b"started");
            assert_eq!(instance.receive(), (number, b"started".to_vec()));
            instance.send(number, b"started");
            assert_eq!(tunnel.next(), b"started");
        }
        lab.client.tell("iol_bridge delete_nio_udp IOL-BRIDGE-913 1 3");
        lab.client.tell(&on(&add_nio("1 3", 10_002)));
        lab.client.tell("iol_bridge reset_packet_filters IOL-BRIDGE-913 1 3");
        instance.send(0x31, b"relinked");
        assert_eq!(third.next(), b"relinked");
        lab.expect("hypervisor stop", "100-OK");
        assert_eq!(lab.hypervisor.end(), Some(0));
        assert!(!path(BRIDGE).exists());
    });
}
