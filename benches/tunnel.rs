//! Frames between two UDP tunnels: how many a second, and how long one takes. `cargo bench --bench tunnel`
//!
//! The plain bridge and rubridge take turns within each round. Nothing is lost: the sender has at most a window of frames
//! on their way. The peers at both ends are plain sockets, or such that send and receive in runs as rubridge's own do.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rubridge::engine::link::Equipment;
use rubridge::engine::{Engine, Link};
use rubridge::nio::{Mode, udp};
use rubridge::sys::udp::{receive, receive_together, send_together};
use rubridge::wire::offload::Features;

const FRAME: usize = 64;
/// Frames on their way at most.
const WINDOW: u64 = 512;
const RUN: usize = 32;
const ROUNDS: usize = 7;
const SECONDS: f64 = 1.0;
const TRIPS: usize = 2000;

const CONTESTANTS: [(&str, Mode); 2] = [("plain", Mode::Plain), ("rubridge", Mode::Offloads(Features::ALL))];

/// A bridge between two tunnels, with a socket at either far end.
struct Lab {
    _link: Link,
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Lab {
    fn new(mode: Mode) -> Self {
        let free = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = |socket: &UdpSocket| socket.local_addr().expect("its address").port();
        let [sender, receiver, near, far] = [(); 4].map(|()| free());
        let ports = [port(&near), port(&far)];
        drop((near, far));
        let nios = [(&sender, ports[0]), (&receiver, ports[1])].map(|(peer, own)| {
            peer.connect(("127.0.0.1", own)).expect("connected");
            udp::open(own, "127.0.0.1", port(peer), mode, |_| false).expect("a tunnel")
        });
        let [first, second] = nios;
        let link = Link::start(&Engine::start().expect("workers"), first, second, Equipment::default());
        Self { _link: link.expect("it starts"), sender, receiver }
    }

    /// Frames a second.
    fn rate(&self, runs: bool) -> f64 {
        if runs {
            receive_together(&self.receiver).expect("runs");
        }
        self.receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let (received, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = vec![0; 70_000];
                while !over.load(Relaxed) {
                    if let Ok(got) = receive(self.receiver.as_fd(), &mut buffer) {
                        received.fetch_add((got.len / FRAME) as u64, Relaxed);
                    }
                }
            });
            let frames = [7; FRAME * RUN];
            let start = Instant::now();
            let mut sent = 0u64;
            while start.elapsed().as_secs_f64() < SECONDS {
                if sent - received.load(Relaxed) + RUN as u64 > WINDOW {
                    std::hint::spin_loop();
                    continue;
                }
                if runs {
                    send_together(self.sender.as_fd(), &frames, 64).expect("sent");
                    sent += RUN as u64;
                } else {
                    self.sender.send(&frames[..FRAME]).expect("sent");
                    sent += 1;
                }
            }
            let rate = received.load(Relaxed) as f64 / start.elapsed().as_secs_f64();
            over.store(true, Relaxed);
            rate
        })
    }

    /// The median time from sending a frame to receiving it, in µs.
    fn latency(&self) -> f64 {
        self.receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let mut buffer = [0; 2048];
        let mut times: Vec<f64> = (0..TRIPS)
            .map(|_| {
                std::thread::sleep(Duration::from_micros(200));
                let start = Instant::now();
                self.sender.send(&[7; FRAME]).expect("sent");
                self.receiver.recv(&mut buffer).expect("received");
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[TRIPS / 2]
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(title: &str, unit: &str, measure: impl Fn(&Lab) -> f64) {
    let mut figures = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let contestant = (round + turn) % 2;
            figures[contestant].push(measure(&Lab::new(CONTESTANTS[contestant].1)));
        }
    }
    let ratios = figures[1].iter().zip(&figures[0]).map(|(own, plain)| own / plain).collect();
    let medians = figures.map(median);
    let names = CONTESTANTS.map(|(name, _)| name);
    println!(
        "{title}: {} {:.1} {unit}, {} {:.1} {unit}, ratio {:.2}",
        names[0],
        medians[0],
        names[1],
        medians[1],
        median(ratios)
    );
}

fn main() {
    compare("64-byte frames between plain peers", "thousand/s", |lab| lab.rate(false) / 1e3);
    compare("64-byte frames between peers that use runs", "thousand/s", |lab| lab.rate(true) / 1e3);
    compare("one frame at a time between plain peers", "µs", Lab::latency);
}
