//! Whole TCP transfers through a bridge between a NIC and a TAP, with every offload on.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use nix::sys::signal::Signal;

use crate::lab::frames::Random;
use crate::lab::{Namespace, Rubridge, Totals, wait_until};

/// Bytes of each transfer.
pub(crate) const BYTES: usize = 24 << 20;

/// How the frames that reach the bridge come to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// The sender sends single frames, and GRO merges them at the NIC.
    ByGro,
    /// The sender hands super-frames to its NIC.
    ByTso,
}

/// Two ends of a transfer, with a NIC, programs and a TAP between them.
pub(crate) struct Path {
    outside: Namespace,
    pub(crate) bridge: Namespace,
    guest: Namespace,
    programs: Vec<Rubridge>,
}

impl Path {
    /// One program between the NIC and the TAP.
    fn direct(made: Made, mtu: u16, options: &str) -> Self {
        Self::new(made, mtu, &[format!("linux_raw:nic0 tap:tap0 {options}")])
    }

    /// Programs that lead from the NIC `nic0` to the TAP `tap0`.
    pub(crate) fn new(made: Made, mtu: u16, bridges: &[String]) -> Self {
        let [outside, bridge, guest] = [(); 3].map(|()| Namespace::new());
        outside.veth("wan0", &bridge, "nic0");
        outside.ip(&format!("link set wan0 mtu {mtu}"));
        bridge.ip(&format!("link set nic0 mtu {mtu}"));
        if made == Made::ByGro {
            outside.ethtool("wan0", "tx off tso off gso off");
            bridge.ethtool("nic0", "gro on");
        }
        bridge.ip("tuntap add dev tap0 mode tap");
        bridge.ip(&format!("link set tap0 mtu {mtu}"));
        let programs = bridges.iter().map(|arguments| Rubridge::start(&bridge, arguments)).collect();
        bridge.move_to("tap0", &guest);
        for (namespace, interface, host) in [(&outside, "wan0", 1), (&guest, "tap0", 2)] {
            namespace.ip(&format!("addr add 10.77.0.{host}/24 dev {interface}"));
            namespace.ip(&format!("addr add fd77::{host}/64 dev {interface} nodad"));
            namespace.ip(&format!("link set {interface} up"));
        }
        Self { outside, bridge, guest, programs }
    }

    /// Transfers bytes both ways, over IPv4 and IPv6, compares every one, and returns the totals of each program.
    pub(crate) fn transfer(self) -> Vec<Totals> {
        for v6 in [false, true] {
            send(&self.outside, &self.guest, if v6 { "[fd77::2]:0" } else { "10.77.0.2:0" });
            send(&self.guest, &self.outside, if v6 { "[fd77::1]:0" } else { "10.77.0.1:0" });
        }
        self.programs.into_iter().map(|program| program.stop(Signal::SIGINT)).collect()
    }

    /// The same through one program.
    fn transfer_directly(self) -> Totals {
        self.transfer().remove(0)
    }
}

/// Sends [`BYTES`] from one namespace to an address in another.
pub(crate) fn send(from: &Namespace, to: &Namespace, address: &str) {
    let listener = to.run(|| {
        // The address may need a moment after its interface came up.
        let mut listener = None;
        wait_until("the address is there", || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        listener.expect("bound")
    });
    let target = listener.local_addr().expect("an address");
    let mut stream = from.run(|| {
        let mut stream = None;
        wait_until("it connects", || {
            stream = TcpStream::connect_timeout(&target, crate::lab::PATIENCE).ok();
            stream.is_some()
        });
        stream.expect("connected")
    });
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(crate::lab::PATIENCE)).expect("a timeout");
        let mut received = Vec::with_capacity(BYTES);
        stream.read_to_end(&mut received).expect("the transfer goes on");
        received
    });
    stream.set_write_timeout(Some(crate::lab::PATIENCE)).expect("a timeout");
    let chunk = Random(42).bytes(1 << 20);
    // Each time from another place, so that no two parts of the stream are alike.
    let sent: Vec<u8> = (0..BYTES / chunk.len())
        .flat_map(|number| [&chunk[number * 131..], &chunk[..number * 131]])
        .flatten()
        .copied()
        .collect();
    stream.write_all(&sent).expect("the transfer goes on");
    drop(stream);
    let received = receiver.join().expect("the receiver");
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "every byte arrives as it was sent");
}

fn check(made: Made, mtu: u16) {
    let totals = Path::direct(made, mtu, "").transfer_directly();
    for from in ["linux_raw:nic0", "tap:tap0"] {
        let (whole, cut) = (totals.number(from, "super-frames {} whole"), totals.number(from, "{} cut"));
        assert!(whole > 100 && cut == 0, "super-frames pass whole: {totals:?}");
        // Not one frame per segment: as many bytes as two transfers take, in far fewer frames than segments.
        assert!(totals.number(from, "out {} frames") * u64::from(mtu) > 2 * BYTES as u64, "{totals:?}");
    }
    assert!(!totals.0.contains("dropped too_big") && !totals.0.contains("dropped malformed"), "{totals:?}");
}

#[test]
fn merged_by_gro() {
    check(Made::ByGro, 1500);
}

#[test]
fn merged_by_gro_with_large_frames() {
    check(Made::ByGro, 9000);
}

#[test]
fn unfinished_by_tso() {
    check(Made::ByTso, 1500);
}

#[test]
fn unfinished_by_tso_with_large_frames() {
    check(Made::ByTso, 9000);
}

#[test]
fn cut_in_software() {
    for made in [Made::ByGro, Made::ByTso] {
        let totals = Path::direct(made, 1500, "--offload no-csum").transfer_directly();
        let from_nic = totals.number("linux_raw:nic0", "{} cut");
        assert!(from_nic > 100, "{totals:?}");
        assert_eq!(totals.number("linux_raw:nic0", "super-frames {} whole"), 0);
    }
}

#[test]
fn segments_smaller_than_the_mtu() {
    for made in [Made::ByGro, Made::ByTso] {
        let path = Path::direct(made, 1500, "");
        // What a pod behind a tunnel does: both ends announce less than the MTU allows.
        path.guest.ip("route change 10.77.0.0/24 dev tap0 proto kernel src 10.77.0.2 advmss 1000");
        path.outside.ip("route change 10.77.0.0/24 dev wan0 proto kernel src 10.77.0.1 advmss 1000");
        let totals = path.transfer_directly();
        assert!(totals.number("linux_raw:nic0", "super-frames {} whole") > 100, "{totals:?}");
    }
}

#[test]
fn the_plain_bridge_moves_bytes_when_offloads_are_off() {
    let path = Path::direct(Made::ByGro, 1500, "--offload off");
    path.bridge.ethtool("nic0", "gro off gso off tso off tx off");
    path.outside.ethtool("wan0", "gro off");
    let totals = path.transfer_directly();
    assert_eq!(totals.number("linux_raw:nic0", "super-frames {} whole"), 0);
}
