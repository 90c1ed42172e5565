//! Making, moving and joining interfaces, as the modules `docker` and `brctl` of the control protocol do.

use std::io;
use std::process::Command;

use rubridge::sys::netdev::Interface;
use rubridge::sys::netlink::Netlink;

use crate::lab::{Namespace, Process};

/// What the tests do, within their namespaces.
impl Namespace {
    fn tap(&self, name: &str) {
        self.ip(&format!("tuntap add dev {name} mode tap"));
    }

    fn netlink<T: Send>(&self, task: impl FnOnce(&mut Netlink) -> io::Result<T> + Send) -> io::Result<T> {
        self.run(|| task(&mut Netlink::open().expect("a netlink socket")))
    }

    fn create_veth(&self, name: &str, peer: &str) -> io::Result<()> {
        self.netlink(|netlink| netlink.create_veth(name, peer))
    }

    fn move_to_process(&self, name: &str, pid: u32, new_name: &str) -> io::Result<()> {
        let index = self.index(name);
        self.netlink(|netlink| netlink.move_to(index, pid, new_name))
    }

    fn add_port(&self, bridge: &str, port: &str) -> io::Result<()> {
        let index = self.index(port);
        self.run(|| Interface::named(bridge)?.add_port(index))
    }

    fn set_address(&self, name: &str, address: [u8; 6]) -> io::Result<()> {
        self.run(|| Interface::named(name)?.set_address(address))
    }

    fn show(&self, name: &str) -> String {
        self.command("ip", &format!("-o link show dev {name}"))
    }

    fn is_up(&self, name: &str) -> bool {
        let line = self.show(name);
        let flags = line.split(['<', '>']).nth(1).expect("flags");
        flags.split(',').any(|flag| flag == "UP")
    }

    fn has(&self, name: &str) -> bool {
        self.run(|| nix::net::if_::if_nametoindex(name).is_ok())
    }
}

fn code<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("it is refused").raw_os_error().expect("the kernel's error")
}

#[test]
fn a_veth_pair_has_its_first_end_up() {
    let host = Namespace::new();
    // One letter is a name like any other.
    for (name, peer) in [("rbh0", "rbg0"), ("a", "b"), ("fifteen-letters", "fifteen-lettert")] {
        host.create_veth(name, peer).expect("a veth pair");
        assert!(host.is_up(name), "{}", host.show(name));
        assert!(!host.is_up(peer), "{}", host.show(peer));
        let link = host.netlink(|netlink| netlink.link(peer)).expect("a link");
        assert_eq!((link.index, link.kind.as_deref(), link.master), (host.index(peer), Some("veth"), None));
    }
}

#[test]
fn a_failed_veth_pair_leaves_nothing() {
    let host = Namespace::new();
    host.tap("taken");
    for (name, peer) in [("taken", "rb0"), ("rb0", "taken"), ("rb0", "rb0"), ("taken", "taken")] {
        assert_eq!(code(host.create_veth(name, peer)), libc::EEXIST, "{name} {peer}");
        assert!(!host.has("rb0"), "{name} {peer}");
    }
    host.create_veth("rb0", "rb%d").expect_err("the kernel would choose the name");
    assert!(!host.has("rb0"));
    assert_eq!(host.netlink(|netlink| netlink.link("taken")).expect("a link").kind.as_deref(), Some("tun"));
}

#[test]
fn an_end_finishes_its_checksums() {
    let host = Namespace::new();
    host.create_veth("rbh0", "rbg0").expect("a veth pair");
    assert!(host.feature("rbg0", "tx-checksumming"));
    host.run(|| Interface::named("rbg0")?.finish_checksums()).expect("checksums");
    assert!(!host.feature("rbg0", "tx-checksumming"));
    assert!(host.feature("rbh0", "tx-checksumming"), "the other end's are left");
    assert_eq!(code(host.run(|| Interface::named("nosuchif")?.finish_checksums())), libc::ENODEV);
}

#[test]
fn both_ends_are_deleted_together() {
    let host = Namespace::new();
    host.create_veth("rbh0", "rbg0").expect("a veth pair");
    let index = host.index("rbg0");
    host.netlink(|netlink| netlink.delete(index)).expect("deleting");
    assert!(!host.has("rbh0") && !host.has("rbg0"));
    assert_eq!(code(host.netlink(|netlink| netlink.delete(index))), libc::ENODEV);
    assert_eq!(code(host.netlink(|netlink| netlink.link("rbg0"))), libc::ENODEV);
}

#[test]
fn each_kind_of_link_is_told() {
    let host = Namespace::new();
    host.ip("link add rbbr0 type bridge");
    host.tap("rbt0");
    host.ip("link set rbt0 master rbbr0");
    for (name, kind, master) in [("rbbr0", "bridge", None), ("rbt0", "tun", Some(host.index("rbbr0")))] {
        let link = host.netlink(|netlink| netlink.link(name)).expect("a link");
        assert_eq!((link.index, link.kind.as_deref(), link.master), (host.index(name), Some(kind), master), "{name}");
    }
}

#[test]
fn a_link_moves_to_the_namespace_of_a_process() {
    let [host, guest] = [(); 2].map(|()| Namespace::new());
    let process = Process::inside(&guest);
    host.tap("tap-gns3-e0");
    host.ip("link set tap-gns3-e0 up");
    host.move_to_process("tap-gns3-e0", process.id(), "eth0").expect("moving");
    assert!(!host.has("tap-gns3-e0"));
    assert!(guest.has("eth0") && !guest.has("tap-gns3-e0"));
}

#[test]
fn a_link_whose_new_name_is_taken_is_not_lost() {
    let [host, guest] = [(); 2].map(|()| Namespace::new());
    let process = Process::inside(&guest);
    guest.tap("eth0");
    host.tap("rbt0");
    let taken = guest.index("eth0");
    assert_eq!(code(host.move_to_process("rbt0", process.id(), "eth0")), libc::EEXIST);
    assert!(guest.has("rbt0"), "the kernel has moved it before it gives it a name");
    assert_eq!(guest.index("eth0"), taken);
}

#[test]
fn without_a_process_a_link_stays() {
    let host = Namespace::new();
    host.tap("rbt0");
    // Beyond the kernel's highest (PID_MAX_LIMIT is 2^22).
    for pid in [0, 1 << 30, u32::MAX] {
        assert_eq!(code(host.move_to_process("rbt0", pid, "eth0")), libc::ESRCH, "{pid}");
    }
    assert!(host.has("rbt0") && !host.has("eth0"));
}

#[test]
fn a_mac_address_is_set() {
    let host = Namespace::new();
    host.tap("rbt0");
    host.set_address("rbt0", [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]).expect("an address");
    assert!(host.show("rbt0").contains("link/ether 12:34:56:78:9a:bc"), "{}", host.show("rbt0"));
    let multicast = [0x01, 0, 0x5e, 0, 0, 1];
    assert_eq!(code(host.set_address("rbt0", multicast)), libc::EADDRNOTAVAIL);
    assert_eq!(code(host.set_address("lo", [2; 6])), libc::EINVAL);
    assert!(host.show("rbt0").contains("link/ether 12:34:56:78:9a:bc"), "{}", host.show("rbt0"));
}

#[test]
fn a_port_belongs_to_one_bridge() {
    let host = Namespace::new();
    host.ip("link add rbbr0 type bridge");
    host.ip("link add rbbr1 type bridge");
    host.tap("rbt0");
    host.add_port("rbbr0", "rbt0").expect("a port");
    for bridge in ["rbbr0", "rbbr1"] {
        assert_eq!(code(host.add_port(bridge, "rbt0")), libc::EBUSY, "{bridge}");
    }
    let link = host.netlink(|netlink| netlink.link("rbt0")).expect("a link");
    assert_eq!(link.master, Some(host.index("rbbr0")));
    assert_eq!(code(host.add_port("rbt0", "lo")), libc::EOPNOTSUPP, "it is no bridge");
    assert_eq!(code(host.add_port("nosuchbr", "rbt0")), libc::ENODEV);
}

#[test]
fn a_link_is_taken_up() {
    let host = Namespace::new();
    host.tap("rbt0");
    host.ip("link set rbt0 promisc on");
    let index = host.index("rbt0");
    for _ in 0..2 {
        host.netlink(|netlink| netlink.set_up(index)).expect("up");
        assert!(host.is_up("rbt0"));
    }
    assert!(host.show("rbt0").contains("PROMISC"), "other flags are left: {}", host.show("rbt0"));
    assert_eq!(code(host.netlink(|netlink| netlink.set_up(9999))), libc::ENODEV);
}

/// Set where this test runs as a process of its own, without `CAP_NET_ADMIN`.
const WITHOUT_RIGHTS: &str = "RUBRIDGE_TEST_WITHOUT_RIGHTS";

#[test]
fn without_rights_everything_is_refused() {
    if std::env::var_os(WITHOUT_RIGHTS).is_some() {
        return nothing_is_permitted();
    }
    let host = Namespace::new();
    host.create_veth("rbh0", "rbg0").expect("a veth pair");
    host.ip("link add rbbr0 type bridge");
    let this_test = ["--exact", "docker_brctl::without_rights_everything_is_refused"];
    let program = std::env::current_exe().expect("this program");
    let mut unprivileged = Command::new("setpriv");
    unprivileged.arg("--bounding-set=-net_admin").arg(program).args(this_test).env(WITHOUT_RIGHTS, "");
    let output = host.run(|| unprivileged.output()).expect("setpriv, of util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    assert!(host.has("rbg0") && !host.is_up("rbg0") && host.feature("rbg0", "tx-checksumming"));
}

fn nothing_is_permitted() {
    let mut netlink = Netlink::open().expect("a socket needs no rights");
    let link = netlink.link("rbg0").expect("a look needs no rights");
    let interface = Interface::named("rbg0").expect("a socket needs no rights");
    let bridge = Interface::named("rbbr0").expect("a socket needs no rights");
    for (what, done) in [
        ("create_veth", netlink.create_veth("rbh1", "rbg1")),
        ("delete", netlink.delete(link.index)),
        ("move_to", netlink.move_to(link.index, std::process::id(), "eth0")),
        ("set_up", netlink.set_up(link.index)),
        ("finish_checksums", interface.finish_checksums()),
        ("set_address", interface.set_address([2; 6])),
        ("add_port", bridge.add_port(link.index)),
    ] {
        assert_eq!(done.map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)), "{what}");
    }
}
