//! NIOs, the ends of a bridge: each has an ingress that reads frames and an egress that writes them.
//!
//! A new kind of NIO is a new file here with a [`Kind`], and a line in [`KINDS`].
#![forbid(unsafe_code)]

mod device;
mod error;
pub mod ethernet;
mod frame;
mod impatient;
pub mod iol;
pub mod linux_raw;
mod nowhere;
mod packet;
pub mod tap;
pub mod udp;
pub mod unix;

use std::fmt::{self, Debug, Display, Formatter};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

pub use error::{Cause, OpenError};
pub use ethernet::ReceiveFilter;
pub use frame::{Frame, Outgoing};
pub use impatient::Impatient;
pub use nowhere::Nowhere;
pub use packet::Packet;

use crate::wire::offload::{Features, UnknownKind};

/// The kinds of NIO, in the order in which they are listed to the user.
pub const KINDS: &[Kind] = &[linux_raw::KIND, ethernet::KIND, tap::KIND, udp::KIND, unix::KIND];

/// A kind of NIO.
#[derive(Debug)]
pub struct Kind {
    /// The word before the colon: `linux_raw` in `linux_raw:eth0`.
    pub name: &'static str,
    /// What follows the colon, for the help text.
    pub arguments: &'static str,
    open: fn(&str, Mode) -> Result<Nio, Cause>,
}

/// How NIOs are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Frames come and go with their metadata, and an egress is left to do what it can of [`Features`].
    Offloads(Features),
    /// Without any metadata, as a bridge that knows nothing of offloads: for comparison.
    Plain,
}

/// An open NIO.
#[derive(Debug)]
pub struct Nio {
    /// What it is.
    pub identity: Identity,
    /// What it reads and writes with.
    pub ends: Ends,
}

/// What a NIO is, for those who talk about it.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The name of its [`Kind`].
    pub kind: &'static str,
    /// What it was opened with, and the name that the kernel gave: `tap0`, `20000:127.0.0.1:20001`.
    pub description: String,
    /// What decides which frames it receives, where that can be changed.
    pub receive_filter: Option<Arc<ReceiveFilter>>,
    /// Its ends, where it is a UDP tunnel.
    pub tunnel: Option<udp::Tunnel>,
}

/// Both halves of a NIO.
#[derive(Debug)]
pub struct Ends {
    /// Reads frames.
    pub ingress: Box<dyn Ingress>,
    /// Writes frames.
    pub egress: Box<dyn Egress>,
}

/// The reading half of a NIO. Owned by one worker.
pub trait Ingress: Send + Debug {
    /// The descriptor that becomes readable.
    fn fd(&self) -> RawFd;

    /// Reads the next frame into `frame`, with its metadata.
    ///
    /// # Errors
    /// [`ReceiveError`]; after `WouldBlock` the descriptor announces the next frame.
    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError>;

    /// What it tells of its frames.
    fn metadata(&self) -> Metadata {
        Metadata::Told
    }

    /// How many frames have been lost, since the last call, to a queue that was full before they could be read.
    fn take_overflow(&mut self) -> u64 {
        0
    }

    /// Nobody reads for a while. A NIO that hears what is meant for others forgets what it hears meanwhile; one
    /// that is spoken to keeps it. NIOs are opened in this state.
    fn pause(&mut self) {}

    /// Somebody is going to read.
    fn resume(&mut self) {}
}

/// What an ingress tells of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// All there is, or they are to be forwarded as they are.
    Told,
    /// Nothing, but they should be finished and of wire size.
    Needless,
    /// Nothing, and they may be merged and unfinished: those of an interface with this MTU, in bytes.
    Missing {
        /// Its MTU.
        mtu: u32,
    },
}

/// The writing half of a NIO. Owned by one worker.
pub trait Egress: Send + Debug {
    /// The descriptor that becomes writable.
    fn fd(&self) -> RawFd;

    /// What it takes as it is; nothing but finished frames of wire size, where it does not say.
    fn features(&self) -> Features {
        Features::NONE
    }

    /// The largest packet that fits, in bytes without the link-layer header; `None` where any fits.
    fn mtu(&self) -> Option<u32> {
        None
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// The kernel's; after `WouldBlock` the descriptor announces when it takes the frame.
    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()>;

    /// How many frames it takes in one call, where it takes several.
    fn run_limit(&self) -> Option<RunLimit> {
        None
    }

    /// Writes `bytes` as frames of `size` bytes each, the last one perhaps shorter: all of them or none.
    ///
    /// # Errors
    /// As [`Egress::send`].
    fn send_run(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
        let _ = (bytes, size);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What an egress takes in one call, of frames without metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimit {
    /// Frames.
    pub frames: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Why there is no frame to forward.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Nothing was read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A frame was longer than any buffer; its end is lost.
    #[error("a frame exceeds the receive buffer")]
    Truncated,
    /// A datagram without a byte.
    #[error("an empty frame")]
    Empty,
    /// A frame that the receive filter keeps away.
    #[error("kept away by the receive filter")]
    Unwanted,
    /// A super-frame of a kind that cannot be cut.
    #[error(transparent)]
    Unsupported(#[from] UnknownKind),
}

impl Nio {
    /// Opens what `text` names: `<kind>:<arguments>`.
    ///
    /// # Errors
    /// [`OpenError`], which names the NIO, the cause and the cure.
    pub fn open(text: &str, mode: Mode) -> Result<Self, OpenError> {
        let failed = |cause| OpenError { nio: text.to_owned(), cause };
        let (name, arguments) = text.split_once(':').unwrap_or((text, ""));
        let kind = KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| failed(Cause::UnknownKind))?;
        if arguments.is_empty() {
            return Err(failed(Cause::Syntax(kind)));
        }
        (kind.open)(arguments, mode).map_err(failed)
    }

    /// Its name, and what it reads and writes with.
    #[must_use]
    pub fn into_parts(self) -> (String, Ends) {
        (self.identity.to_string(), self.ends)
    }
}

impl Identity {
    /// A NIO of a kind, without a receive filter.
    fn new(kind: &Kind, description: impl Into<String>) -> Self {
        Self { kind: kind.name, description: description.into(), receive_filter: None, tunnel: None }
    }
}

/// As the user writes it: `tap:tap0`.
impl Display for Identity {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.kind, self.description)
    }
}

impl Mode {
    /// What an ingress tells that has no metadata to tell.
    fn metadata_of_wire(self) -> Metadata {
        if self == Self::Plain { Metadata::Told } else { Metadata::Needless }
    }

    /// Whether frames come with a virtio header.
    fn has_metadata(self) -> bool {
        self != Self::Plain
    }

    /// What is left to the egress, of what it offers.
    fn features(self) -> Features {
        match self {
            Self::Offloads(features) => features,
            Self::Plain => Features::NONE,
        }
    }
}
