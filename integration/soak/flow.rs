//! Frames through the bridge that is left alone, and at those that are not.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::commands::IOL_IDS;
use crate::lab::frames::Recipe;
use crate::lab::{Client, Namespace, PATIENCE, WireTap, wait_until};

/// Frames a second, as far as the machine allows.
const RATE: f64 = 20_000.0;
/// Frames on their way at once: socket buffers hold them all, so that none is lost to a machine that is busy.
const WINDOW: u64 = 1000;
/// How long the sender rests, so that others have the CPUs too.
const PAUSE: Duration = Duration::from_micros(500);

/// Numbered frames through a bridge between two tunnels.
pub(super) struct Flow {
    bridge: &'static str,
    source: UdpSocket,
    destination: UdpSocket,
    sent: AtomicU64,
    received: AtomicU64,
    /// One more than the number of the frame that came last.
    reached: AtomicU64,
}

impl Flow {
    /// Makes and starts the bridge.
    pub(super) fn through(bridge: &'static str, client: &mut Client, namespace: &Namespace) -> Self {
        client.tell(&format!("bridge create {bridge}"));
        client.tell(&format!("bridge add_nio_udp {bridge} 41000 127.0.0.1 41001"));
        client.tell(&format!("bridge add_nio_udp {bridge} 42000 127.0.0.1 42001"));
        client.tell(&format!("bridge start {bridge}"));
        let socket = |ours: u16, theirs: u16| {
            let socket = UdpSocket::bind(("127.0.0.1", ours)).expect("a port");
            socket.connect(("127.0.0.1", theirs)).expect("connected");
            setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).expect("a large buffer");
            socket
        };
        let [source, destination] = namespace.run(|| [socket(41001, 41000), socket(42001, 42000)]);
        destination.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let [sent, received, reached] = Default::default();
        Self { bridge, source, destination, sent, received, reached }
    }

    /// Sends frames, at most [`RATE`], as long as they arrive.
    pub(super) fn send_until(&self, done: &AtomicBool) {
        let start = Instant::now();
        let mut moved = (0, start);
        while !done.load(Relaxed) {
            let (sent, reached) = (self.sent.load(Relaxed), self.reached.load(Relaxed));
            if moved.0 != reached {
                moved = (reached, Instant::now());
            }
            assert!(moved.1.elapsed() < PATIENCE, "no frame came after {reached} of {sent}");
            // Rounding down is all that is wanted.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let due = (start.elapsed().as_secs_f64() * RATE) as u64;
            let until = due.min(reached + WINDOW);
            (sent..until).for_each(|_| self.send_one());
            std::thread::sleep(PAUSE);
        }
    }

    fn send_one(&self) {
        let number = self.sent.fetch_add(1, Relaxed);
        let mut frame = [0x02; 100];
        frame[..8].copy_from_slice(&number.to_be_bytes());
        self.source.send(&frame).expect("the bridge is there");
    }

    /// Receives frames, which must come in order.
    pub(super) fn receive_until(&self, done: &AtomicBool) {
        let mut frame = [0; 200];
        let mut next = 0;
        while !done.load(Relaxed) {
            match self.destination.recv(&mut frame) {
                Ok(len) => {
                    assert_eq!(len, 100);
                    let number = u64::from_be_bytes(frame[..8].try_into().expect("eight bytes"));
                    assert!(number >= next, "frame {number} came after {next}");
                    next = number + 1;
                    self.received.fetch_add(1, Relaxed);
                    self.reached.store(next, Relaxed);
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
            }
        }
    }

    /// Frames have come all the time, and hardly any was lost.
    pub(super) fn expect_nearly_all(&self, client: &mut Client) {
        let so_far = self.sent.load(Relaxed);
        wait_until("all before this have come", || self.reached.load(Relaxed) >= so_far);
        let (received, reached) = (self.received.load(Relaxed), self.reached.load(Relaxed));
        assert!(so_far > 10_000, "only {so_far} frames were sent");
        assert!(received + reached / 1000 >= reached, "{} of {reached} frames are lost", reached - received);
        // A frame is counted when it has been sent; it may arrive before.
        wait_until("they are counted", || {
            client.stats(self.bridge, "Source")[0] >= received
                && client.stats(self.bridge, "Destination")[2] >= received
        });
        println!("{received} of {reached} frames came");
    }
}

/// Sends frames to everything that commands make: tunnels, UNIX sockets, interfaces, IOL bridges.
pub(super) fn disturb(done: &AtomicBool, wires: &[WireTap]) {
    let tunnels = [0, 1, 2, 3, 4, 5].map(|number| UdpSocket::bind(("127.0.0.1", 22_000 + number)).expect("a port"));
    let instance = UnixDatagram::unbound().expect("a socket");
    let frame = Recipe { udp: true, payload: vec![7; 200], ..Recipe::default() }.finished().bytes;
    instance.set_nonblocking(true).expect("no waiting");
    while !done.load(Relaxed) {
        for (tunnel, port) in tunnels.iter().zip(21_000_u16..) {
            (0..4).for_each(|_| drop(tunnel.send_to(&frame, ("127.0.0.1", port))));
        }
        for id in IOL_IDS {
            let header = [0, 1, 0, 2, 1, 1, 1, 0];
            let _ = instance.send_to(&[&header, &frame[..]].concat(), format!("/tmp/netio0/{id}"));
        }
        wires.iter().for_each(|wire| wire.send_plain(&frame));
        std::thread::sleep(4 * PAUSE);
    }
}
