//! A super-frame to measure with.

use rubridge::engine::plan::{Plan, plan};
use rubridge::wire::coalesce::Merger;
use rubridge::wire::offload::{Features, Offload, PartialChecksum, SuperFrame, SuperFrameKind};

/// What a kernel says of [`tcp4`].
pub(crate) const OFFLOAD: Offload = Offload {
    checksum: Some(PartialChecksum { start: 34, offset: 16 }),
    super_frame: Some(SuperFrame {
        kind: SuperFrameKind::Tcp4,
        segment_size: 1448,
        ecn: false,
        accurate_ecn: false,
        header_len: 0,
    }),
};

/// A TCP super-frame over IPv4 with time stamps, as a bulk transfer has it.
pub(crate) fn tcp4(payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let tcp = builder.tcp(1, 2, 3, 4).options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).expect("options fit");
    tcp.write(&mut frame, &vec![0x5a; payload]).expect("a vector takes it");
    frame
}

/// Cuts it as for an egress that takes nothing, and returns the length of all pieces.
pub(crate) fn cut(frame: &mut [u8]) -> usize {
    let Ok(planned) = plan(frame, OFFLOAD, Features::NONE, Some(1500)) else { return 0 };
    let Plan::Cut(mut cutter) = planned.plan else { return 0 };
    std::iter::from_fn(|| cutter.next_segment(frame)).map(|piece| piece.len()).sum()
}

/// Its pieces, as they come from a NIC that merges nothing.
pub(crate) fn pieces(payload: usize) -> Vec<Vec<u8>> {
    let mut frame = tcp4(payload);
    // Its checksum is finished, so the pieces' are right only if they are computed anew.
    let offload = Offload { checksum: None, ..OFFLOAD };
    let Ok(Plan::Cut(mut cutter)) = plan(&mut frame, offload, Features::NONE, Some(1500)).map(|planned| planned.plan)
    else {
        return Vec::new();
    };
    std::iter::from_fn(|| cutter.next_segment(&mut frame).map(|piece| frame[piece].to_vec())).collect()
}

/// Merges pieces into `room`, and returns the length of what comes out.
pub(crate) fn merge(pieces: &[Vec<u8>], room: &mut Vec<u8>) -> usize {
    let Some((first, rest)) = pieces.split_first() else { return 0 };
    room.clear();
    room.extend_from_slice(first);
    let Some(mut merger) = Merger::begin(room, Offload::default(), Features::ALL) else { return 0 };
    for next in rest {
        let Some(payload) = merger.follow(room, next, Offload::default()) else { return 0 };
        room.extend_from_slice(payload);
    }
    let _ = merger.complete(room);
    room.len()
}
