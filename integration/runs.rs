//! Frames that go through UDP tunnels in runs: what comes out are the very frames that went in.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use rubridge::engine::link::Equipment;
use rubridge::engine::{Engine, Link};
use rubridge::nio::{Nio, udp};
use rubridge::sys::udp::send_together;

use crate::lab::frames::{Random, Recipe};
use crate::lab::{PATIENCE, wait_until};

/// A UDP NIO and the socket at its far end, which is a plain one.
fn tunnel() -> (Nio, UdpSocket) {
    let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (ours, theirs) = (ours.expect("a socket"), theirs.expect("a socket"));
    let port = |socket: &UdpSocket| socket.local_addr().expect("its address").port();
    let (local, remote) = (port(&ours), port(&theirs));
    drop(ours);
    theirs.connect(("127.0.0.1", local)).expect("connected");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    (udp::open(local, "127.0.0.1", remote).expect("a tunnel"), theirs)
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 70_000];
    let len = socket.recv(&mut buffer).expect("a frame in time");
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
        let sequence = u32::from_be_bytes(frame[48..52].try_into().expect("4"));
        merged.push((frame.len(), (sequence - 1000) / 1448, (frame.len() - 64) / 1448));
        received.extend_from_slice(&frame[64..]);
        assert!(payload.starts_with(&received), "after {merged:?}");
    }
    let counters = &link.directions()[0].counters;
    wait_until("all are counted", || counters.frames_out.get() == 400);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!((counters.bytes_in.get(), counters.bytes_out.get()), (bytes as u64, bytes as u64), "{merged:?}");
}
