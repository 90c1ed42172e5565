//! The engine between NIOs made of socket pairs, which fail on demand.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rubridge::engine::counters::DropReason;
use rubridge::engine::link::Equipment;
use rubridge::engine::{Engine, Link};
use rubridge::nio::{Egress, Ends, Frame, Identity, Ingress, Nio, Outgoing, ReceiveError};
use rubridge::wire::offload::Features;

use crate::lab::frames::Recipe;
use crate::lab::{uninterrupted, wait_until};

/// An end of a socket pair as a NIO: one datagram is one frame behind its virtio header.
#[derive(Debug)]
struct Pair {
    socket: UnixDatagram,
    faults: Arc<Faults>,
}

/// What goes wrong, and until when.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Frames with metadata are refused, as some kernels do with what they said they take.
    refuse_metadata: AtomicBool,
    /// The next read meets a frame that the kernel cannot describe.
    undescribed: AtomicBool,
    /// Sending finds the queue of the device full.
    no_buffers: AtomicBool,
}

/// A NIO, the test's end of its socket pair, and its faults.
pub(crate) fn pair(name: &str) -> (Nio, UnixDatagram, Arc<Faults>) {
    let (ours, theirs) = UnixDatagram::pair().expect("a socket pair");
    ours.set_nonblocking(true).expect("non-blocking");
    theirs.set_read_timeout(Some(crate::lab::PATIENCE)).expect("a timeout");
    let faults = Arc::new(Faults::default());
    let half = || Pair { socket: ours.try_clone().expect("a second handle"), faults: Arc::clone(&faults) };
    let identity = Identity { kind: "pair", description: name.to_owned(), receive_filter: None, tunnel: None };
    let nio = Nio { identity, ends: Ends { ingress: Box::new(half()), egress: Box::new(half()) } };
    (nio, theirs, faults)
}

/// A link with nothing between the NIOs; its workers end with it.
fn start(first: Nio, second: Nio) -> Link {
    let engine = Engine::start().expect("workers");
    Link::start(&engine, first, second, Equipment::default()).expect("it starts")
}

impl Ingress for Pair {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let len = self.socket.recv(frame.space(true))?;
        if self.faults.undescribed.swap(false, Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL).into());
        }
        frame.fill(len, true)
    }
}

impl Egress for Pair {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn features(&self) -> Features {
        Features::ALL
    }

    fn mtu(&self) -> Option<u32> {
        Some(1500)
    }

    fn send(&mut self, mut frame: Outgoing<'_>) -> io::Result<()> {
        let bytes = frame.with_virtio_header();
        if self.faults.refuse_metadata.load(Relaxed) && bytes[0] != 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if self.faults.no_buffers.swap(false, Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        self.socket.send(bytes).map(drop)
    }
}

fn numbered(number: u32) -> Vec<u8> {
    [&[0; 10], &[0xee; 60][..], &number.to_be_bytes()].concat()
}

pub(crate) fn receive(socket: &UnixDatagram) -> Vec<u8> {
    let mut buffer = vec![0; 70_000];
    let len = uninterrupted(|| socket.recv(&mut buffer)).expect("a frame in time");
    buffer.truncate(len);
    buffer
}

#[test]
fn a_full_egress_stops_its_ingress_and_loses_nothing() {
    let (first, sender, _) = pair("first");
    let (second, receiver, _) = pair("second");
    let bridge = start(first, second);
    // Far more than both socket pairs hold, so that the sender is held up through the bridge.
    let count = 5000;
    let feed = std::thread::spawn(move || {
        for number in 0..count {
            sender.send(&numbered(number)).expect("sent");
        }
        sender
    });
    let counters = &bridge.directions()[0].counters;
    let mut seen = 0;
    wait_until("the bridge is stuck", || {
        let before = std::mem::replace(&mut seen, counters.frames_in.get());
        seen > 0 && seen == before
    });
    assert!(!feed.is_finished(), "the sender waits for the receiver");
    for number in 0..count {
        assert_eq!(receive(&receiver), numbered(number));
    }
    feed.join().expect("the sender ends");
    wait_until("all is counted", || counters.frames_out.get() == u64::from(count));
    assert_eq!(counters.frames_in.get(), u64::from(count));
}

#[test]
fn directions_do_not_hold_each_other_up() {
    let (first, left, _) = pair("first");
    let (second, right, _) = pair("second");
    let bridge = start(first, second);
    // Nobody reads on the right until that way is full.
    left.set_nonblocking(true).expect("non-blocking");
    let mut seen = 0;
    wait_until("one way is stuck", || {
        let before = std::mem::replace(&mut seen, bridge.directions()[0].counters.frames_in.get());
        left.send(&numbered(0)).is_err() && seen == before && seen > 0
    });
    left.set_nonblocking(false).expect("blocking");
    for number in 0..2000 {
        right.send(&numbered(number)).expect("sent");
        assert_eq!(receive(&left), numbered(number));
    }
}

#[test]
fn what_the_egress_refuses_is_done_in_software_for_that_very_frame() {
    let (first, sender, _) = pair("first");
    let (second, receiver, faults) = pair("second");
    let bridge = start(first, second);
    let counters = &bridge.directions()[0].counters;
    let recipe = Recipe { payload: (0..=255).cycle().take(5000).collect(), ..Recipe::default() };
    let built = recipe.begun();
    let super_frame = [&built.virtio(1, 1000)[..], &built.bytes].concat();
    let small = Recipe { payload: vec![1, 2, 3], ..Recipe::default() };
    let unfinished = [&small.begun().virtio(0, 0)[..], &small.begun().bytes].concat();

    faults.refuse_metadata.store(true, Relaxed);
    // More often than it takes for the metadata to be given a rest.
    for _ in 0..40 {
        sender.send(&super_frame).expect("sent");
        for piece in 0..5 {
            let heard = receive(&receiver);
            assert_eq!(heard[..10], [0; 10]);
            assert_eq!(heard[10 + built.payload_at..], recipe.payload[piece * 1000..][..1000], "piece {piece}");
        }
        sender.send(&unfinished).expect("sent");
        assert_eq!(receive(&receiver)[10..], small.finished().bytes);
    }
    wait_until("all is counted", || counters.frames_out.get() == 40 * 6);
    let refused = counters.fallbacks.get();
    assert!((1..40).contains(&refused), "it stops trying after a while: {refused}");
    assert_eq!((counters.frames_in.get(), counters.cut.get(), counters.passed.get()), (240, 40, 0));

    faults.refuse_metadata.store(false, Relaxed);
    let whole = || {
        sender.send(&super_frame).expect("sent");
        let first = receive(&receiver);
        if first[1] == 0 {
            (0..4).for_each(|_| drop(receive(&receiver)));
        }
        first[1] == 1
    };
    assert!((0..10_000).any(|_| whole()), "metadata is trusted again after a rest");
}

#[test]
fn passing_faults_cost_one_frame_and_are_counted() {
    let (first, sender, from_faults) = pair("first");
    let (second, receiver, to_faults) = pair("second");
    let bridge = start(first, second);
    let counters = &bridge.directions()[0].counters;
    from_faults.undescribed.store(true, Relaxed);
    sender.send(&numbered(0)).expect("sent");
    wait_until("it is counted", || counters.dropped(DropReason::Undescribed) == 1);
    to_faults.no_buffers.store(true, Relaxed);
    sender.send(&numbered(1)).expect("sent");
    wait_until("it is counted", || counters.dropped(DropReason::NoBuffers) == 1);
    sender.send(&numbered(2)).expect("sent");
    assert_eq!(receive(&receiver), numbered(2));
    wait_until("all is counted", || counters.frames_out.get() == 1);
    assert_eq!(counters.frames_in.get(), 3);
}

#[test]
fn what_contradicts_itself_is_dropped_and_named() {
    let (first, sender, _) = pair("first");
    let (second, receiver, _) = pair("second");
    let bridge = start(first, second);
    let counters = &bridge.directions()[0].counters;
    let built = Recipe { payload: vec![7; 3000], ..Recipe::default() }.begun();
    let mut tunnel = built.virtio(1, 1000);
    tunnel[6] = 84;
    let hostile = [
        // A super-frame of a kind that is not known, or whose checksum belongs to an inner packet.
        (built.virtio(3, 1000), &built.bytes[..], DropReason::Unsupported),
        (tunnel, &built.bytes, DropReason::Unsupported),
        // TCP over IPv6 it says, TCP over IPv4 it is.
        (built.virtio(4, 1000), &built.bytes, DropReason::Unsupported),
        (built.virtio(1, 0), &built.bytes, DropReason::Unsupported),
        (built.virtio(1, 1000), &built.bytes[..40], DropReason::Malformed),
        (built.virtio(1, 1000), &[], DropReason::Malformed),
    ];
    for (header, frame, reason) in hostile {
        let before = counters.dropped(reason);
        sender.send(&[&header[..], frame].concat()).expect("sent");
        wait_until(reason.name(), || counters.dropped(reason) == before + 1);
    }
    sender.send(&numbered(9)).expect("sent");
    assert_eq!(receive(&receiver), numbered(9));
}

/// A finished TCP segment as the kernel of a sender would have cut it, number `index` of its stream.
fn segment(index: u16, payload: &[u8], flags: u8) -> Vec<u8> {
    let recipe = Recipe {
        identification: index,
        sequence: 1000 * u32::from(index),
        tcp_flags: flags,
        payload: payload.to_vec(),
        ..Recipe::default()
    };
    [&[0; 10], &recipe.finished().bytes[..]].concat()
}

#[test]
fn segments_that_have_arrived_are_merged_and_the_rest_keeps_its_place() {
    const ACK: u8 = 0x10;
    const ACK_PSH: u8 = 0x18;
    let payload: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let (first, sender, _) = pair("first");
    let (second, receiver, _) = pair("second");
    // All are there before the bridge begins to read.
    let frames = [
        segment(0, &payload, ACK),
        segment(1, &payload, ACK),
        segment(2, &payload[..10], ACK),
        numbered(1),
        segment(4, &payload, ACK),
        segment(5, &payload, ACK_PSH),
        segment(6, &payload, ACK),
    ];
    for frame in &frames {
        sender.send(frame).expect("sent");
    }
    let bridge = start(first, second);
    let merged = |count: u16, start: u16, bytes: usize| {
        let heard = receive(&receiver);
        assert_eq!((heard[0], heard[1]), (1, 1), "a super-frame of TCP over IPv4");
        assert_eq!(heard[4..6], 1000u16.to_ne_bytes());
        assert_eq!(heard[10 + 18..10 + 20], start.to_be_bytes(), "the identification of the first");
        let sent: Vec<u8> = (0..count).flat_map(|_| payload.iter().copied()).take(bytes).collect();
        assert_eq!(heard[10 + 54..], sent);
    };
    merged(3, 0, 2010);
    assert_eq!(receive(&receiver), frames[3]);
    merged(2, 4, 2000);
    // The last one is not held back for others to come.
    assert_eq!(receive(&receiver), frames[6]);
    let counters = &bridge.directions()[0].counters;
    wait_until("all is counted", || counters.frames_out.get() == 7);
    assert_eq!((counters.frames_in.get(), counters.merged.get(), counters.passed.get()), (7, 2, 2));
    assert_eq!(counters.bytes_in.get(), frames.iter().map(|frame| frame.len() as u64 - 10).sum::<u64>());
    assert_eq!(counters.bytes_out.get(), counters.bytes_in.get());
}

#[test]
fn what_is_still_to_be_sent_at_the_end_is_accounted_for() {
    let (first, sender, _) = pair("first");
    let (second, receiver, _) = pair("second");
    let bridge = start(first, second);
    let counters = &bridge.directions()[0].counters;
    let built = Recipe { payload: vec![7; 9500], ..Recipe::default() }.begun();
    let super_frame = [&built.virtio(1, 1000)[..], &built.bytes].concat();
    // Nobody reads, so one super-frame of ten pieces stays in the bridge.
    sender.set_nonblocking(true).expect("non-blocking");
    let mut seen = 0;
    wait_until("the bridge is stuck", || {
        let before = std::mem::replace(&mut seen, counters.frames_in.get());
        sender.send(&super_frame).is_err() && seen > 0 && seen == before
    });
    let [there, _] = bridge.directions().clone();
    drop(bridge.stop());
    let counters = there.counters;
    assert_eq!(counters.dropped(DropReason::Stopped), 10);
    assert_eq!(counters.frames_in.get(), counters.frames_out.get() + 10);
    drop(receiver);
}

/// Two datagrams of one flow, each in an IP packet of this size, perhaps with a tag.
fn datagrams(size: usize, tags: &[(u16, u16)]) -> [Vec<u8>; 2] {
    [1, 2].map(|identification| {
        let payload = vec![7; size - 28];
        let recipe = Recipe { udp: true, payload, identification, tags: tags.to_vec(), ..Recipe::default() };
        [&[0; 10][..], &recipe.finished().bytes].concat()
    })
}

#[test]
fn a_datagram_passes_or_not_whether_or_not_another_one_is_there() {
    for tags in [&[][..], &[(0x8100, 7)], &[(0x88a8, 7)]] {
        // The MTU is 1500, and nobody but a device itself holds single frames to it.
        for size in [1496, 1500, 1501, 1504] {
            let (first, sender, _) = pair("first");
            let (second, receiver, _) = pair("second");
            for frame in datagrams(size, tags) {
                sender.send(&frame).expect("sent");
            }
            let link = start(first, second);
            let counters = &link.directions()[0].counters;
            wait_until("both are sent", || counters.frames_out.get() == 2);
            assert_eq!(counters.dropped(DropReason::TooBig), 0, "{size} bytes, tags {tags:?}");
            drop(receive(&receiver));
        }
    }
}

#[test]
fn datagrams_are_not_merged_for_an_egress_that_refuses_that() {
    let (first, sender, _) = pair("first");
    let (second, receiver, faults) = pair("second");
    faults.refuse_metadata.store(true, Relaxed);
    let link = start(first, second);
    for _ in 0..50 {
        for frame in datagrams(500, &[]) {
            sender.send(&frame).expect("sent");
        }
        for frame in datagrams(500, &[]) {
            assert!(receive(&receiver) == frame);
        }
    }
    let counters = &link.directions()[0].counters;
    assert!(counters.merged.get() <= 8, "{} were merged", counters.merged.get());
}
