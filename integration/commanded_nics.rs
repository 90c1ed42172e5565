//! Network interfaces on command: from a NIC with every offload on into a UDP tunnel, and back.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::lab::check::{check_finished, check_segments};
use crate::lab::frames::{Random, Recipe};
use crate::lab::{Client, Hypervisor, LEFT, Namespace, Tunnel, TwoTunnels, WireTap, stay_on_one_cpu, wait_until};

/// The kinds of NIO that take an interface.
const KINDS: [&str; 2] = ["linux_raw", "ethernet"];

struct Wire {
    outside: Namespace,
    bridge: Namespace,
}

/// A bridge `b` of a UDP tunnel, whose far end is `left`, and an interface, whose wire is `wire`.
struct Lab<'a> {
    hypervisor: Hypervisor<'a>,
    client: Client,
    left: Tunnel,
    wire: WireTap,
}

impl Wire {
    fn new() -> Self {
        stay_on_one_cpu();
        let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
        outside.veth("wan0", &bridge, "nic0");
        Self { outside, bridge }
    }

    fn lab(&self, kind: &str) -> Lab<'_> {
        let hypervisor = Hypervisor::start(&self.bridge);
        let mut client = hypervisor.client();
        let nic = format!("bridge add_nio_{kind} b nic0");
        client.tell_all(&["bridge create b", LEFT, &nic, "bridge start b"]);
        let left = Tunnel::new(&self.bridge, 20001, 20000);
        Lab { hypervisor, client, left, wire: WireTap::new(&self.outside, "wan0") }
    }
}

impl Lab<'_> {
    /// What comes out of the tunnel when `frame` comes in through the wire.
    fn through(&self, header: &[u8; 10], frame: &[u8], number: u16) -> Vec<Vec<u8>> {
        self.wire.send(header, frame);
        self.wire.send_plain(&WireTap::mark(number));
        self.left.until_mark(number)
    }

    /// Has the receiver of frames like those of `recipe`, which is behind the tunnel, agree to a connection, and announce
    /// what it takes.
    fn announce(&mut self, recipe: &Recipe, mss: u16, number: u16) {
        let [high, low] = mss.to_be_bytes();
        let syn = Recipe { tcp_flags: 0x12, tcp_options: vec![2, 4, high, low], payload: vec![], ..recipe.clone() };
        self.left.send(&syn.finished().turned_round());
        self.left.send(&WireTap::mark(number));
        assert_eq!(self.wire.until_mark(number).len(), 1);
    }
}

#[test]
fn super_frames_reach_the_tunnel_as_frames_of_a_wire() {
    for kind in KINDS {
        let wire = Wire::new();
        let mut lab = wire.lab(kind);
        let mut number = 0;
        for tags in [vec![], vec![(0x8100, 100)], vec![(0x88a8, 0x2064), (0x8100, 7)]] {
            for (v6, udp, gso_type) in [(false, false, 1), (true, false, 4), (false, true, 5)] {
                for (bytes, gso_size) in [(20_000, 1420), (60_000, 1400), (1001, 1000), (9001, 536)] {
                    number += 1;
                    let payload = Random(9).bytes(bytes);
                    let recipe = Recipe { tags: tags.clone(), v6, udp, payload, ..Recipe::default() };
                    let built = recipe.begun();
                    if kind == "ethernet" && udp {
                        // libpcap does not tell, and nothing else does, of how many datagrams it is.
                        let header = built.virtio(gso_type, gso_size);
                        let fits = built.bytes.len() <= built.ip_at + 1500;
                        assert_eq!(lab.through(&header, &built.bytes, number).len(), usize::from(fits));
                        continue;
                    }
                    if !udp {
                        lab.announce(&recipe, gso_size, number);
                    }
                    let pieces = lab.through(&built.virtio(gso_type, gso_size), &built.bytes, number);
                    assert_eq!(pieces.len(), bytes.div_ceil(usize::from(gso_size)), "{tags:?} {v6} {udp} {gso_size}");
                    check_segments(&recipe, &built, &pieces, 1500);
                }
            }
        }
    }
}

#[test]
fn small_frames_reach_the_tunnel_with_finished_checksums() {
    for kind in KINDS {
        let wire = Wire::new();
        let lab = wire.lab(kind);
        let mut number = 0;
        for (v6, udp) in [(false, false), (true, false), (false, true), (true, true)] {
            for tags in [vec![], vec![(0x8100, 0x6000)], vec![(0x8100, 0x0ffe)]] {
                for bytes in [0, 1, 2, 300, 301, 1400] {
                    number += 1;
                    let payload = Random(8).bytes(bytes);
                    let recipe = Recipe { tags: tags.clone(), v6, udp, payload, ..Recipe::default() };
                    let built = recipe.begun();
                    let heard = lab.through(&built.virtio(0, 0), &built.bytes, number);
                    assert_eq!(heard.len(), 1);
                    assert_eq!(heard[0].len(), built.bytes.len());
                    check_finished(&heard[0], built.ip_at);
                    assert!(heard[0] == recipe.finished().bytes, "nothing else is changed");
                }
            }
        }
    }
}

#[test]
fn what_the_host_sends_through_the_interface_is_finished_too() {
    let wire = Wire::new();
    let lab = wire.lab("linux_raw");
    wire.bridge.ip("addr add 10.9.0.1/24 dev nic0");
    wire.bridge.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:77 dev nic0");
    let socket = wire.bridge.run(|| UdpSocket::bind("10.9.0.1:0").expect("bound"));
    for length in [1, 2, 300, 301, 1400] {
        socket.send_to(&vec![7; length], "10.9.0.2:9").expect("sent");
        let frame = lab.left.next();
        assert_eq!(frame.len(), 42 + length);
        check_finished(&frame, 14);
    }
}

#[test]
fn connections_are_opened_with_finished_checksums() {
    let wire = Wire::new();
    let lab = wire.lab("linux_raw");
    // From beyond the interface, and by the host of the bridge itself.
    for (namespace, name, host) in [(&wire.outside, "wan0", 3), (&wire.bridge, "nic0", 1)] {
        namespace.ip(&format!("addr add 10.9.0.{host}/24 dev {name}"));
        namespace.ip(&format!("neigh add 10.9.0.2 lladdr 02:00:00:00:00:77 dev {name}"));
        let peer = SocketAddr::from(([10, 9, 0, 2], 80));
        let opened = namespace.run(|| TcpStream::connect_timeout(&peer, Duration::from_millis(20)));
        assert!(opened.is_err(), "nobody answers");
        let frame = lab.left.next();
        assert_eq!(frame[23], 6, "TCP: {frame:02x?}");
        assert_eq!(frame[26..30], [10, 9, 0, host]);
        check_finished(&frame, 14);
    }
}

#[test]
fn a_frame_too_big_for_the_wire_is_dropped_and_the_next_one_passes() {
    for kind in KINDS {
        let wire = Wire::new();
        let mut lab = wire.lab(kind);
        let mut too_big = WireTap::mark(1);
        too_big.resize(4000, 0);
        let mut largest = WireTap::mark(1);
        largest.resize(1514, 0);
        for frame in [&too_big, &too_big[..1515].to_vec(), &largest, &[1; 13].to_vec()] {
            lab.left.send(frame);
        }
        lab.left.send_marks([2]);
        lab.wire.until_mark(2);
        // One that fits, and the mark.
        wait_until("all is counted", || {
            lab.client.stats("b", "Destination") == [0, 0, 2, 1574]
                && lab.client.stats("b", "Source") == [5, 4000 + 1515 + 1514 + 13 + 60, 0, 0]
        });
        lab.hypervisor.wait_for_log("bytes=4000 mtu=1500 held_back=0 reason=\"too_big\"");
        assert!(lab.hypervisor.is_running());
    }
}

#[test]
fn super_frames_whose_pieces_do_not_fit_are_logged() {
    let wire = Wire::new();
    wire.outside.ip("link set wan0 mtu 9000");
    wire.bridge.ip("link set nic0 mtu 9000");
    let hypervisor = Hypervisor::start(&wire.bridge);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge add_nio_linux_raw b nic0", "bridge add_nio_tap b tap0"]);
    client.tell("bridge start b");
    let built = Recipe { udp: true, payload: vec![1; 10_000], ..Recipe::default() }.begun();
    WireTap::new(&wire.outside, "wan0").send(&built.virtio(5, 4000), &built.bytes);
    hypervisor.wait_for_log("bytes=10042 mtu=1500 held_back=0 reason=\"too_big\"");
}

#[test]
fn what_is_sent_through_an_interface_does_not_come_back() {
    for kind in KINDS {
        let wire = Wire::new();
        let lab = wire.lab(kind);
        for number in 0..1000 {
            lab.left.send_marks([number]);
        }
        let mut heard = lab.wire;
        heard.until_mark(999);
        heard.send_plain(&WireTap::mark(5000));
        lab.left.expect_mark(5000);
    }
}

#[test]
fn two_bridges_on_one_interface_hear_each_other_and_not_themselves() {
    let wire = Wire::new();
    let mut lab = wire.lab("linux_raw");
    lab.client.tell_all(&["bridge create c", "bridge add_nio_udp c 20010 127.0.0.1 20011"]);
    lab.client.tell_all(&["bridge add_nio_linux_raw c nic0", "bridge start c"]);
    let other = Tunnel::new(&wire.bridge, 20011, 20010);
    for number in 0..100 {
        lab.left.send_marks([number]);
        other.expect_mark(number);
        other.send_marks([1000 + number]);
        lab.left.expect_mark(1000 + number);
    }
    lab.wire.until_mark(1099);
}

#[test]
fn an_interface_that_is_deleted_costs_its_own_bridge_only() {
    for kind in KINDS {
        let wire = Wire::new();
        let TwoTunnels { mut hypervisor, mut client, left, right } = TwoTunnels::start(&wire.bridge);
        let nic = format!("bridge add_nio_{kind} c nic0");
        client.tell_all(&["bridge create c", "bridge add_nio_udp c 20010 127.0.0.1 20011", &nic, "bridge start c"]);
        let dying = Tunnel::new(&wire.bridge, 20011, 20010);
        let mut outside = WireTap::new(&wire.outside, "wan0");
        dying.send_marks([1]);
        outside.until_mark(1);
        wire.bridge.ip("link del nic0");
        dying.send_marks(2..20);
        client.wait_for_frames("c", "Source", 19);
        assert_eq!(client.stats("c", "Destination")[2], 1, "what nobody takes is not counted as sent");
        left.send_marks([20]);
        right.expect_mark(20);
        assert_eq!(client.tell("bridge show c")[0], "101 bridge 'c' is running");
        hypervisor.wait_for_log("device_gone");
        client.tell_all(&["bridge stop c", "bridge start c", "bridge delete c"]);
        right.send_marks([21]);
        left.expect_mark(21);
        assert!(hypervisor.is_running());
    }
}

#[test]
fn a_link_that_is_down_for_a_while_is_bridged_again() {
    for kind in KINDS {
        let wire = Wire::new();
        let mut lab = wire.lab(kind);
        wire.bridge.ip("link set nic0 down");
        lab.left.send_marks(0..10);
        lab.client.wait_for_frames("b", "Source", 10);
        wire.bridge.ip("link set nic0 up");
        wire.bridge.wait_for_link("nic0");
        wire.outside.wait_for_link("wan0");
        lab.left.send_marks([10]);
        lab.wire.until_mark(10);
        lab.wire.send_plain(&WireTap::mark(11));
        lab.left.expect_mark(11);
    }
}

#[test]
fn a_receive_filter_takes_effect_at_once_and_is_lifted() {
    let wire = Wire::new();
    let mut lab = wire.lab("ethernet");
    let ip = |number: u16| {
        let recipe = Recipe { udp: true, identification: number, payload: vec![1; 100], ..Recipe::default() };
        recipe.finished().bytes
    };
    let plain = [0; 10];
    assert_eq!(lab.through(&plain, &ip(1), 1), [ip(1)]);
    lab.client.tell("bridge set_pcap_filter b \"not udp\"");
    assert!(lab.through(&plain, &ip(2), 2).is_empty());
    let refused = ["206-unable to apply filter on bridge b (destination NIO)"];
    assert_eq!(lab.client.ask("bridge set_pcap_filter b \"not a filter (\""), refused);
    assert!(lab.through(&plain, &ip(3), 3).is_empty(), "the one before stays");
    lab.client.tell_all(&["bridge stop b", "bridge start b"]);
    assert!(lab.through(&plain, &ip(4), 4).is_empty(), "and outlives a stop");
    // It is of the interface: what goes the other way is not its business.
    lab.left.send(&ip(5));
    lab.left.send_marks([5]);
    assert!(lab.wire.until_mark(5).iter().any(|heard| heard.frame == ip(5)));
    lab.client.tell("bridge set_pcap_filter b");
    assert_eq!(lab.through(&plain, &ip(6), 6), [ip(6)]);
    lab.client.tell("bridge set_pcap_filter b \"ether host 02:00:00:00:00:01\"");
    lab.client.tell("bridge set_pcap_filter b \"\"");
    assert_eq!(lab.through(&plain, &ip(7), 7), [ip(7)]);
}

#[test]
fn libpcap_wants_the_interface_up() {
    let wire = Wire::new();
    wire.bridge.ip("link set nic0 down");
    let hypervisor = Hypervisor::start(&wire.bridge);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", LEFT]);
    let refused = ["206-unable to create NIO Ethernet for bridge 'b'"];
    assert_eq!(client.ask("bridge add_nio_ethernet b nic0"), refused);
    hypervisor.wait_for_log("the interface is down; `ip link set nic0 up`");
    wire.bridge.ip("link set nic0 up");
    client.tell("bridge add_nio_ethernet b nic0");
}
