//! NIOs, the ends of a bridge: each has an ingress that reads frames and an egress that writes them.
//!
//! A new kind of NIO is a new file here with a [`Kind`], and a line in [`KINDS`].
#![forbid(unsafe_code)]

mod device;
mod error;
mod frame;
mod linux_raw;
mod tap;

use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;

pub use error::{Cause, OpenError};
pub use frame::{Frame, Outgoing};

use crate::wire::offload::{Features, UnknownKind};

/// The kinds of NIO, in the order in which they are listed to the user.
pub const KINDS: &[Kind] = &[linux_raw::KIND, tap::KIND];

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
    /// What the user called it, with the name that the kernel gave: `tap:tap0`.
    pub name: String,
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

    /// How many frames have been lost, since the last call, to a queue that was full before they could be read.
    fn take_overflow(&mut self) -> u64 {
        0
    }

    /// Asks for frames that are unfinished in these ways: the egress at the other end of the bridge takes them.
    fn set_offloads(&mut self, features: Features) {
        let _ = features;
    }
}

/// The writing half of a NIO. Owned by one worker.
pub trait Egress: Send + Debug {
    /// The descriptor that becomes writable.
    fn fd(&self) -> RawFd;

    /// What it takes as it is.
    fn features(&self) -> Features;

    /// The largest packet that fits, in bytes without the link-layer header; `None` where any fits.
    fn mtu(&self) -> Option<u32>;

    /// Writes one frame.
    ///
    /// # Errors
    /// The kernel's; after `WouldBlock` the descriptor announces when it takes the frame.
    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()>;
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
}

impl Mode {
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
