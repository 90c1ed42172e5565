use std::sync::Mutex;

use super::*;
use crate::filter::{Side, Sided};
use crate::nio::{Nowhere, Outgoing, RunLimit};
use etherparse::PacketBuilder;

/// A super-frame of so many segments of one byte.
fn super_frame(segments: usize) -> Frame {
    let mut bytes = vec![1, 1, 0, 0, 1, 0, 34, 0, 16, 0];
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4);
    builder.write(&mut bytes, &vec![7; segments]).unwrap();
    let mut frame = Frame::default();
    frame.space(true)[..bytes.len()].copy_from_slice(&bytes);
    frame.fill(bytes.len(), true).unwrap();
    frame
}

#[test]
fn a_turn_ends_however_many_pieces_a_super_frame_has() {
    let filter = |kind, percent| Sided::parse("f", kind, &[percent]).unwrap().filter_for(Side::Source).unwrap();
    let many = (0..100).map(|_| filter("duplicate", "100")).collect();
    for (filters, copies) in [(vec![], 1), (vec![filter("packet_loss", "0")], 1), (many, 101)] {
        let stages = Stages { filters, ..Stages::default() };
        let mut outlet = Outlet::new("test".to_owned(), Box::new(Nowhere), Arc::default(), Arc::new(stages));
        let mut frame = super_frame(3 * PIECES_PER_TURN);
        outlet.take(&mut frame);
        let mut turns = 0;
        let mut sent = 0;
        while outlet.finish(&mut frame) == Some(Turn::Unfinished) {
            turns += 1;
            let now = outlet.counters.frames_out.get();
            assert!(now - sent <= PIECES_PER_TURN as u64, "{} in one turn", now - sent);
            sent = now;
        }
        assert_eq!(outlet.counters.frames_out.get(), copies * 3 * PIECES_PER_TURN as u64);
        assert!(turns >= 2);
    }
}

/// Takes whatever there is, metadata and runs, and notes how.
#[derive(Debug, Clone, Default)]
struct Everything(Arc<Mutex<Vec<(usize, Offload)>>>);

impl Egress for Everything {
    fn fd(&self) -> RawFd {
        -1
    }

    fn features(&self) -> Features {
        Features::ALL
    }

    fn run_limit(&self) -> Option<RunLimit> {
        Some(RunLimit { frames: 64, bytes: 65_000 })
    }

    fn send(&mut self, mut frame: Outgoing<'_>) -> io::Result<()> {
        let header = *frame.with_virtio_header().first_chunk().unwrap();
        self.0.lock().unwrap().push((frame.plain().len(), Offload::decode(&header).unwrap()));
        Ok(())
    }

    fn send_run(&mut self, bytes: &[u8], _: usize) -> io::Result<()> {
        self.0.lock().unwrap().push((bytes.len(), Offload::default()));
        Ok(())
    }
}

#[test]
fn a_frame_with_metadata_keeps_it_between_frames_that_go_in_runs() {
    let egress = Everything::default();
    let sent = Arc::clone(&egress.0);
    let mut outlet = Outlet::new("test".to_owned(), Box::new(egress), Arc::default(), Arc::default());
    let mut plain = Frame::default();
    let mut whole = super_frame(3);
    for frame in [&mut plain, &mut whole] {
        for _ in 0..2 {
            if frame.offload == Offload::default() {
                frame.fill(60, false).unwrap();
            }
            outlet.take(frame);
            assert_eq!(outlet.send(frame), None);
        }
    }
    assert_eq!(outlet.finish(&mut whole), None);
    let sent = sent.lock().unwrap();
    let kinds = sent.iter().map(|(len, offload)| (*len, offload.super_frame.is_some()));
    assert_eq!(kinds.collect::<Vec<_>>(), [(120, false), (57, true), (57, true)]);
}

#[test]
fn frames_that_passed_stages_leave_in_runs_as_well() {
    let egress = Everything::default();
    let sent = Arc::clone(&egress.0);
    let filters = vec![Sided::parse("f", "packet_loss", &["0"]).unwrap().filter_for(Side::Source).unwrap()];
    let stages = Stages { filters, ..Stages::default() };
    let mut outlet = Outlet::new("test".to_owned(), Box::new(egress), Arc::default(), Arc::new(stages));
    let mut frame = super_frame(3);
    outlet.take(&mut frame);
    assert_eq!(outlet.finish(&mut frame), None);
    assert_eq!(*sent.lock().unwrap(), [(3 * 55, Offload::default())]);
}
