//! Bridges between instances of IOL, played by sockets of the tests, and UDP tunnels.

mod changes;
mod files;
mod forwarding;
mod ports;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::lab::{Client, Hypervisor, Namespace, PATIENCE, Tunnel, uninterrupted, with_own_tmp};

/// The ids of the instance and of the bridge; every test has a `/tmp` of its own.
const INSTANCE: u16 = 401;
const BRIDGE: u16 = 913;
const HEADER_LEN: usize = 8;

/// Where a socket is.
fn path(id: u16) -> PathBuf {
    Path::new("/tmp/netio0").join(id.to_string())
}

/// An instance of IOL.
struct Instance {
    socket: UnixDatagram,
    id: u16,
}

impl Instance {
    fn new(id: u16) -> Self {
        // Its own left-over file, as IOL does.
        let _ = std::fs::remove_file(path(id));
        let socket = UnixDatagram::bind(path(id)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket, id }
    }

    /// Sends a datagram to the bridge as it is.
    fn send_raw(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, path(BRIDGE)).expect("sent");
    }

    /// Sends a frame to a port, in a header of which only that counts.
    fn send(&self, port: u8, frame: &[u8]) {
        self.send_raw(&[&[9, 9, 9, 9, port, 9, 9, 9], frame].concat());
    }

    /// The next datagram as it is.
    fn receive_raw(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let len = uninterrupted(|| self.socket.recv(&mut buffer)).expect("a frame comes");
        buffer.truncate(len);
        buffer
    }

    /// The port of the next frame, and the frame.
    fn receive(&self) -> (u8, Vec<u8>) {
        let datagram = self.receive_raw();
        let (header, frame) = datagram.split_at(HEADER_LEN);
        let [high, low] = self.id.to_be_bytes();
        assert_eq!(header, [high, low, 0x03, 0x91, header[4], header[4], 1, 0]);
        (header[4], frame.to_vec())
    }
}

/// A running bridge `b` of the program, in a `/tmp` of its own.
struct Lab<'a> {
    namespace: &'a Namespace,
    hypervisor: Hypervisor<'a>,
    client: Client,
}

impl Lab<'_> {
    /// Puts a tunnel at a port; returns its far end.
    fn connect(&mut self, port: &str, local: u16) -> Tunnel {
        let remote = local + 10_000;
        self.client.tell(&add_nio(port, local));
        Tunnel::new(self.namespace, remote, local)
    }

    /// What is said of the traffic, without the final line.
    fn stats(&mut self) -> Vec<String> {
        let mut lines = self.client.tell("iol_bridge get_stats b");
        lines.pop();
        lines
    }

    /// Waits until that is what is said of the traffic: a frame is counted when it has been sent.
    fn until_counted(&mut self, lines: &[impl AsRef<str>]) {
        let mut said = Vec::new();
        let expected: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        let start = Instant::now();
        while said != expected {
            assert!(start.elapsed() < PATIENCE, "{said:?}");
            said = self.stats();
        }
    }

    /// How many frames the port at the front of the list received from its tunnel.
    fn received(&mut self) -> u64 {
        let line = self.stats().remove(0);
        let (_, number) = line.split_once("IN: ").expect("a number of frames");
        number.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    }

    fn expect(&mut self, command: &str, reply: &str) {
        assert_eq!(self.client.ask(command), [reply], "{command}");
    }
}

/// The command that puts a tunnel at a port, `"<bay> <unit>"`.
fn add_nio(port: &str, local: u16) -> String {
    format!("iol_bridge add_nio_udp b {INSTANCE} {port} {local} 127.0.0.1 {}", local + 10_000)
}

/// Runs `task` with a bridge that runs.
fn with_bridge(options: &str, task: impl FnOnce(&mut Lab<'_>) + Send) {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        let hypervisor = Hypervisor::start_with(&namespace, options);
        let mut client = hypervisor.client();
        client.tell(&format!("iol_bridge create b {BRIDGE}"));
        client.tell("iol_bridge start b");
        task(&mut Lab { namespace: &namespace, hypervisor, client });
    });
}
