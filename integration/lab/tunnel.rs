//! Bridges with UDP tunnels, and the far ends of those.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rubridge::sys::socket::enlarge_buffers;

use super::{Client, Hypervisor, Namespace, PATIENCE, WireTap, uninterrupted, wait_until};

/// Room for some thousand frames, so that a test that is slow to read loses none.
const BUFFER_BYTES: u32 = 32 << 20;

/// The far end of a tunnel: each frame is one datagram.
pub(crate) struct Tunnel {
    pub(crate) socket: UdpSocket,
}

impl Tunnel {
    /// At port `far` of this machine, to the bridge's port `near`.
    pub(crate) fn new(namespace: &Namespace, far: u16, near: u16) -> Self {
        Self::between(namespace, Ipv4Addr::LOCALHOST.into(), far, near)
    }

    /// The same, at another address of this machine.
    pub(crate) fn between(namespace: &Namespace, address: IpAddr, far: u16, near: u16) -> Self {
        namespace.run(|| {
            // One that was just closed is still open in a process that another test is about to start.
            let mut socket = None;
            wait_until("the port is free", || {
                socket = UdpSocket::bind((address, far)).ok();
                socket.is_some()
            });
            let socket = socket.expect("bound");
            socket.connect((address, near)).expect("connected");
            Self::of(socket)
        })
    }

    /// Through a socket that is connected already.
    pub(crate) fn of(socket: UdpSocket) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        enlarge_buffers(&socket, BUFFER_BYTES).expect("larger buffers");
        Self { socket }
    }

    /// Sends a frame. That the tunnel was not there is answered to the next one: that is no failure.
    pub(crate) fn send(&self, frame: &[u8]) {
        let refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        match self.socket.send(frame) {
            Err(error) if refused(&error) => drop(self.socket.send(frame)),
            sent => assert_eq!(sent.expect("sent"), frame.len()),
        }
    }

    /// Sends marks of these numbers.
    pub(crate) fn send_marks(&self, numbers: impl IntoIterator<Item = u16>) {
        numbers.into_iter().for_each(|number| self.send(&WireTap::mark(number)));
    }

    /// The next frame, which must come.
    pub(crate) fn next(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let len = uninterrupted(|| self.socket.recv(&mut buffer)).expect("a frame in time");
        buffer.truncate(len);
        buffer
    }

    /// The next frame, if one comes within `patience`.
    pub(crate) fn receive_within(&self, patience: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(patience)).expect("a timeout");
        let mut buffer = vec![0; 1 << 16];
        let received = uninterrupted(|| self.socket.recv(&mut buffer));
        self.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Some(buffer[..received.ok()?].to_vec())
    }

    /// The next frame must be the mark `number`.
    pub(crate) fn expect_mark(&self, number: u16) {
        let frame = self.next();
        assert!(frame == WireTap::mark(number), "not mark {number}: {:02x?}", &frame[..frame.len().min(60)]);
    }

    /// The frames before the mark `number`, which must come.
    pub(crate) fn until_mark(&self, number: u16) -> Vec<Vec<u8>> {
        let mark = WireTap::mark(number);
        std::iter::repeat_with(|| self.next()).take_while(|frame| *frame != mark).collect()
    }
}

/// A bridge `b` between two tunnels, and what drives it.
pub(crate) struct TwoTunnels<'a> {
    pub(crate) hypervisor: Hypervisor<'a>,
    pub(crate) client: Client,
    /// The far end of the source.
    pub(crate) left: Tunnel,
    /// The far end of the destination.
    pub(crate) right: Tunnel,
}

/// Adds the NIOs of [`TwoTunnels`] to a bridge `b`.
pub(crate) const LEFT: &str = "bridge add_nio_udp b 20000 127.0.0.1 20001";
pub(crate) const RIGHT: &str = "bridge add_nio_udp b 20002 127.0.0.1 20003";

impl<'a> TwoTunnels<'a> {
    /// A running bridge.
    pub(crate) fn start(namespace: &'a Namespace) -> Self {
        Self::start_with(namespace, "")
    }

    /// The same, of a program with these options.
    pub(crate) fn start_with(namespace: &'a Namespace, options: &str) -> Self {
        let mut tunnels = Self::stopped(namespace, options);
        tunnels.client.tell("bridge start b");
        tunnels
    }

    /// A bridge that does not run yet.
    pub(crate) fn stopped(namespace: &'a Namespace, options: &str) -> Self {
        let hypervisor = Hypervisor::start_with(namespace, options);
        let mut client = hypervisor.client();
        client.tell_all(&["bridge create b", LEFT, RIGHT]);
        let (left, right) = (Tunnel::new(namespace, 20001, 20000), Tunnel::new(namespace, 20003, 20002));
        Self { hypervisor, client, left, right }
    }

    /// Adds a packet filter: its name, its type and what that takes.
    pub(crate) fn add_filter(&mut self, filter: &str) {
        self.client.tell(&format!("bridge add_packet_filter b {filter}"));
    }

    /// Sends up to 20,000 frames a second each way while `task` runs, and reads what arrives.
    pub(crate) fn with_traffic(&mut self, task: impl FnOnce(&mut Client)) {
        let Self { client, left, right, .. } = self;
        let (left, right) = (&*left, &*right);
        let done = AtomicBool::new(false);
        let pump = |tunnel: &Tunnel| {
            tunnel.socket.set_nonblocking(true).expect("a socket");
            let mut arrived = 0;
            while !done.load(Relaxed) {
                tunnel.send_marks(0..20);
                while let Ok(len) = tunnel.socket.recv(&mut [0; 2000]) {
                    assert_eq!(len, WireTap::mark(0).len());
                    arrived += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            tunnel.socket.set_nonblocking(false).expect("a socket");
            assert!(arrived > 1000, "only {arrived} frames passed meanwhile");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pump(left));
            scope.spawn(|| pump(right));
            task(client);
            done.store(true, Relaxed);
        });
    }

    /// Waits until the bridge has received so many frames from the left. Filters and captures have then seen them
    /// all, once another command has been answered.
    pub(crate) fn wait_for_frames(&mut self, frames: u64) {
        self.client.wait_for_frames("b", "Source", frames);
    }
}

/// Whether no socket over IPv4 has a UDP port. It is read, not tried: a socket of ours could be in the way later.
pub(crate) fn is_free(namespace: &Namespace, port: u16) -> bool {
    let sockets = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/udp").expect("the sockets"));
    let addresses = sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    addresses.into_iter().all(|address| !address.ends_with(&format!(":{port:04X}")))
}
