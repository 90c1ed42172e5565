//! TAPs on command: as ends of a bridge that goes to a container or is there for a VM.

use std::process::{Child, Command};

use tun_tap::{Iface, Mode};

use crate::lab::check::check_segments;
use crate::lab::frames::{Random, Recipe};
use crate::lab::{Client, Hypervisor, LEFT, Namespace, Tunnel, WireTap, has_interface, wait_until};

/// A bridge `b` of a UDP tunnel, whose far end is `left`, and a TAP.
struct Lab<'a> {
    hypervisor: Hypervisor<'a>,
    client: Client,
    left: Tunnel,
}

impl<'a> Lab<'a> {
    fn with_tap(namespace: &'a Namespace, tap: &str) -> Self {
        let hypervisor = Hypervisor::start(namespace);
        let mut client = hypervisor.client();
        client.tell_all(&["bridge create b", LEFT, &format!("bridge add_nio_tap b {tap}"), "bridge start b"]);
        Self { client, left: Tunnel::new(namespace, 20001, 20000), hypervisor }
    }

    /// Sends frames both ways; `inside` is the TAP's interface.
    fn check_passes(&self, inside: &mut WireTap, number: u16) {
        self.left.send_marks([number]);
        inside.until_mark(number);
        inside.send_plain(&WireTap::mark(number));
        self.left.until_mark(number);
    }
}

/// A process in a namespace, as that of a container; ended when dropped.
struct Container(Child);

impl Container {
    fn inside(namespace: &Namespace) -> Self {
        Self(namespace.run(|| Command::new("sleep").arg("600").spawn()).expect("sleep, of coreutils"))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_tap_lives_as_long_as_its_bridge_unless_it_was_there_before() {
    let namespace = Namespace::quiet();
    namespace.ip("tuntap add dev kept0 mode tap");
    for (tap, stays) in [("made0", false), ("kept0", true)] {
        let mut lab = Lab::with_tap(&namespace, tap);
        assert!(has_interface(&namespace, tap));
        let flags = namespace.command("ip", &format!("-o link show dev {tap}"));
        assert!(!flags.contains(",UP") && !flags.contains("<UP"), "it is not taken up: {flags}");
        // Frames for a TAP that is down are lost, and nothing else.
        lab.left.send_marks([1]);
        namespace.ip(&format!("link set {tap} up"));
        lab.check_passes(&mut WireTap::new(&namespace, tap), 2);
        lab.client.tell("bridge delete b");
        assert_eq!(has_interface(&namespace, tap), stays, "{tap}");
    }
}

#[test]
fn single_frames_of_any_size_enter_a_tap() {
    let namespace = Namespace::quiet();
    let lab = Lab::with_tap(&namespace, "tap0");
    namespace.ip("link set tap0 up");
    let mut inside = WireTap::new(&namespace, "tap0");
    for (number, size) in (0..).zip([14, 1514, 1515, 3000, 9018, 65_507]) {
        let mut frame = WireTap::mark(9);
        frame[12] = 0x88;
        frame[13] = 0xb6;
        frame.resize(size, 7);
        lab.left.send(&frame);
        lab.left.send_marks([number]);
        let heard: Vec<_> = inside.until_mark(number).into_iter().map(|heard| heard.frame).collect();
        assert!(heard == [frame], "{size} bytes");
    }
}

#[test]
fn the_kernel_numbers_taps() {
    let namespace = Namespace::quiet();
    let mut lab = Lab::with_tap(&namespace, "ubt%d");
    assert!(lab.client.tell("bridge show b").contains(&"101 Destination NIO: ubt0".to_owned()));
    lab.client.tell_all(&["bridge create c", "bridge add_nio_tap c ubt%d", "bridge add_nio_tap c ubt%d"]);
    assert_eq!(lab.client.tell("bridge show c")[1..3], ["101 Source NIO: ubt1", "101 Destination NIO: ubt2"]);
    lab.client.tell("hypervisor reset");
    assert!((0..3).all(|number| !has_interface(&namespace, &format!("ubt{number}"))));
}

#[test]
fn taps_that_cannot_be_had_are_refused_and_leave_nothing() {
    let namespace = Namespace::quiet();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    namespace.ip("link add veth0 type veth peer name veth1");
    let _held = namespace.run(|| Iface::without_packet_info("held0", Mode::Tap).expect("a TAP of another program"));
    client.tell("bridge create b");
    let before = namespace.command("ip", "-o link show");
    let names = ["held0", "veth0", "sixteen-letters-", "fifteen-letters-and-more", "a/b", "/dev/null", "/no/such/file"];
    for name in names {
        assert_eq!(
            client.ask(&format!("bridge add_nio_tap b {name}")),
            ["206-unable to create NIO TAP for bridge 'b'"],
            "{name}"
        );
        hypervisor.wait_for_log(&format!("create_nio_tap: unable to open TAP device {name} ("));
    }
    assert_eq!(namespace.command("ip", "-o link show"), before);
    client.tell("bridge add_nio_tap b fifteen-letters");
    // A bridge that is full makes none.
    client.tell("bridge add_nio_tap b second0");
    let full = ["206-bridge 'b' has already 2 allocated NIOs"];
    assert_eq!(client.ask("bridge add_nio_tap b third0"), full);
    assert!(!has_interface(&namespace, "third0"));
}

#[test]
fn a_tap_goes_on_in_a_container_under_another_name() {
    let [host, guest] = [(); 2].map(|()| Namespace::quiet());
    let container = Container::inside(&guest);
    let hypervisor = Hypervisor::start(&host);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge add_nio_tap b tap-gns3-e0"]);
    client.tell("docker set_mac_addr tap-gns3-e0 02:42:ac:11:00:02");
    client.tell(&format!("docker move_to_ns tap-gns3-e0 {} eth0", container.0.id()));
    client.tell_all(&[LEFT, "bridge start b"]);
    assert!(!has_interface(&host, "tap-gns3-e0") && has_interface(&guest, "eth0"));
    guest.ip("link set eth0 up");
    let mut lab = Lab { client, left: Tunnel::new(&host, 20001, 20000), hypervisor };
    let mut inside = WireTap::new(&guest, "eth0");
    lab.check_passes(&mut inside, 1);
    // Unlinked, and linked anew: the interface stays.
    lab.client.tell_all(&["bridge stop b", "bridge remove_nio_udp b 20000 127.0.0.1 20001"]);
    assert!(has_interface(&guest, "eth0"));
    lab.client.tell_all(&[LEFT, "bridge start b"]);
    lab.check_passes(&mut inside, 2);
    guest.ip("link set eth0 name wan7");
    lab.check_passes(&mut inside, 3);
    lab.client.tell("bridge delete b");
    assert!(!has_interface(&guest, "wan7"));
}

#[test]
fn a_container_that_is_gone_takes_its_tap_along_and_nothing_else() {
    let host = Namespace::quiet();
    let guest = Namespace::quiet();
    let container = Container::inside(&guest);
    let mut lab = Lab::with_tap(&host, "gone0");
    lab.client.tell(&format!("docker move_to_ns gone0 {} eth0", container.0.id()));
    lab.client.tell_all(&["bridge create c", "bridge add_nio_udp c 20010 127.0.0.1 20011"]);
    lab.client.tell_all(&["bridge add_nio_udp c 20012 127.0.0.1 20013", "bridge start c"]);
    let (left, right) = (Tunnel::new(&host, 20011, 20010), Tunnel::new(&host, 20013, 20012));
    drop((container, guest));
    wait_until("the end of the TAP is noticed", || {
        lab.left.send_marks([1]);
        lab.hypervisor.log().contains("device is gone") || lab.hypervisor.log().contains("device_gone")
    });
    left.send_marks([2]);
    right.expect_mark(2);
    assert!(lab.hypervisor.is_running());
    assert_eq!(lab.client.tell("bridge show b")[0], "101 bridge 'b' is running");
    lab.client.tell_all(&["bridge stop b", "bridge start b", "bridge delete b"]);
}

#[test]
fn super_frames_of_a_vm_are_never_sent_into_a_tunnel() {
    let namespace = Namespace::quiet();
    let lab = Lab::with_tap(&namespace, "tap0");
    namespace.ip("link set tap0 up");
    let inside = WireTap::new(&namespace, "tap0");
    for (number, v6) in (0..).zip([false, true]) {
        let recipe = Recipe { v6, payload: Random(5).bytes(20_001), ..Recipe::default() };
        let built = recipe.begun();
        inside.send(&built.virtio(if v6 { 4 } else { 1 }, 1400), &built.bytes);
        inside.send_plain(&WireTap::mark(number));
        let pieces = lab.left.until_mark(number);
        assert_eq!(pieces.len(), 15);
        check_segments(&recipe, &built, &pieces, 1500);
    }
}
