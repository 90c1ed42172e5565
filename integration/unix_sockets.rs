//! The `unix` NIO: what goes through, and what becomes of the file that is its address.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::lab::frames::Random;
use crate::lab::{Client, Hypervisor, Namespace, PATIENCE, RIGHT, Tunnel, WireTap, uninterrupted, wait_until};

/// A bridge between a UNIX socket at `near`, whose peer is `far`, and a UDP tunnel.
struct Lab<'a> {
    hypervisor: Hypervisor<'a>,
    client: Client,
    near: PathBuf,
    far: PathBuf,
    tunnel: Tunnel,
}

impl<'a> Lab<'a> {
    fn start(namespace: &'a Namespace) -> Self {
        let hypervisor = Hypervisor::start(namespace);
        let (near, far) = (hypervisor.path("near"), hypervisor.path("far"));
        let mut lab =
            Self { client: hypervisor.client(), near, far, tunnel: Tunnel::new(namespace, 20003, 20002), hypervisor };
        lab.client.tell("bridge create b");
        assert_eq!(lab.add("b", &lab.near.clone()), "100-NIO UNIX added to bridge 'b'");
        lab.client.tell_all(&[RIGHT, "bridge start b"]);
        lab
    }

    /// The last line of the reply to adding a socket at `path`, whose peer is at `far`, to a bridge.
    fn add(&mut self, bridge: &str, path: &Path) -> String {
        let words = format!("bridge add_nio_unix {bridge} \"{}\" \"{}\"", path.display(), self.far.display());
        self.client.ask(&words).pop().expect("a reply")
    }

    /// Binds the bridge's peer.
    fn peer(&self) -> UnixDatagram {
        let peer = UnixDatagram::bind(&self.far).expect("bound");
        peer.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        peer
    }
}

fn next(socket: &UnixDatagram) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 17];
    let len = uninterrupted(|| socket.recv(&mut buffer)).expect("a frame in time");
    buffer.truncate(len);
    buffer
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

#[test]
fn frames_pass_byte_for_byte_and_in_order() {
    let namespace = Namespace::new();
    let lab = Lab::start(&namespace);
    let peer = lab.peer();
    let mut random = Random(21);
    for size in [1, 60, 1514, 9018, 65_507] {
        let frame = random.bytes(size);
        lab.tunnel.send(&frame);
        assert!(next(&peer) == frame, "{size} bytes to the socket");
        let frame = random.bytes(size);
        peer.send_to(&frame, &lab.near).expect("sent");
        assert!(lab.tunnel.next() == frame, "{size} bytes from the socket");
    }
    let frames = random.frames(300);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(frames.iter().all(|frame| peer.send_to(frame, &lab.near).is_ok())));
        assert!(frames.iter().all(|frame| lab.tunnel.next() == *frame), "many frames in order");
    });
}

#[test]
fn the_peer_may_come_late_and_come_back() {
    let namespace = Namespace::new();
    let mut lab = Lab::start(&namespace);
    let mut received = 0;
    for round in 0..20 {
        // Nobody has ever been there, or its file is still there without it, or that is gone too.
        lab.tunnel.send_marks([100; 3]);
        received += 3;
        lab.client.wait_for_frames("b", "Destination", received);
        if round % 2 == 1 {
            fs::remove_file(&lab.far).expect("removed");
            lab.tunnel.send_marks([100; 3]);
            received += 3;
            lab.client.wait_for_frames("b", "Destination", received);
        }
        let _ = fs::remove_file(&lab.far);
        let peer = lab.peer();
        lab.tunnel.send_marks([round]);
        received += 1;
        // The last of those before may have waited until now.
        while next(&peer) != WireTap::mark(round) {}
        peer.send_to(&WireTap::mark(round), &lab.near).expect("sent");
        lab.tunnel.expect_mark(round);
    }
}

#[test]
fn a_peer_that_does_not_read_costs_its_frames_and_holds_up_nothing() {
    let namespace = Namespace::new();
    let mut lab = Lab::start(&namespace);
    let peer = lab.peer();
    lab.tunnel.send_marks(0..2000);
    lab.client.wait_for_frames("b", "Destination", 2000);
    peer.send_to(&WireTap::mark(7), &lab.near).expect("sent");
    lab.tunnel.expect_mark(7);
    let sent = lab.client.stats("b", "Source")[2];
    assert!((1..2000).contains(&sent), "its queue is bounded: {sent}");
    for number in 0..sent {
        assert!(next(&peer) == WireTap::mark(u16::try_from(number).expect("small")), "{number} of {sent}");
    }
    lab.tunnel.send_marks([3000]);
    assert!(next(&peer) == WireTap::mark(3000), "and then it goes on");
}

#[test]
fn only_sockets_are_replaced() {
    let namespace = Namespace::new();
    let mut lab = Lab::start(&namespace);
    lab.client.tell("bridge create c");
    let file = lab.hypervisor.path("file");
    fs::write(&file, "precious").expect("written");
    let folder = lab.hypervisor.path("folder");
    fs::create_dir(&folder).expect("made");
    let link = lab.hypervisor.path("link");
    std::os::unix::fs::symlink(&file, &link).expect("linked");
    for path in [&file, &folder, &link, &lab.hypervisor.path("no/such/folder")] {
        assert_eq!(lab.add("c", path), "206-unable to create NIO UNIX for bridge 'c'", "{}", path.display());
    }
    assert_eq!(fs::read_to_string(&link).expect("there"), "precious");
    assert!(folder.is_dir());

    let stale = lab.hypervisor.path("stale");
    drop(UnixDatagram::bind(&stale).expect("bound"));
    assert!(is_socket(&stale));
    assert_eq!(lab.add("c", &stale), "100-NIO UNIX added to bridge 'c'");
    lab.client.tell("bridge delete c");
    assert!(!stale.exists(), "it is removed with the bridge");
}

#[test]
fn a_full_bridge_takes_no_path_away() {
    let namespace = Namespace::new();
    let mut lab = Lab::start(&namespace);
    assert_eq!(lab.add("b", &lab.near.clone()), "206-bridge 'b' has already 2 allocated NIOs");
    let peer = lab.peer();
    peer.send_to(&WireTap::mark(1), &lab.near).expect("it is still there");
    lab.tunnel.expect_mark(1);
}

#[test]
fn a_path_that_another_bridge_took_over_stays_with_that_one() {
    let namespace = Namespace::new();
    let mut lab = Lab::start(&namespace);
    lab.client.tell("bridge create c");
    let near = lab.near.clone();
    assert_eq!(lab.add("c", &near), "100-NIO UNIX added to bridge 'c'");
    lab.client.tell_all(&["bridge add_nio_udp c 20004 127.0.0.1 20005", "bridge start c", "bridge delete b"]);
    assert!(is_socket(&near), "deleting the old bridge leaves it");
    let tunnel = Tunnel::new(&namespace, 20005, 20004);
    let peer = lab.peer();
    peer.send_to(&WireTap::mark(1), &near).expect("sent");
    tunnel.expect_mark(1);
    lab.client.tell("hypervisor reset");
    assert!(!near.exists());
}

#[test]
fn paths_are_removed_at_the_end_of_the_program() {
    let namespace = Namespace::new();
    for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
        let mut lab = Lab::start(&namespace);
        assert!(is_socket(&lab.near));
        match signal {
            None => drop(lab.client.tell("hypervisor stop")),
            Some(signal) => lab.hypervisor.signal(signal),
        }
        assert_eq!(lab.hypervisor.end(), Some(0));
        assert!(!lab.near.exists(), "{signal:?}");
    }
}

#[test]
fn paths_that_are_too_long_are_refused() {
    let namespace = Namespace::new();
    let mut lab = Lab::start(&namespace);
    lab.client.tell("bridge create c");
    let refused = "206-unable to create NIO UNIX for bridge 'c'";
    // In the folder where it runs.
    for length in [108, 109, 200, 5000] {
        assert_eq!(lab.add("c", Path::new(&"x".repeat(length))), refused, "{length}");
        let remote = format!("bridge add_nio_unix c near2 {}", "x".repeat(length));
        assert_eq!(lab.client.ask(&remote), [refused], "{length}, remote");
        assert!(!lab.hypervisor.path("near2").exists(), "nothing is left behind");
    }
    let longest = "x".repeat(107);
    lab.client.tell(&format!("bridge add_nio_unix c {longest} {}", "y".repeat(107)));
    wait_until("it is there", || is_socket(&lab.hypervisor.path(&longest)));
}
