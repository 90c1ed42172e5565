//! Frames that go through UDP tunnels in runs: what comes out are the very frames that went in.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

use rubridge::engine::link::Equipment;
use rubridge::engine::{Engine, Link};
use rubridge::nio::{Egress, Ends, Identity, Mode, Nio, Outgoing, RunLimit, udp};
use rubridge::sys::udp::send_together;
use rubridge::wire::offload::Features;

use crate::lab::frames::{Random, Recipe};
use crate::lab::{PATIENCE, uninterrupted, wait_until};

/// A UDP NIO and the socket at its far end, which is a plain one.
fn tunnel() -> (Nio, UdpSocket) {
    let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (ours, theirs) = (ours.expect("a socket"), theirs.expect("a socket"));
    let port = |socket: &UdpSocket| socket.local_addr().expect("its address").port();
    let (local, remote) = (port(&ours), port(&theirs));
    drop(ours);
    theirs.connect(("127.0.0.1", local)).expect("connected");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    (udp::open(local, "127.0.0.1", remote, Mode::Offloads(Features::ALL), |_| false).expect("a tunnel"), theirs)
}

/// An egress that takes runs, until told to refuse them; each frame becomes a datagram.
#[derive(Debug)]
struct Together {
    socket: UnixDatagram,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    /// The error number with which runs are refused; 0 for none.
    refusal: AtomicI32,
    /// Runs refused so far.
    refused: AtomicUsize,
    /// Runs taken so far.
    taken: AtomicUsize,
}

impl Egress for Together {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()> {
        self.socket.send(frame.plain()).map(drop)
    }

    fn run_limit(&self) -> Option<RunLimit> {
        Some(RunLimit { frames: 16, bytes: 20_000 })
    }

    fn send_run(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
        assert!(bytes.len() <= 20_000 && bytes.len().div_ceil(size) <= 16, "more than it takes");
        let refusal = self.faults.refusal.load(Relaxed);
        if bytes.len() > size {
            if refusal != 0 {
                self.faults.refused.fetch_add(1, Relaxed);
                return Err(io::Error::from_raw_os_error(refusal));
            }
            self.faults.taken.fetch_add(1, Relaxed);
        }
        bytes.chunks(size).try_for_each(|frame| self.socket.send(frame).map(drop))
    }
}

/// A NIO with such an egress, where its frames come out, and its faults.
fn together() -> (Nio, UnixDatagram, Arc<Faults>) {
    let (ours, theirs) = UnixDatagram::pair().expect("a socket pair");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let faults = Arc::new(Faults::default());
    let (pair, _, _) = super::engine::pair("together");
    let egress = Together { socket: ours, faults: Arc::clone(&faults) };
    let identity = Identity { kind: "test", description: "together".to_owned(), receive_filter: None, tunnel: None };
    (Nio { identity, ends: Ends { ingress: pair.ends.ingress, egress: Box::new(egress) } }, theirs, faults)
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 70_000];
    let len = uninterrupted(|| socket.recv(&mut buffer)).expect("a frame in time");
    buffer.truncate(len);
    buffer
}

fn start(first: Nio, second: Nio) -> Link {
    Link::start(&Engine::start().expect("workers"), first, second, Equipment::default()).expect("it starts")
}

/// Segments of one TCP stream, each with `size` bytes of payload but the last.
fn stream(segments: usize, size: usize, last: usize) -> Vec<Vec<u8>> {
    let mut random = Random(1);
    let build = |number: usize| {
        let payload = random.bytes(if number + 1 == segments { last } else { size });
        let counted = u32::try_from(number * size).expect("short");
        let identification = u16::try_from(number).expect("few");
        Recipe { payload, sequence: 1000 + counted, identification, ..Recipe::default() }.finished().bytes
    };
    (0..segments).map(build).collect()
}

#[test]
fn a_run_is_merged_in_place_and_cut_back_into_the_very_frames() {
    let (first, sender) = tunnel();
    let (second, receiver, _) = super::engine::pair("second");
    let link = start(first, second);
    for (segments, last) in [(2, 1000), (40, 1448), (44, 7)] {
        let frames = stream(segments, 1448, last);
        let size = u16::try_from(frames[0].len()).expect("short");
        let before = link.directions()[0].counters.bytes_in.get();
        send_together(sender.as_fd(), &frames.concat(), size).expect("sent");
        let merged = super::engine::receive(&receiver);
        let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
        assert_eq!(merged.len(), 10 + 54 + payload.len(), "{segments} segments");
        assert!(merged[64..] == payload, "{segments} segments");
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(link.directions()[0].counters.bytes_in.get() - before, bytes as u64);
    }
}

#[test]
fn runs_in_a_row_are_merged_across_and_lose_nothing() {
    let (first, sender) = tunnel();
    let (second, receiver, _) = super::engine::pair("second");
    let frames = stream(400, 1448, 1448);
    let mut random = Random(3);
    let mut rest = &frames[..];
    // Before it starts, so that all of them are there when it does.
    while !rest.is_empty() {
        let (run, behind) = rest.split_at(rest.len().min(1 + random.below(42)));
        rest = behind;
        let size = u16::try_from(run[0].len()).expect("short");
        send_together(sender.as_fd(), &run.concat(), size).expect("sent");
    }
    let link = start(first, second);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    let mut received = Vec::new();
    let mut merged = Vec::new();
    while received.len() < payload.len() {
        let frame = super::engine::receive(&receiver);
        merged.push(frame.len());
        received.extend_from_slice(&frame[64..]);
        assert!(payload.starts_with(&received), "after {merged:?}");
    }
    let counters = &link.directions()[0].counters;
    wait_until("all are counted", || counters.frames_out.get() == 400);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!((counters.bytes_in.get(), counters.bytes_out.get()), (bytes as u64, bytes as u64), "{merged:?}");
}

/// Frames of many sizes, equal ones often in a row.
fn mixture() -> Vec<Vec<u8>> {
    let mut random = Random(7);
    let mut frames = Vec::new();
    while frames.len() < 600 {
        let size = random.one_of(&[60, 60, 200, 1514, 1514, 9000]);
        for _ in 0..1 + random.below(30) {
            frames.push(random.bytes(size));
        }
    }
    frames
}

#[test]
fn frames_reach_a_plain_peer_one_by_one_and_in_order() {
    let (first, sender, _) = super::engine::pair("first");
    let (second, receiver) = tunnel();
    let link = start(first, second);
    let frames = mixture();
    let feed = frames.clone();
    // Few at once: a plain peer has room for no more, and nothing holds back a sender of datagrams.
    for burst in feed.chunks(20) {
        for frame in burst {
            sender.send(&[&[0; 10], &frame[..]].concat()).expect("sent");
        }
        for frame in burst {
            assert!(receive(&receiver) == *frame);
        }
    }
    let counters = &link.directions()[0].counters;
    wait_until("all are counted", || counters.frames_out.get() == frames.len() as u64);
    assert!(counters.writes.get() < counters.frames_out.get(), "some left together");
}

#[test]
fn super_frames_are_cut_into_runs_for_a_plain_peer() {
    let (first, sender, _) = super::engine::pair("first");
    let (second, receiver) = tunnel();
    let _link = start(first, second);
    let frames = stream(40, 1448, 700);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    let whole = Recipe { payload, identification: 0, ..Recipe::default() }.begun();
    sender.send(&[&whole.virtio(1, 1448)[..], &whole.bytes].concat()).expect("sent");
    for frame in frames {
        assert!(receive(&receiver) == frame);
    }
}

#[test]
fn a_run_that_is_refused_leaves_frame_by_frame() {
    let (first, sender) = tunnel();
    let (second, receiver, faults) = together();
    let link = start(first, second);
    let frames = mixture();
    let mut buffer = vec![0; 10_000];
    // EINVAL: too many; EMSGSIZE: too long for the route; EIO: the route cannot do it.
    for refusal in [0, libc::EINVAL, libc::EMSGSIZE, libc::EIO] {
        faults.refusal.store(refusal, Relaxed);
        for frame in &frames {
            sender.send(frame).expect("sent");
        }
        for frame in &frames {
            let len = uninterrupted(|| receiver.recv(&mut buffer)).expect("a frame in time");
            assert!(buffer[..len] == *frame, "refusal {refusal}");
        }
        let size = 100;
        let run = frames.concat()[..2950].to_vec();
        send_together(sender.as_fd(), &run, size).expect("sent");
        for frame in run.chunks(usize::from(size)) {
            let len = uninterrupted(|| receiver.recv(&mut buffer)).expect("a frame in time");
            assert!(buffer[..len] == *frame, "refusal {refusal}");
        }
        if refusal == 0 {
            assert!(faults.taken.load(Relaxed) > 0);
        }
    }
    let fallbacks = link.directions()[0].counters.fallbacks.get();
    assert_eq!(fallbacks, faults.refused.load(Relaxed) as u64);
    assert!(fallbacks > 0);
}
