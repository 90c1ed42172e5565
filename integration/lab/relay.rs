//! What is between two ends of a tunnel: it passes datagrams on, in runs as they come, and loses some.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rubridge::sys::socket::enlarge_buffers;
use rubridge::sys::udp::{receive, receive_together, send_together};

use super::Namespace;
use super::frames::Random;

/// Passes datagrams on between two tunnels until it is dropped.
pub(crate) struct LossyRelay {
    lost: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl LossyRelay {
    /// Two sockets in `namespace`, at ports of `address` that the two ends send to: each with the port that the end itself
    /// has. One of `one_in` datagrams is lost, each way.
    pub(crate) fn new(namespace: &Namespace, address: IpAddr, ends: [(u16, u16); 2], one_in: usize) -> Self {
        let [first, second] = ends.map(|(ours, theirs)| {
            namespace.run(|| {
                let socket = UdpSocket::bind((address, ours)).expect("bound");
                socket.connect((address, theirs)).expect("connected");
                enlarge_buffers(&socket, 8 << 20).expect("larger buffers");
                receive_together(&socket).expect("runs");
                socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
                socket
            })
        });
        let (lost, over) = (Arc::default(), Arc::default());
        let copy = |socket: &UdpSocket| socket.try_clone().expect("a descriptor");
        let ways = [(copy(&first), copy(&second)), (second, first)];
        let threads = ways.into_iter().map(|(from, to)| {
            let (lost, over) = (Arc::clone(&lost), Arc::clone(&over));
            std::thread::spawn(move || pass_on(&from, &to, one_in, &lost, &over))
        });
        Self { threads: threads.collect(), lost, over }
    }

    /// Datagrams that it has lost so far.
    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Relaxed)
    }
}

impl Drop for LossyRelay {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in it has been reported, and the transfer has failed.
            let _ = thread.join();
        }
    }
}

fn pass_on(from: &UdpSocket, to: &UdpSocket, one_in: usize, lost: &AtomicUsize, over: &AtomicBool) {
    let mut random = Random(7);
    let mut buffer = vec![0; 70_000];
    while !over.load(Relaxed) {
        // Nothing for a while, or an end is not there yet.
        let Ok(received) = receive(from.as_fd(), &mut buffer) else { continue };
        let run = &buffer[..received.len];
        let size = received.size.unwrap_or(run.len());
        let send = |run: &[u8]| {
            if run.len() > size {
                send_together(to.as_fd(), run, size.try_into().expect("a datagram")).expect("sent");
            } else if !run.is_empty() {
                // An end that is gone already answers to the datagram before.
                let _ = to.send(run);
            }
        };
        let mut begun = 0;
        for at in (0..run.len()).step_by(size.max(1)) {
            if random.chance(one_in) {
                send(&run[begun..at]);
                begun = (at + size).min(run.len());
                lost.fetch_add(1, Relaxed);
            }
        }
        send(&run[begun..]);
    }
}
