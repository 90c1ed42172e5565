//! What a tunnel receives, and a TAP, a NIC or another tunnel is sent: whatever is merged, cut again, gathered into
//! runs or refused on the way, the frames on the wire stay the same, byte for byte and in order.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rubridge::engine::counters::DropReason;
use rubridge::engine::forward_all;
use rubridge_fuzz::ends::{Answer, Log, Nature, SharedLog, Sink, Source};
use rubridge_fuzz::traffic::{Step, receives};

#[derive(Debug, Arbitrary)]
struct Case {
    nature: Nature,
    answers: Vec<Answer>,
    steps: Vec<Step>,
}

fuzz_target!(|case: Case| {
    let log = SharedLog::default();
    let source = Source::new(receives(&case.steps), Arc::clone(&log));
    let sink = Sink::new(case.nature, case.answers, Arc::clone(&log));
    let counters = forward_all(Box::new(source), Box::new(sink));

    let log = log.lock().expect("both ends are gone");
    let Log { given, lost_before, ended, writes, super_frames } = &*log;
    // Each frame that was given has one end, and they ended in the order in which they were given.
    for (number, ((ended, end), given)) in ended.iter().zip(given).enumerate() {
        let differs = ended.iter().zip(given).position(|(ended, given)| ended != given);
        assert_eq!(
            (ended.len(), differs),
            (given.len(), None),
            "frame {number}, {end:?}: its length, and what differs"
        );
    }
    assert_eq!(ended.len(), given.len(), "frames are missing, or doubled");

    let sent = || ended.iter().filter(|(_, end)| end.is_ok());
    let bytes = |frames: &mut dyn Iterator<Item = &Vec<u8>>| frames.map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!(counters.frames_in.get(), (given.len() + lost_before.len()) as u64, "frames in");
    assert_eq!(counters.bytes_in.get(), bytes(&mut given.iter()), "bytes in");
    assert_eq!(counters.frames_out.get(), sent().count() as u64, "frames out");
    assert_eq!(counters.bytes_out.get(), bytes(&mut sent().map(|(frame, _)| frame)), "bytes out");
    assert_eq!(counters.writes.get(), *writes, "writes");
    assert_eq!(counters.passed.get(), *super_frames, "super-frames");
    for reason in DropReason::ALL {
        let lost = ended.iter().filter_map(|(_, end)| end.err()).chain(lost_before.iter().copied());
        let lost = lost.filter(|&lost| lost == reason).count() as u64;
        assert_eq!(counters.dropped(reason), lost, "dropped as {}", reason.name());
    }
});
