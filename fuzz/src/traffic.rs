//! What an ingress finds, made step by step: mostly segments that belong together, and some that nearly do.

use std::collections::HashMap;

use libfuzzer_sys::arbitrary::{self, Arbitrary};

use crate::flow::{Flow, Layout};

/// As many bytes of frames as a case may have, so that cases stay quick.
const MAX_BYTES: usize = 128 << 10;

/// As many bytes as one receive may have.
const MAX_RECEIVE: usize = 65_507;

/// As many datagrams as a kernel receives together (`UDP_GRO_CNT_MAX`).
const MAX_RUN: usize = 64;

/// One step in making traffic.
#[derive(Debug, Arbitrary)]
pub enum Step {
    /// The next segments of a flow.
    Burst(Burst),
    /// Changes a byte of the last frame, and perhaps makes the checksums right again.
    Change { at: u8, by: u8, repair: bool },
    /// Makes the last frame's checksum come out as 0, written as 0 or in its other form.
    ZeroChecksum { other_form: bool },
    /// Lengthens the last frame, as Ethernet pads it.
    Pad(u8),
    /// Any bytes.
    Raw { bytes: Vec<u8>, together: bool },
    /// A receive that fails.
    Fault(Fault),
}

/// Segments of one flow: `count` of `size` bytes of payload, and one of `last` where that is not 0.
#[derive(Debug, Arbitrary)]
pub struct Burst {
    flow: u8,
    size: u16,
    count: u8,
    last: u16,
    /// TCP flags of all, and more of the last one.
    flags: u8,
    last_flags: u8,
    /// Received together with each other, and with what came before, as far as sizes allow.
    together: bool,
}

/// Why a receive fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Fault {
    /// Nothing is there yet.
    NothingYet,
    /// A signal came.
    Interrupted,
    /// An earlier datagram found nobody.
    Refused,
    /// The kernel cannot describe the frame.
    Undescribed,
    /// A frame that is too long.
    Truncated,
    /// A datagram without a byte.
    Empty,
    /// A frame that the receive filter keeps away.
    Unwanted,
    /// The device is no more.
    Gone,
}

/// What a receive gives: frames of equal size, the last one perhaps shorter; or why it fails.
pub type Receive = Result<Vec<Vec<u8>>, Fault>;

/// The receives that `steps` make.
#[must_use]
pub fn receives(steps: &[Step]) -> Vec<Receive> {
    let mut maker = Maker::default();
    for step in steps {
        maker.take(step);
    }
    maker.done
}

#[derive(Default)]
struct Maker {
    flows: HashMap<u8, Flow>,
    done: Vec<Receive>,
    bytes: usize,
    /// Where the last frame has its headers, if it is a flow's.
    layout: Option<Layout>,
}

impl Maker {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Burst(burst) => self.burst(burst),
            Step::Raw { bytes, together } => self.push(bytes.clone(), None, *together),
            Step::Fault(fault) => self.done.push(Err(*fault)),
            Step::Change { at, by, repair } => self.change(|frame, layout| {
                let at = usize::from(*at) % frame.len();
                frame[at] ^= by;
                if let Some(layout) = layout.filter(|_| *repair) {
                    layout.repair(frame);
                }
            }),
            Step::ZeroChecksum { other_form } => self.change(|frame, layout| {
                if let Some(layout) = layout {
                    layout.make_zero(frame, if *other_form { 0xffff } else { 0 });
                }
            }),
            Step::Pad(count) => self.change(|frame, _| {
                frame.resize((frame.len() + usize::from(*count)).min(MAX_RECEIVE), 0);
            }),
        }
    }

    fn burst(&mut self, burst: &Burst) {
        let size = 1 + burst.size % 1600;
        let sizes = std::iter::repeat_n(size, usize::from(burst.count % 80));
        let mut sizes = sizes.chain((burst.last > 0).then_some(burst.last % 2048)).peekable();
        while let Some(payload) = sizes.next() {
            let last_flags = if sizes.peek().is_none() { burst.last_flags } else { 0 };
            let flow = self.flows.entry(burst.flow).or_insert_with(|| Flow::new(burst.flow));
            let (frame, layout) = flow.next(payload, burst.flags | last_flags);
            self.push(frame, Some(layout), burst.together);
        }
    }

    fn push(&mut self, frame: Vec<u8>, layout: Option<Layout>, together: bool) {
        self.bytes += frame.len();
        if self.bytes > MAX_BYTES || frame.is_empty() {
            return;
        }
        self.layout = layout;
        match self.done.last_mut() {
            Some(Ok(run)) if together && fits(run, &frame) => run.push(frame),
            _ => self.done.push(Ok(vec![frame])),
        }
    }

    /// Changes the last frame. It is received anew if it no longer fits the run that it was in.
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>, Option<Layout>)) {
        let Some(Ok(run)) = self.done.last_mut() else { return };
        let Some(mut frame) = run.pop() else { return };
        change(&mut frame, self.layout);
        if run.is_empty() || fits(run, &frame) {
            run.push(frame);
        } else {
            self.done.push(Ok(vec![frame]));
        }
    }
}

fn fits(run: &[Vec<u8>], next: &[u8]) -> bool {
    let (first, last) = (run[0].len(), run[run.len() - 1].len());
    first == last && next.len() <= first && run.len() < MAX_RUN && run.len() * first + next.len() <= MAX_RECEIVE
}
