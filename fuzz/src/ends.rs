//! Both ends of a direction: an ingress that gives what it was told to, and an egress that answers as it was told to.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use rubridge::engine::counters::DropReason;
use rubridge::nio::{Egress, Frame, Ingress, Outgoing, ReceiveError, RunLimit};
use rubridge::wire::MAX_FRAME_LEN;
use rubridge::wire::offload::{Features, Offload, VIRTIO_HEADER_LEN};

use crate::reference;
use crate::traffic::{Fault, Receive};

/// What happened at both ends.
#[derive(Debug, Default)]
pub struct Log {
    /// Frames that the ingress gave.
    pub given: Vec<Vec<u8>>,
    /// Receives that lost a frame.
    pub lost_before: Vec<DropReason>,
    /// Frames, as they would be on the wire, that the egress took, or refused so that they are lost.
    pub ended: Vec<(Vec<u8>, Result<(), DropReason>)>,
    /// Calls that the egress took.
    pub writes: u64,
    /// Super-frames that it took.
    pub super_frames: u64,
}

/// A log that both ends write.
pub type SharedLog = Arc<Mutex<Log>>;

fn lock(log: &SharedLog) -> MutexGuard<'_, Log> {
    log.lock().expect("nothing panics while it writes the log")
}

/// Gives what was received.
#[derive(Debug)]
pub struct Source {
    receives: VecDeque<Receive>,
    log: SharedLog,
}

impl Source {
    /// A source of `receives`.
    pub fn new(receives: Vec<Receive>, log: SharedLog) -> Self {
        Self { receives: receives.into(), log }
    }
}

impl Ingress for Source {
    fn fd(&self) -> RawFd {
        -1
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let mut log = lock(&self.log);
        let error = |number| Err(io::Error::from_raw_os_error(number).into());
        let mut lost = |reason| log.lost_before.push(reason);
        match self.receives.pop_front().unwrap_or(Err(Fault::NothingYet)) {
            Ok(run) => {
                let bytes = run.concat();
                frame.space(false)[..bytes.len()].copy_from_slice(&bytes);
                let size = run[0].len();
                log.given.extend(run);
                if bytes.len() > size { frame.fill_run(bytes.len(), size) } else { frame.fill(size, false) }
            }
            Err(Fault::NothingYet) => error(libc::EAGAIN),
            Err(Fault::Interrupted) => error(libc::EINTR),
            Err(Fault::Refused) => error(libc::ECONNREFUSED),
            Err(Fault::Gone) => error(libc::ENXIO),
            Err(Fault::Unwanted) => Err(ReceiveError::Unwanted),
            Err(Fault::Undescribed) => {
                lost(DropReason::Undescribed);
                error(libc::EINVAL)
            }
            Err(Fault::Truncated) => {
                lost(DropReason::Truncated);
                frame.fill(MAX_FRAME_LEN + 1, false)
            }
            Err(Fault::Empty) => {
                lost(DropReason::Malformed);
                Err(ReceiveError::Empty)
            }
        }
    }
}

/// What an egress is like.
#[derive(Debug, Arbitrary)]
pub struct Nature {
    checksum: bool,
    tso4: bool,
    tso6: bool,
    uso: bool,
    ecn: bool,
    merge: bool,
    mtu: Option<u16>,
    /// Frames and bytes.
    limit: Option<(u8, u16)>,
}

/// How an egress answers to some calls.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Answer {
    refusal: Option<Refusal>,
    more_times: u8,
}

/// Errors of an egress.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Refusal {
    /// Not now.
    Later,
    /// A signal came.
    Interrupted,
    /// It cannot do this.
    Invalid,
    /// It is too long.
    TooLong,
    /// There is no room.
    NoBuffers,
    /// The link is down, or the route cannot do this.
    InputOutput,
    /// The device is no more.
    Gone,
}

impl Refusal {
    fn number(self) -> i32 {
        match self {
            Self::Later => libc::EAGAIN,
            Self::Interrupted => libc::EINTR,
            Self::Invalid => libc::EINVAL,
            Self::TooLong => libc::EMSGSIZE,
            Self::NoBuffers => libc::ENOBUFS,
            Self::InputOutput => libc::EIO,
            Self::Gone => libc::ENODEV,
        }
    }

    /// Why the frame is lost, if it is not to be tried again: in the same form, or in a simpler one.
    fn loses(self, form: Form) -> Option<DropReason> {
        match (self, form) {
            (Self::Later | Self::Interrupted, _)
            | (Self::Invalid, Form::Unfinished | Form::Super | Form::Run)
            | (Self::TooLong, Form::Super | Form::Run)
            | (Self::InputOutput, Form::Run) => None,
            (Self::Invalid, Form::Plain) => Some(DropReason::Refused),
            (Self::TooLong, Form::Plain | Form::Unfinished) => Some(DropReason::TooBig),
            (Self::InputOutput, _) => Some(DropReason::LinkDown),
            (Self::NoBuffers, _) => Some(DropReason::NoBuffers),
            (Self::Gone, _) => Some(DropReason::DeviceGone),
        }
    }
}

/// What is given to an egress at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Unfinished,
    Super,
    Run,
}

/// Takes frames, or refuses them.
#[derive(Debug)]
pub struct Sink {
    nature: Nature,
    answers: VecDeque<Answer>,
    log: SharedLog,
}

impl Sink {
    /// A sink that gives `answers` and then takes whatever comes.
    pub fn new(nature: Nature, answers: Vec<Answer>, log: SharedLog) -> Self {
        Self { nature, answers: answers.into(), log }
    }

    fn answer(&mut self, frames: Vec<Vec<u8>>, form: Form) -> io::Result<()> {
        let refusal = self.next_refusal();
        let mut log = lock(&self.log);
        if let Some(refusal) = refusal {
            let reason = refusal.loses(form);
            log.ended.extend(frames.into_iter().filter_map(|frame| Some((frame, Err(reason?)))));
            return Err(io::Error::from_raw_os_error(refusal.number()));
        }
        log.ended.extend(frames.into_iter().map(|frame| (frame, Ok(()))));
        log.writes += 1;
        log.super_frames += u64::from(form == Form::Super);
        Ok(())
    }

    fn next_refusal(&mut self) -> Option<Refusal> {
        let answer = self.answers.front_mut()?;
        let refusal = answer.refusal;
        // Enough to lose a kind of metadata its trust.
        if answer.more_times % 16 == 0 {
            self.answers.pop_front();
        } else {
            answer.more_times -= 1;
        }
        refusal
    }

    /// Panics if this was not offered.
    fn check(&self, offload: Offload, frames: &[Vec<u8>]) {
        let Some(super_frame) = offload.super_frame else {
            assert!(offload.checksum.is_none() || self.nature.checksum, "a checksum is unfinished");
            return;
        };
        assert!(self.features().take(&super_frame), "{super_frame:?} was not offered");
        // Only those that are merged here have metadata.
        assert!(self.nature.merge, "{super_frame:?} was merged in vain");
        for frame in frames {
            let packet = frame.len() - reference::ip_at(frame);
            assert!(self.nature.mtu.is_none_or(|mtu| packet <= mtu.into()), "a piece of {packet} bytes is too long");
        }
    }
}

impl Egress for Sink {
    fn fd(&self) -> RawFd {
        -1
    }

    fn features(&self) -> Features {
        let Nature { checksum, tso4, tso6, uso, ecn, merge, limit, .. } = self.nature;
        Features { checksum, tso4, tso6, uso, ecn, merge, runs: limit.is_some() }
    }

    fn mtu(&self) -> Option<u32> {
        self.nature.mtu.map(u32::from)
    }

    fn run_limit(&self) -> Option<RunLimit> {
        let (frames, bytes) = self.nature.limit?;
        Some(RunLimit { frames: 1 + usize::from(frames), bytes: bytes.into() })
    }

    fn send(&mut self, mut frame: Outgoing<'_>) -> io::Result<()> {
        let plain = frame.plain().to_vec();
        let (header, bytes) = frame.with_virtio_header().split_first_chunk::<VIRTIO_HEADER_LEN>().expect("a header");
        assert_eq!(bytes, plain, "the header spoils the frame");
        let mut offload = Offload::decode(header).expect("metadata that can be told");
        if let Some(super_frame) = &mut offload.super_frame {
            // Reading does not take it over.
            super_frame.header_len = u16::from_ne_bytes([header[2], header[3]]);
        }
        let frames = reference::frames(&plain, offload);
        self.check(offload, &frames);
        let form = match offload {
            Offload { super_frame: Some(_), .. } => Form::Super,
            Offload { checksum: Some(_), .. } => Form::Unfinished,
            _ => Form::Plain,
        };
        self.answer(frames, form)
    }

    fn send_run(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
        let limit = self.run_limit().expect("runs were offered");
        assert!(!bytes.is_empty() && size > 0, "a run of nothing");
        let frames: Vec<_> = bytes.chunks(size).map(<[u8]>::to_vec).collect();
        let is_run = frames.len() > 1;
        let fits = frames.len() <= limit.frames && bytes.len() <= limit.bytes;
        assert!(fits || !is_run, "{} frames of {} bytes where {limit:?} was offered", frames.len(), bytes.len());
        self.answer(frames, if is_run { Form::Run } else { Form::Plain })
    }
}
