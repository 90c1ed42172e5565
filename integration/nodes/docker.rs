//! Docker nodes, and the NAT node that they reach the world through.

use super::{Container, address, count, talk, two_hosts};
use crate::lab::{Hypervisor, Namespace, has_interface, wait_until};
use crate::transfer;

/// Two containers, each on its own host, whose adapters 0 are linked.
fn two_containers<'a>(hosts: &'a [Namespace; 2], capture: bool) -> [Container<'a>; 2] {
    let mut containers = hosts.each_ref().map(|host| Container::new(host, 3));
    let file = containers[0].hypervisor.path("the link.pcap");
    containers[0].link(0, &format!("10000 {} 10001", address(2)), capture.then_some(&*file));
    containers[1].link(0, &format!("10001 {} 10000", address(1)), None);
    containers[0].configure(0, "10.1.0.1");
    containers[1].configure(0, "10.1.0.2");
    containers
}

#[test]
fn containers_are_linked_unlinked_and_linked_anew() {
    let hosts = two_hosts();
    let [mut one, mut other] = two_containers(&hosts, true);
    let link = one.namespace.command("ip", "-o link show dev eth0");
    assert!(link.contains(&one.mac(0)), "{link}");
    for adapter in 0..3 {
        assert!(has_interface(&one.namespace, &format!("eth{adapter}")));
        assert!(!has_interface(&hosts[0], &format!("tap-gns3-e{adapter}")));
    }
    talk(&one.namespace, &other.namespace, "10.1.0.2", b"first link");
    talk(&other.namespace, &one.namespace, "10.1.0.1", b"and back");
    let file = one.hypervisor.path("the link.pcap");
    wait_until("all is in the file", || count(&file, b"first link") >= 2 && count(&file, b"and back") >= 2);

    one.unlink(0, &format!("10000 {} 10001", address(2)), true);
    other.unlink(0, &format!("10001 {} 10000", address(1)), false);
    for container in [&mut one, &mut other] {
        let shown = ["101 bridge 'bridge0' is not running", "101 Source NIO: tap-gns3-e0", "100-OK"];
        assert_eq!(container.client.ask("bridge show bridge0"), shown);
        let failed = ["209-bridge 'bridge0' must have 2 NIOs to be started"];
        assert_eq!(container.client.ask("bridge start bridge0"), failed);
    }

    one.link(0, &format!("10010 {} 10011", address(2)), None);
    other.link(0, &format!("10011 {} 10010", address(1)), None);
    talk(&one.namespace, &other.namespace, "10.1.0.2", b"second link");
    assert_eq!(count(&file, b"second link"), 0, "the capture has ended");
}

#[test]
fn a_link_is_captured_and_suspended_while_it_runs() {
    let hosts = two_hosts();
    let [mut one, other] = two_containers(&hosts, false);
    talk(&one.namespace, &other.namespace, "10.1.0.2", b"before");
    let file = one.hypervisor.path("late.pcap");
    one.client.tell(&format!("bridge start_capture bridge0 \"{}\"", file.display()));
    talk(&one.namespace, &other.namespace, "10.1.0.2", b"captured");
    wait_until("all is in the file", || count(&file, b"captured") >= 2);
    assert_eq!(count(&file, b"before"), 0);

    one.client.tell("bridge reset_packet_filters bridge0");
    one.client.tell("bridge add_packet_filter bridge0 filter0 frequency_drop -1");
    let frames = |one: &mut Container<'_>| {
        (one.client.stats("bridge0", "Source NIO")[0], one.client.stats("bridge0", "Destination NIO")[2])
    };
    let (received, sent) = frames(&mut one);
    let socket = one.namespace.run(|| std::net::UdpSocket::bind("10.1.0.1:0")).expect("an address");
    let send = |text: &[u8]| socket.send_to(text, "10.1.0.2:9").expect("a route");
    send(b"lost");
    // Only when many more have been read, that one is sure to be among them.
    wait_until("frames come from the container", || {
        send(b"more");
        frames(&mut one).0 > received + 20
    });
    assert_eq!(frames(&mut one).1, sent, "none of them goes on");
    one.client.tell("bridge reset_packet_filters bridge0");
    talk(&one.namespace, &other.namespace, "10.1.0.2", b"resumed");
    one.client.tell("bridge stop_capture bridge0");
    assert_eq!((count(&file, b"lost"), count(&file, b"resumed") >= 2), (0, true));
}

#[test]
fn a_stopped_node_leaves_nothing_in_the_container() {
    let hosts = two_hosts();
    let [mut one, mut other] = two_containers(&hosts, true);
    talk(&one.namespace, &other.namespace, "10.1.0.2", b"running");
    for container in [&mut one, &mut other] {
        // Adapters 1 and 2 are on bridges that were never started.
        assert_eq!(container.client.ask("hypervisor stop"), ["100-OK"]);
        assert_eq!(container.hypervisor.end(), Some(0));
        for adapter in 0..3 {
            assert!(!has_interface(&container.namespace, &format!("eth{adapter}")));
        }
    }
}

#[test]
fn transfers_between_containers_arrive_intact() {
    let hosts = two_hosts();
    let [one, other] = two_containers(&hosts, false);
    transfer::send(&one.namespace, &other.namespace, "10.1.0.2:0");
    transfer::send(&other.namespace, &one.namespace, "10.1.0.1:0");
}

#[test]
fn a_nat_node_leads_to_the_bridge_of_its_host() {
    let hosts = two_hosts();
    let nat = &hosts[1];
    nat.ip("link add virbr0 type bridge");
    nat.ip("addr add 192.168.122.1/24 dev virbr0");
    nat.ip("link set virbr0 up");
    let mut container = Container::new(&hosts[0], 1);
    container.link(0, &format!("10000 {} 10001", address(2)), None);
    container.configure(0, "192.168.122.2");

    let hypervisor = Hypervisor::start(nat);
    let mut client = hypervisor.client();
    let bridge = "6bb1fa1e-24e4-4c9a-9d6e-c4ae0d3a3bb9-0";
    let file = hypervisor.path("nat.pcap");
    for command in [
        format!("bridge create {bridge}"),
        format!("bridge add_nio_udp {bridge} 10001 {} 10000", address(1)),
        format!("bridge reset_packet_filters {bridge}"),
        format!("bridge add_packet_filter {bridge} filter0 delay 5"),
        format!("bridge add_nio_tap \"{bridge}\" \"gns3tap0-0\""),
        "brctl addif \"virbr0\" \"gns3tap0-0\"".to_owned(),
        format!("bridge start_capture {bridge} \"{}\"", file.display()),
        format!("bridge start {bridge}"),
    ] {
        client.tell(&command);
    }
    talk(&container.namespace, nat, "192.168.122.1", b"to the world");
    wait_until("all is in the file", || count(&file, b"to the world") >= 2);
    transfer::send(&container.namespace, nat, "192.168.122.1:0");
    client.tell(&format!("bridge stop_capture {bridge}"));
    client.tell(&format!("bridge delete {bridge}"));
    assert!(!has_interface(nat, "gns3tap0-0"));
}
