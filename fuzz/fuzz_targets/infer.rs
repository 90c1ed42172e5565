//! Frames of which nothing is told: whatever is inferred, no piece is too long for the wire, none but TCP is cut, and the
//! pieces carry the payload as it was, in order, with the sequence numbers of its bytes.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rubridge::engine::plan::{Plan, plan};
use rubridge::wire::flows::FlowTable;
use rubridge::wire::headers::{Headers, Transport};
use rubridge::wire::infer::infer;
use rubridge::wire::offload::Features;
use rubridge_fuzz::traffic::{Step, receives};

#[derive(Debug, Arbitrary)]
struct Case {
    mtu: u16,
    steps: Vec<Step>,
}

fuzz_target!(|case: Case| {
    let mtu = u32::from(case.mtu);
    let mut flows = FlowTable::default();
    for frame in receives(&case.steps).into_iter().flatten().flatten() {
        let offload = infer(&frame, &mut flows, mtu);
        let mut bytes = frame.clone();
        let Ok(planned) = plan(&mut bytes, offload, Features::NONE, None) else {
            assert!(offload.checksum.is_some(), "what is not unfinished can be forwarded");
            continue;
        };
        let Plan::Cut(mut cutter) = planned.plan else {
            assert_eq!(bytes.len(), frame.len());
            continue;
        };
        let headers = Headers::parse(&frame).expect("only what can be parsed is cut");
        assert_eq!(headers.transport, Transport::Tcp);
        let sequence = |frame: &[u8]| {
            let at = headers.transport_at + 4;
            u32::from_be_bytes(*frame[at..].first_chunk().expect("a TCP header"))
        };
        let (mut payload, mut pieces) = (Vec::new(), 0);
        while let Some(range) = cutter.next_segment(&mut bytes) {
            let piece = &bytes[range];
            assert!(piece.len() <= mtu as usize + headers.ip_at, "{} bytes for an MTU of {mtu}", piece.len());
            let sent = u32::try_from(payload.len()).expect("a frame is short");
            assert_eq!(sequence(piece), sequence(&frame).wrapping_add(sent));
            payload.extend_from_slice(&piece[headers.payload_at..]);
            pieces += 1;
        }
        assert!(pieces > 1 && pieces == planned.output.frames);
        assert_eq!(payload, frame[headers.payload_at..]);
    }
});
