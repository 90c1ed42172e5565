//! Nodes that bring tunnels of their own, VMware's and clouds.

use super::count;
use crate::lab::{Hypervisor, Namespace, Tunnel, WireTap, wait_until};

/// A VPCS, QEMU, VirtualBox, TraceNG or Dynamips node: `local` is its own tunnel.
#[test]
fn a_node_with_a_tunnel_of_its_own() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let [node, link] = [(20_000, 10_000), (20_001, 10_001)].map(|(ours, theirs)| Tunnel::new(&namespace, ours, theirs));
    let uuid = "0c3a6ab5-dd15-4d2e-a4a1-6b2f6c4f2f55";
    for (round, name) in
        [format!("VPCS-{uuid}"), format!("QEMU-{uuid}-0"), "DYNAMIPS-10000-20000".to_owned()].into_iter().enumerate()
    {
        let file = hypervisor.path("link.pcap");
        for command in [
            format!("bridge create {name}"),
            format!("bridge add_nio_udp {name} 10000 127.0.0.1 20000"),
            format!("bridge add_nio_udp {name} 10001 127.0.0.1 20001"),
            format!("bridge start_capture {name} \"{}\"", file.display()),
            format!("bridge start {name}"),
            format!("bridge reset_packet_filters {name}"),
            format!("bridge add_packet_filter {name} filter0 bpf \"ether[14:2] = 0xdead\""),
            format!("bridge add_packet_filter {name} filter1 packet_loss 0"),
        ] {
            client.tell(&command);
        }
        for number in [0xbeef, 0xdead, 0xf00d] {
            node.send(&WireTap::mark(number));
            link.send(&WireTap::mark(number));
        }
        for number in [0xbeef, 0xf00d] {
            assert_eq!([link.next(), node.next()], [(); 2].map(|()| WireTap::mark(number)), "round {round}");
        }
        client.tell(&format!("bridge stop_capture {name}"));
        client.tell(&format!("bridge delete {name}"));
        assert_eq!((count(&file, &[0xde, 0xad]), count(&file, &[0xbe, 0xef])), (0, 2));
    }
}

/// The frame `number` from a machine with this address.
fn frame_from(source: [u8; 6], number: u16) -> Vec<u8> {
    let mut frame = WireTap::mark(number);
    frame[6..12].copy_from_slice(&source);
    frame
}

#[test]
fn a_vmware_node_does_not_hear_its_host() {
    const HOST: [u8; 6] = [0, 0x50, 0x56, 0xc0, 0, 1];
    const GUEST: [u8; 6] = [0, 0x0c, 0x29, 1, 2, 3];
    let [outside, namespace] = [(); 2].map(|()| Namespace::new());
    outside.veth("vmnet1", &namespace, "nic0");
    let wire = WireTap::new(&outside, "vmnet1");
    let tunnel = Tunnel::new(&namespace, 20_000, 10_000);
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    for command in [
        "bridge create ethernet0.vnet",
        "bridge add_nio_ethernet ethernet0.vnet \"nic0\"",
        "bridge set_pcap_filter ethernet0.vnet \"not ether src 00:50:56:c0:00:01\"",
        "bridge add_nio_udp ethernet0.vnet 10000 127.0.0.1 20000",
        "bridge start ethernet0.vnet",
        "bridge reset_packet_filters ethernet0.vnet",
    ] {
        client.tell(command);
    }
    let next = || {
        let mut frame = Vec::new();
        // The kernel has something to say on every interface.
        wait_until("a frame comes", || {
            frame = tunnel.next();
            !frame.starts_with(&[0x33, 0x33])
        });
        frame
    };
    wire.send_plain(&frame_from(HOST, 1));
    wire.send_plain(&frame_from(GUEST, 2));
    assert_eq!(next(), frame_from(GUEST, 2));
    assert_eq!(client.ask("bridge set_pcap_filter ethernet0.vnet"), ["100-filter reset on bridge 'ethernet0.vnet'"]);
    wire.send_plain(&frame_from(HOST, 3));
    assert_eq!(next(), frame_from(HOST, 3));
}

#[test]
fn a_cloud_joins_an_interface() {
    let [outside, namespace] = [(); 2].map(|()| Namespace::new());
    outside.veth("wan0", &namespace, "nic0");
    let mut wire = WireTap::new(&outside, "wan0");
    let tunnel = Tunnel::new(&namespace, 20_000, 10_000);
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let file = hypervisor.path("cloud.pcap");
    for round in 0..3 {
        for command in [
            "bridge create cloud-0".to_owned(),
            "bridge add_nio_udp cloud-0 10000 127.0.0.1 20000".to_owned(),
            // Filters come before the second NIO.
            "bridge reset_packet_filters cloud-0".to_owned(),
            "bridge add_packet_filter cloud-0 filter0 bpf \"ether[14:2] = 1\"".to_owned(),
            "bridge add_nio_linux_raw cloud-0 \"nic0\"".to_owned(),
            format!("bridge start_capture cloud-0 \"{}\"", file.display()),
            "bridge start cloud-0".to_owned(),
        ] {
            client.tell(&command);
        }
        for number in [1, 2] {
            tunnel.send(&WireTap::mark(number));
        }
        assert_eq!(wire.until_mark(2), [], "round {round}");
        wire.send_plain(&WireTap::mark(1));
        wire.send_plain(&WireTap::mark(2));
        wait_until("a frame comes back", || tunnel.next() == WireTap::mark(2));
        client.tell("bridge stop_capture cloud-0");
        assert_eq!(count(&file, &WireTap::mark(1)), 0, "filtered");
        assert_eq!(count(&file, &WireTap::mark(2)), 2);
        client.tell("bridge delete cloud-0");
    }
}
