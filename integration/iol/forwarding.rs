//! What becomes of frames.

use super::{HEADER_LEN, INSTANCE, Instance, add_nio, with_bridge};
use crate::lab::frames::Random;
use crate::lab::{Tunnel, wait_until};

#[test]
fn a_frame_gets_a_header_and_loses_it() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        tunnel.send(b"to the instance");
        let header = [0x01, 0x91, 0x03, 0x91, 0x31, 0x31, 0x01, 0x00];
        assert_eq!(instance.receive_raw(), [&header[..], b"to the instance"].concat());
        // Of the header that comes back, only the fifth byte counts.
        for other in [0, 0x31, 0xff] {
            let header = [other, other, other, other, 0x31, other, other, other];
            instance.send_raw(&[&header[..], b"from the instance"].concat());
            assert_eq!(tunnel.next(), b"from the instance");
        }
    });
}

#[test]
fn what_is_no_frame_is_dropped() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        for len in 0..=HEADER_LEN {
            instance.send_raw(&vec![0x31; len]);
        }
        instance.send(0x31, b"!");
        assert_eq!(tunnel.next(), b"!");
        tunnel.send(b"");
        tunnel.send(b"?");
        assert_eq!(instance.receive(), (0x31, b"?".to_vec()));
        // An empty datagram is a frame that was lost.
        lab.until_counted(&["101 port 1/3:      IN: 2 packets (1 bytes) OUT: 1 packets (1 bytes)"]);
    });
}

#[test]
fn a_frame_that_is_too_long_for_iol_is_dropped() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        let bytes = Random(1).bytes(5000);
        for len in [4097, 4096, 5000, 1] {
            tunnel.send(&bytes[..len]);
        }
        for len in [4096, 1] {
            assert_eq!(instance.receive(), (0x31, bytes[..len].to_vec()));
        }
        // Towards the tunnel there is no such limit.
        instance.send(0x31, &bytes);
        assert_eq!(tunnel.next(), bytes);
        lab.until_counted(&["101 port 1/3:      IN: 4 packets (13194 bytes) OUT: 1 packets (5000 bytes)"]);
    });
}

#[test]
fn an_instance_may_come_late_and_go() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let mut sent = 0;
        for round in 0..3u8 {
            // At first there is no file, then one of a socket that is closed.
            sent += 1;
            tunnel.send(b"to nobody");
            wait_until("the frame is gone", || lab.received() == sent);
            let instance = Instance::new(INSTANCE);
            sent += 1;
            tunnel.send(&[round]);
            // The one before may have been caught in between.
            wait_until("the next one arrives", || instance.receive() == (0x31, vec![round]));
        }
        assert!(lab.hypervisor.is_running());
    });
}

#[test]
fn a_peer_of_the_tunnel_may_be_missing() {
    with_bridge("", |lab| {
        lab.client.tell(&add_nio("1 3", 10_000));
        let instance = Instance::new(INSTANCE);
        for _ in 0..5 {
            instance.send(0x31, b"to nobody");
        }
        let tunnel = Tunnel::new(lab.namespace, 20_000, 10_000);
        tunnel.send(b"from the tunnel");
        assert_eq!(instance.receive(), (0x31, b"from the tunnel".to_vec()));
        instance.send(0x31, b"to the tunnel");
        wait_until("frames get through", || tunnel.next() == b"to the tunnel");
    });
}

/// Frames of each port in a round: fewer in all than the queue of an instance holds (net.unix.max_dgram_qlen).
const FRAMES_A_ROUND: usize = 2;
const ROUNDS: usize = 500;
const PORTS: [(&str, u8); 4] = [("0 0", 0x00), ("1 3", 0x31), ("15 0", 0x0f), ("15 15", 0xff)];

/// The frames of a port in a round; no two are alike.
fn frames(port: u8, round: usize) -> Vec<Vec<u8>> {
    let mut random = Random(u64::from(port) << 32 | round as u64);
    let frame = |_| {
        let len = 1 + random.below(4096);
        random.bytes(len)
    };
    (0..FRAMES_A_ROUND).map(frame).collect()
}

#[test]
fn ports_do_not_mix_and_keep_their_order_under_load() {
    with_bridge("", |lab| {
        let tunnels = PORTS.map(|(port, number)| lab.connect(port, 10_000 + u16::from(number)));
        let instance = Instance::new(INSTANCE);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut expected = PORTS.map(|(_, port)| (port, frames(port, round).into_iter()));
                    for (tunnel, (_, frames)) in tunnels.iter().zip(&expected) {
                        frames.clone().for_each(|frame| tunnel.send(&frame));
                    }
                    for _ in 0..PORTS.len() * FRAMES_A_ROUND {
                        let (port, frame) = instance.receive();
                        let (_, frames) = expected.iter_mut().find(|(other, _)| *other == port).expect("a port");
                        assert!(frames.next() == Some(frame), "round {round}, port {port:#x}");
                    }
                }
            });
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let frames = PORTS.map(|(_, port)| frames(port, !round));
                    for at in 0..FRAMES_A_ROUND {
                        for ((_, port), frames) in PORTS.iter().zip(&frames) {
                            instance.send(*port, &frames[at]);
                        }
                    }
                    for (tunnel, frames) in tunnels.iter().zip(frames) {
                        for frame in frames {
                            assert!(tunnel.next() == frame, "round {round}");
                        }
                    }
                }
            });
        });
        let count = ROUNDS * FRAMES_A_ROUND;
        let counts = [format!("IN: {count} packets"), format!("OUT: {count} packets")];
        wait_until("all is counted", || lab.stats().iter().all(|line| counts.iter().all(|count| line.contains(count))));
        assert_eq!(lab.stats().len(), PORTS.len());
    });
}

#[test]
fn traffic_is_counted_by_port() {
    with_bridge("", |lab| {
        let [first, second] = [lab.connect("2 1", 10_000), lab.connect("15 0", 10_001)];
        let instance = Instance::new(INSTANCE);
        for frame in [&b"abc"[..], b"defgh"] {
            first.send(frame);
            instance.receive();
        }
        instance.send(0x0f, b"0123456789");
        second.next();
        let stats = |port, received: &str, sent: &str| format!("101 port {port}:      IN: {received} OUT: {sent}");
        let nothing = "0 packets (0 bytes)";
        // In the order of their numbers, bay + 16 * unit.
        let counted = [stats("15/0", nothing, "1 packets (10 bytes)"), stats("2/1", "2 packets (8 bytes)", nothing)];
        lab.until_counted(&counted);
        lab.expect("iol_bridge reset_stats b", "100-OK");
        assert_eq!(lab.stats(), [stats("15/0", nothing, nothing), stats("2/1", nothing, nothing)]);
        first.send(b"a");
        instance.receive();
        assert_eq!(lab.received(), 0, "it is the other port's");
        wait_until("it is counted", || lab.stats()[1] == stats("2/1", "1 packets (1 bytes)", nothing));
    });
}

#[test]
fn each_frame_is_told_where_that_is_asked_for() {
    with_bridge("-d 1", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let instance = Instance::new(INSTANCE);
        tunnel.send(&[1; 61]);
        instance.receive();
        instance.send(0x31, &[2; 62]);
        tunnel.next();
        lab.client.tell("iol_bridge add_packet_filter b 1 3 all frequency_drop -1");
        tunnel.send(&[1; 63]);
        instance.send(0x31, &[2; 64]);
        for line in [
            "Received 61 bytes from destination NIO on IOL bridge 'b'\n",
            "Received 62 bytes from IOL instance on IOL bridge 'b'\n",
            "Received 63 bytes from destination NIO on IOL bridge 'b'\n",
            "Packet dropped by packet filter 'all' from destination NIO on IOL bridge 'b'\n",
            "Packet dropped by packet filter 'all' from IOL instance on IOL bridge 'b'\n",
        ] {
            wait_until(line, || lab.hypervisor.log().contains(line));
        }
    });
}

#[test]
fn a_filter_may_be_for_one_direction_of_a_port() {
    with_bridge("", |lab| {
        let instance = Instance::new(INSTANCE);
        let tunnel = lab.connect("1 3", 21_000);
        for (direction, from_the_instance) in [("destination", true), ("source", false)] {
            lab.client.tell(&format!("iol_bridge add_packet_filter b 1 3 f duplicate 100 dir={direction}"));
            let (from_instance, from_tunnel) = if from_the_instance { (1, 2) } else { (2, 1) };
            for number in 0..3 {
                instance.send(0x31, &[number; 60]);
                tunnel.send(&[100 + number; 60]);
                (0..from_instance).for_each(|_| assert_eq!(tunnel.next(), [number; 60]));
                (0..from_tunnel).for_each(|_| assert_eq!(instance.receive(), (0x31, vec![100 + number; 60])));
            }
            lab.client.tell("iol_bridge reset_packet_filters b 1 3");
        }
    });
}
