//! What arrives at a bridge that does not run: kept where the bridge is spoken to, forgotten where it overhears.

use std::os::unix::net::UnixDatagram;

use crate::lab::{Client, Hypervisor, LEFT, Namespace, RIGHT, Tunnel, TwoTunnels, WireTap, wait_until};

/// Sends the first three marks before the start and the next three while it is stopped; all must arrive, once.
fn check_kept(client: &mut Client, source: impl Fn(u16), destination: &Tunnel) {
    (1..=3).for_each(&source);
    client.tell("bridge start b");
    (1..=3).for_each(|number| destination.expect_mark(number));
    client.tell("bridge stop b");
    (4..=6).for_each(&source);
    client.tell("bridge start b");
    (4..=6).for_each(|number| destination.expect_mark(number));
    source(7);
    destination.expect_mark(7);
}

#[test]
fn a_udp_tunnel_keeps_frames_until_the_start() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, left, right, hypervisor: _hypervisor } = TwoTunnels::stopped(&namespace, "");
    check_kept(&mut client, |number| left.send_marks([number]), &right);
}

#[test]
fn a_unix_socket_keeps_frames_until_the_start() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge add_nio_unix b near far", RIGHT]);
    let right = Tunnel::new(&namespace, 20003, 20002);
    let peer = UnixDatagram::unbound().expect("a socket");
    let near = hypervisor.path("near");
    check_kept(&mut client, |number| assert!(peer.send_to(&WireTap::mark(number), &near).is_ok()), &right);
}

#[test]
fn a_tap_keeps_frames_until_the_start() {
    let namespace = Namespace::quiet();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge add_nio_tap b tap0", RIGHT]);
    namespace.ip("link set tap0 up");
    let right = Tunnel::new(&namespace, 20003, 20002);
    let inside = WireTap::new(&namespace, "tap0");
    check_kept(&mut client, |number| inside.send_plain(&WireTap::mark(number)), &right);
}

#[test]
fn of_an_interface_nothing_is_kept() {
    for kind in ["linux_raw", "ethernet"] {
        let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
        outside.veth("wan0", &bridge, "nic0");
        // Hears each frame after the bridge would, so that the bridge cannot hear one later on.
        let mut witness = WireTap::new(&bridge, "nic0");
        let hypervisor = Hypervisor::start(&bridge);
        let mut client = hypervisor.client();
        client.tell_all(&["bridge create b", LEFT, &format!("bridge add_nio_{kind} b nic0")]);
        let left = Tunnel::new(&bridge, 20001, 20000);
        let wire = WireTap::new(&outside, "wan0");
        let mut send = |number| {
            wire.send_plain(&WireTap::mark(number));
            witness.until_mark(number);
        };
        (1..=3).for_each(&mut send);
        client.tell("bridge start b");
        send(4);
        left.expect_mark(4);
        client.tell("bridge stop b");
        (5..=7).for_each(&mut send);
        client.tell("bridge start b");
        send(8);
        left.expect_mark(8);
        wait_until("it is counted", || client.stats("b", "Destination")[0] == 2);
    }
}

#[test]
fn bridges_start_and_stop_under_traffic_for_ever() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let fds = tunnels.hypervisor.count("fd");
    tunnels.with_traffic(|client| {
        for _ in 0..500 {
            client.tell_all(&["bridge stop b", "bridge start b", "bridge get_stats b", "bridge reset_stats b"]);
        }
    });
    tunnels.left.send_marks([5000]);
    tunnels.right.until_mark(5000);
    tunnels.right.send_marks([5000]);
    tunnels.left.until_mark(5000);
    assert_eq!(tunnels.hypervisor.count("fd"), fds);
}

#[test]
fn counts_survive_a_stop_and_start_from_zero_for_a_new_nio() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, left, right, hypervisor: _hypervisor } = TwoTunnels::start(&namespace);
    let frame = |len: usize| vec![1; len];
    let send = |from: &Tunnel, to: &Tunnel, lens: &[usize]| {
        for &len in lens {
            from.send(&frame(len));
            assert_eq!(to.next().len(), len);
        }
    };
    send(&left, &right, &[60, 100, 1514]);
    send(&right, &left, &[70, 9000]);
    let expect = |client: &mut Client, source: [u64; 4], destination: [u64; 4]| {
        // A frame is counted right after it was sent.
        wait_until("all is counted", || client.stats("b", "Source") == source);
        wait_until("all is counted", || client.stats("b", "Destination") == destination);
    };
    expect(&mut client, [3, 1674, 2, 9070], [2, 9070, 3, 1674]);
    client.tell("bridge stop b");
    expect(&mut client, [3, 1674, 2, 9070], [2, 9070, 3, 1674]);
    client.tell("bridge start b");
    send(&left, &right, &[60]);
    expect(&mut client, [4, 1734, 2, 9070], [2, 9070, 4, 1734]);
    client.tell("bridge rename b c");
    client.tell("bridge rename c b");
    client.tell("bridge reset_stats b");
    expect(&mut client, [0; 4], [0; 4]);
    send(&left, &right, &[60]);
    send(&right, &left, &[80]);
    expect(&mut client, [1, 60, 1, 80], [1, 80, 1, 60]);

    client.tell_all(&["bridge stop b", "bridge delete_nio_udp b 20000 127.0.0.1 20001"]);
    let shown = client.tell("bridge get_stats b");
    assert_eq!(shown, ["101 Destination NIO: IN: 1 packets (80 bytes) OUT: 1 packets (60 bytes)", "100-OK"]);
    client.tell(LEFT);
    expect(&mut client, [0; 4], [1, 80, 1, 60]);
    client.tell("bridge start b");
    send(&left, &right, &[61]);
    expect(&mut client, [1, 61, 0, 0], [1, 80, 2, 121]);
}
