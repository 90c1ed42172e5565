//! The far end of a UDP tunnel.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::{Namespace, PATIENCE, wait_until};

/// A socket that sends to a tunnel of the program, and hears only that one.
pub(crate) struct Tunnel(UdpSocket);

impl Tunnel {
    /// The peer, at the port `ours`, of a tunnel at the port `theirs`. The tunnel may come later.
    pub(crate) fn new(namespace: &Namespace, ours: u16, theirs: u16) -> Self {
        let mut socket = None;
        // One that was closed lives on for a moment, where another test is about to start a process.
        wait_until("the port is free", || {
            socket = namespace.run(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, ours)).ok());
            socket.is_some()
        });
        let socket = socket.expect("bound");
        socket.connect((Ipv4Addr::LOCALHOST, theirs)).expect("a way to the tunnel");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(socket)
    }

    /// Sends a frame. That the tunnel is not there is answered to the next one: that is no failure.
    pub(crate) fn send(&self, frame: &[u8]) {
        let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        match self.0.send(frame) {
            Err(error) if refused(&error) => drop(self.0.send(frame)),
            sent => assert_eq!(sent.expect("sent"), frame.len()),
        }
    }

    /// The next frame.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let len = self.0.recv(&mut buffer).expect("a frame comes");
        buffer.truncate(len);
        buffer
    }

    /// The next frame, if one comes within `patience`.
    pub(crate) fn receive_within(&self, patience: Duration) -> Option<Vec<u8>> {
        self.0.set_read_timeout(Some(patience)).expect("a timeout");
        let mut buffer = vec![0; 1 << 16];
        let received = self.0.recv(&mut buffer);
        self.0.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Some(buffer[..received.ok()?].to_vec())
    }
}

/// Whether no socket over IPv4 has a UDP port. It is read, not tried: a socket of ours could be in the way later.
pub(crate) fn is_free(namespace: &Namespace, port: u16) -> bool {
    let sockets = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/udp").expect("the sockets"));
    let addresses = sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    addresses.into_iter().all(|address| !address.ends_with(&format!(":{port:04X}")))
}
