//! UDP tunnels: what goes through, who may speak, and what happens when the other end or the way there is gone.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::lab::frames::Random;
use crate::lab::{Hypervisor, LEFT, Namespace, PATIENCE, RIGHT, Tunnel, TwoTunnels, WireTap, wait_until};

/// The most that fits into a UDP datagram over IPv4.
const LARGEST: usize = 65_507;

fn address_of(namespace: &Namespace, host: &str) -> IpAddr {
    let resolve = || (host, 0).to_socket_addrs().ok()?.next();
    namespace.run(resolve).expect("an address").ip()
}

#[test]
fn frames_of_every_size_pass_byte_for_byte_and_in_order() {
    for host in ["127.0.0.1", "::1", "localhost"] {
        let namespace = Namespace::new();
        let hypervisor = Hypervisor::start(&namespace);
        let mut client = hypervisor.client();
        client.tell("bridge create b");
        client.tell(&format!("bridge add_nio_udp b 20000 {host} 20001"));
        client.tell(&format!("bridge add_nio_udp b 20002 {host} 20003"));
        client.tell("bridge start b");
        let address = address_of(&namespace, host);
        let left = Tunnel::between(&namespace, address, 20001, 20000);
        let right = Tunnel::between(&namespace, address, 20003, 20002);
        let shown = client.tell("bridge show b");
        assert!(shown.contains(&format!("101 Source NIO: 20000:{host}:20001")), "{shown:?}");

        let mut random = Random(11);
        for size in [1, 2, 13, 14, 59, 60, 1499, 1500, 1514, 1518, 4096, 9000, 9018, 32_767, LARGEST - 1, LARGEST] {
            for (from, to) in [(&left, &right), (&right, &left)] {
                let frame = random.bytes(size);
                from.send(&frame);
                assert!(to.next() == frame, "{size} bytes through {host}");
            }
        }
        for (from, to) in [(&left, &right), (&right, &left)] {
            let frames = random.frames(300);
            frames.iter().for_each(|frame| from.send(frame));
            assert!(frames.iter().all(|frame| to.next() == *frame), "a frame of many through {host}");
        }
    }
}

#[test]
fn only_the_peer_gets_in() {
    let namespace = Namespace::new();
    let tunnels = TwoTunnels::start(&namespace);
    let stranger = namespace.run(|| UdpSocket::bind("127.0.0.1:20009").expect("bound"));
    for number in 0..10 {
        stranger.send_to(&WireTap::mark(number), "127.0.0.1:20000").expect("sent");
    }
    tunnels.left.send_marks([100]);
    tunnels.right.expect_mark(100);
}

#[test]
fn an_empty_datagram_does_no_harm() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for number in 0..20 {
        tunnels.left.send(&[]);
        tunnels.right.send(&[]);
        tunnels.left.send_marks([number]);
        tunnels.right.expect_mark(number);
        tunnels.right.send_marks([number]);
        tunnels.left.expect_mark(number);
    }
    assert!(tunnels.hypervisor.is_running());
}

#[test]
fn the_first_frame_after_a_peer_has_come_back_arrives() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, left, right, hypervisor } = TwoTunnels::start(&namespace);
    drop(right);
    for round in 0..100 {
        // The last of these leaves an error behind that the next one to send or to read is told of.
        left.send_marks([1000; 5]);
        client.wait_for_frames("b", "Source", u64::from(round) * 6 + 5);
        let right = Tunnel::new(&namespace, 20003, 20002);
        left.send_marks([round]);
        right.until_mark(round);
        client.wait_for_frames("b", "Source", u64::from(round) * 6 + 6);
    }
    assert!(!hypervisor.log().contains("refused"), "a peer that is not there is nothing to log: {}", hypervisor.log());
}

/// The kernel reports the refusal of one datagram to whoever sends the next, which is then not sent.
#[test]
fn the_refusal_of_one_frame_does_not_swallow_the_next() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, left, right, hypervisor } = TwoTunnels::start(&namespace);
    drop(right);
    // All at once, so that nobody reads the refusals in between.
    hypervisor.signal(Signal::SIGSTOP);
    left.send_marks(0..1000);
    hypervisor.signal(Signal::SIGCONT);
    client.wait_for_frames("b", "Source", 1000);
    // A busy kernel may report two refusals one right after the other.
    wait_until("almost all are sent", || client.stats("b", "Destination")[2] > 900);
}

#[test]
fn a_peer_that_is_not_there_does_not_hold_up_the_other_direction() {
    let namespace = Namespace::new();
    let TwoTunnels { client: _client, left, right, hypervisor: _hypervisor } = TwoTunnels::start(&namespace);
    drop(left);
    let left = Tunnel::new(&namespace, 20001, 20000);
    drop(right);
    left.send_marks(0..100);
    let right = Tunnel::new(&namespace, 20003, 20002);
    right.send_marks([7]);
    left.expect_mark(7);
}

/// Three machines in a row; the link behind the second has an MTU of 1300.
struct Narrow {
    bridge: Namespace,
    _router: Namespace,
    far: Namespace,
}

impl Narrow {
    fn new() -> Self {
        let [bridge, router, far] = [(); 3].map(|()| Namespace::new());
        bridge.veth("a0", &router, "a1");
        router.veth("b0", &far, "b1");
        router.set("ipv4/ip_forward", "1");
        router.set("ipv6/conf/all/forwarding", "1");
        for (namespace, name, network, host) in
            [(&bridge, "a0", 1, 1), (&router, "a1", 1, 2), (&router, "b0", 2, 1), (&far, "b1", 2, 2)]
        {
            namespace.ip(&format!("addr add 10.7.{network}.{host}/24 dev {name}"));
            namespace.ip(&format!("addr add fd07:{network}::{host}/64 dev {name} nodad"));
        }
        router.ip("link set b0 mtu 1300");
        far.ip("link set b1 mtu 1300");
        let narrow = Self { bridge, _router: router, far };
        narrow.add_route();
        narrow.far.ip("route add default via 10.7.2.1");
        narrow.far.ip("-6 route add default via fd07:2::1");
        narrow
    }

    fn add_route(&self) {
        self.bridge.ip("route add 10.7.2.0/24 via 10.7.1.2");
        self.bridge.ip("-6 route add fd07:2::/64 via fd07:1::2");
    }

    fn remove_route(&self) {
        self.bridge.ip("route del 10.7.2.0/24");
        self.bridge.ip("-6 route del fd07:2::/64");
    }

    /// A bridge from a tunnel of its own machine to the far one.
    fn bridge_to(&self, far: &str) -> (Hypervisor<'_>, Tunnel, Tunnel) {
        let near = if far.contains(':') { "fd07:1::1" } else { "10.7.1.1" };
        let hypervisor = Hypervisor::start(&self.bridge);
        let tunnel = format!("bridge add_nio_udp b 20002 {far} 20003");
        let commands = ["bridge create b", LEFT, &tunnel, "bridge start b"];
        hypervisor.client().tell_all(&commands);
        let left = Tunnel::new(&self.bridge, 20001, 20000);
        let address = |text: &str, port| SocketAddr::new(text.parse().expect("an address"), port);
        let right = self.far.run(|| {
            let socket = UdpSocket::bind(address(far, 20003)).expect("bound");
            socket.connect(address(near, 20002)).expect("connected");
            Tunnel::of(socket)
        });
        (hypervisor, left, right)
    }
}

#[test]
fn frames_pass_a_hop_that_is_too_narrow_for_them() {
    let narrow = Narrow::new();
    let mut random = Random(3);
    for far in ["10.7.2.2", "fd07:2::2"] {
        let (mut hypervisor, left, right) = narrow.bridge_to(far);
        if far.contains(':') {
            // Routers of IPv6 do not fragment: the first frame is lost to find out what fits.
            right.socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
            let mut buffer = [0; 2000];
            wait_until("the way is known", || {
                left.send(&[1; 1450]);
                right.socket.recv(&mut buffer).is_ok()
            });
            right.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        }
        for size in [1450, 1200, 1450, 9000] {
            let frame = random.bytes(size);
            left.send(&frame);
            let arrived = std::iter::repeat_with(|| right.next()).find(|frame| *frame != [1; 1450]);
            assert!(arrived == Some(frame), "{size} bytes to {far}");
            let frame = random.bytes(size);
            right.send(&frame);
            assert!(left.next() == frame, "{size} bytes from {far}");
        }
        assert!(hypervisor.is_running());
    }
}

#[test]
fn a_way_that_is_gone_for_a_while_costs_its_frames_only() {
    let narrow = Narrow::new();
    for far in ["10.7.2.2", "fd07:2::2"] {
        let (mut hypervisor, left, right) = narrow.bridge_to(far);
        let mut client = hypervisor.client();
        left.send_marks([1]);
        right.expect_mark(1);
        narrow.remove_route();
        left.send_marks(2..10);
        client.wait_for_frames("b", "Source", 9);
        assert_eq!(client.stats("b", "Destination")[2], 1, "what cannot be sent is not counted as sent");
        narrow.add_route();
        left.send_marks([10]);
        right.expect_mark(10);
        right.send_marks([11]);
        left.expect_mark(11);
        assert!(hypervisor.is_running());
    }
}

#[test]
fn port_0_is_any_that_is_free() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let right = namespace.run(|| UdpSocket::bind(("127.0.0.1", 20003)).expect("bound"));
    right.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.tell_all(&["bridge create b", LEFT, "bridge add_nio_udp b 0 127.0.0.1 20003", "bridge start b"]);
    let left = Tunnel::new(&namespace, 20001, 20000);
    left.send_marks([1]);
    let (_, from) = right.recv_from(&mut [0; 100]).expect("a frame");
    right.connect(from).expect("connected");
    right.send(&WireTap::mark(2)).expect("sent");
    left.expect_mark(2);
    // There may be more than one of those, even while they run.
    client.tell_all(&["bridge create c", "bridge add_nio_udp c 0 127.0.0.1 20003"]);
    client.tell_all(&["bridge add_nio_udp c 0 127.0.0.1 20003", "bridge start c"]);
}

#[test]
fn tunnels_to_different_peers_share_a_port() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    for (bridge, peer) in [("b", 20001), ("c", 20011)] {
        client.tell(&format!("bridge create {bridge}"));
        client.tell(&format!("bridge add_nio_udp {bridge} 20000 127.0.0.1 {peer}"));
        client.tell(&format!("bridge add_nio_udp {bridge} 20002 127.0.0.1 {}", peer + 2));
        client.tell(&format!("bridge start {bridge}"));
    }
    let far = |port, near| Tunnel::new(&namespace, port, near);
    let pairs = [(far(20001, 20000), far(20003, 20002)), (far(20011, 20000), far(20013, 20002))];
    for round in 0..10 {
        for (number, (left, right)) in (0..).zip(&pairs) {
            let mark = round * 10 + number;
            left.send_marks([mark]);
            right.expect_mark(mark);
            right.send_marks([mark]);
            left.expect_mark(mark);
        }
    }
}

#[test]
fn a_tunnel_that_runs_is_not_opened_twice() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, left, right, hypervisor: _hypervisor } = TwoTunnels::start(&namespace);
    client.tell("bridge create c");
    let refused = ["206-unable to create NIO UDP for bridge 'c'"];
    // Whatever it is called.
    let address = address_of(&namespace, "localhost");
    client.tell_all(&["bridge create d", "bridge add_nio_udp d 20010 localhost 20011"]);
    client.tell_all(&["bridge add_nio_udp d 20012 localhost 20013", "bridge start d"]);
    assert_eq!(client.ask(&format!("bridge add_nio_udp c 20012 {address} 20013")), refused);
    for same in ["20000 127.0.0.1 20001", "020000 127.0.0.1 +20001", "20010 localhost 20011", "20002 127.0.0.1 20003"] {
        assert_eq!(client.ask(&format!("bridge add_nio_udp c {same}")), refused, "{same}");
    }
    left.send_marks([1]);
    right.expect_mark(1);
    client.tell("bridge stop b");
    client.tell("bridge add_nio_udp c 20000 127.0.0.1 20001");
    client.tell("bridge add_nio_udp c 20014 127.0.0.1 20015");
    client.tell("bridge start c");
    assert_eq!(client.ask("bridge start b"), ["209-bridge 'b' could not be started"]);
    client.tell("bridge delete c");
    client.tell("bridge start b");
    left.send_marks([2]);
    right.expect_mark(2);
}

#[test]
fn a_removed_tunnel_leaves_its_place_to_the_next() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, right, hypervisor: _hypervisor, .. } = TwoTunnels::start(&namespace);
    client.tell("bridge stop b");
    // The host is not looked at.
    client.tell("bridge remove_nio_udp b 20000 9.9.9.9 20001");
    assert_eq!(client.ask("bridge start b"), ["209-bridge 'b' must have 2 NIOs to be started"]);
    client.tell("bridge add_nio_udp b 20004 127.0.0.1 20005");
    let full = ["206-bridge 'b' has already 2 allocated NIOs"];
    assert_eq!(client.ask("bridge add_nio_udp b 20006 127.0.0.1 20007"), full);
    let shown = client.tell("bridge show b");
    assert_eq!(
        shown[1..3],
        ["101 Source NIO: 20004:127.0.0.1:20005", "101 Destination NIO: 20002:127.0.0.1:20003"],
        "{shown:?}"
    );
    client.tell("bridge start b");
    let left = Tunnel::new(&namespace, 20005, 20004);
    left.send_marks([1]);
    right.expect_mark(1);
    right.send_marks([2]);
    left.expect_mark(2);
}

#[test]
fn what_does_not_fit_a_tunnel_is_dropped_and_not_counted_as_sent() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let (near, far) = (hypervisor.path("near"), hypervisor.path("far"));
    client.tell("bridge create b");
    client.tell(&format!("bridge add_nio_unix b {} {}", near.display(), far.display()));
    client.tell_all(&[RIGHT, "bridge start b"]);
    let right = Tunnel::new(&namespace, 20003, 20002);
    let left = UnixDatagram::unbound().expect("a socket");
    for too_big in [LARGEST + 1, 65_535, 100_000] {
        left.send_to(&vec![3; too_big], &near).expect("sent");
    }
    left.send_to(&vec![4; LARGEST], &near).expect("sent");
    assert!(right.next() == vec![4; LARGEST]);
    wait_until("it is counted", || client.stats("b", "Destination")[2..] == [1, LARGEST as u64]);
    hypervisor.wait_for_log("too_big");
}
