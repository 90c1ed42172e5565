//! Capture files: what passes a bridge, in the classic format of pcap or as pcapng, for a reader that follows along
//! (docs/captures.md).
//!
//! A disk can be slow, full or gone for a while, and a bridge must not notice: frames are queued, a thread of
//! their own writes them, and those that the queue cannot hold are counted.
#![forbid(unsafe_code)]

mod classic;
mod field;
mod format;
mod link_type;
mod pcapng;
mod writer;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

pub use link_type::{LinkType, UnknownLinkType};

use crate::output::Console;
use format::Format;
use writer::{Message, Reported, Shared, Writer};

/// Frames that may wait to be written.
const MAX_WAITING: usize = 1 << 16;
/// Bytes, with the headers of their records, that may wait to be written.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// Buffers kept for further frames.
const SPARES: usize = 512;
/// How long [`Capture::stop`] waits for the disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where frames enter a bridge, as a reader of a pcapng file sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// A NIO as the user writes it.
    pub name: String,
    /// Which one it is of the bridge's.
    pub description: String,
}

/// A capture file that is being written. Threads share it.
///
/// Up to 65,536 frames or 32 MiB wait for the disk; what comes on top is dropped. Frames above 65,535 bytes are
/// cut there, and their length is told. It is a pcapng file if its name ends so, with an interface for each NIO and
/// stamps in nanoseconds. If not, it is a classic one, with stamps in whole microseconds.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    format: Format,
    console: Console,
    queue: Sender<Message>,
    spares: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    /// Disconnected when all is written.
    finished: Receiver<()>,
    stopped: Once,
}

/// Records the frames that enter from one interface.
#[derive(Debug, Clone)]
pub struct Recorder {
    capture: Arc<Capture>,
    interface: u32,
}

impl Recorder {
    /// Takes a frame that arrived at that time. Never waits; where too many wait to be written already, or writing
    /// has failed or ended, the frame is dropped and counted.
    pub fn record(&self, frame: &[u8], arrival: SystemTime) {
        self.capture.record(frame, arrival, self.interface);
    }
}

impl Capture {
    /// Creates the file, or empties it, and writes its header, with the interfaces that are known by now: a reader
    /// sees it when this returns. What goes wrong later is told on `console`, and logged.
    ///
    /// # Errors
    /// Where the file cannot be created or written, or no thread be started. A FIFO that nobody has open for
    /// reading cannot be written.
    pub fn start(path: &Path, link_type: LinkType, interfaces: Vec<Interface>, console: &Console) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Else a FIFO would hold up whoever opens it; the writer deals with a full one.
        options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK);
        let mut file = options.open(path)?;
        let format = Format::of(path, link_type);
        let header = [format.header(), format.interfaces(&interfaces)].concat();
        file.write_all(&header)?;
        let (queue, messages) = bounded(MAX_WAITING);
        let (used, spares) = bounded(SPARES);
        let (done, finished) = bounded(0);
        let described = interfaces.len();
        let shared = Arc::new(Shared { interfaces: interfaces.into(), ..Shared::default() });
        let writer = Writer {
            file,
            path: path.to_owned(),
            format,
            len: header.len() as u64,
            described,
            shared: Arc::clone(&shared),
            spares: used,
            batch: Vec::new(),
            reported: Reported::default(),
        };
        std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            writer.run(&messages);
            drop(done);
        })?;
        let (path, console) = (path.to_owned(), console.clone());
        Ok(Self { path, format, console, queue, spares, shared, finished, stopped: Once::new() })
    }

    /// What records the frames from an interface.
    #[must_use]
    pub fn recorder(self: &Arc<Self>, from: Interface) -> Recorder {
        Recorder { capture: Arc::clone(self), interface: self.shared.number_of(from) }
    }

    fn record(&self, frame: &[u8], arrival: SystemTime, interface: u32) {
        if self.shared.failed.load(Relaxed) || !self.enqueue(frame, arrival, interface) {
            self.shared.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Whether there was room.
    fn enqueue(&self, frame: &[u8], arrival: SystemTime, interface: u32) -> bool {
        let size = self.format.record_len(frame);
        let has_room = self.shared.waiting_bytes.fetch_add(size, Relaxed) + size <= MAX_WAITING_BYTES;
        let queued = has_room && {
            let mut record = self.spares.try_recv().unwrap_or_default();
            self.format.put_record(&mut record, frame, arrival, interface);
            self.queue.try_send(Message::Record(record)).is_ok()
        };
        if !queued {
            self.shared.waiting_bytes.fetch_sub(size, Relaxed);
        }
        queued
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Frames that were recorded but are missing from the file.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Ends the capture: what was recorded before is in the file when this returns. If the disk takes longer than
    /// a second, this returns all the same, and writing goes on behind it. Further calls change nothing.
    pub fn stop(&self) {
        self.stopped.call_once(|| {
            let what = format!("capture file '{}'", self.path.display());
            if !self.finish() {
                // Whom nobody waits for need not wait for a FIFO's reader either.
                self.shared.abandoned.store(true, Relaxed);
                self.console.stderr.say(&format!("{what}: not written to its end yet, the disk is slow"));
            }
            let dropped = self.dropped();
            if dropped > 0 {
                self.console.stderr.say(&format!("{what}: {dropped} frames are missing"));
            }
        });
    }

    /// Whether the writer has come to its end in time.
    fn finish(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        // Where the queue is full for so long, the writer ends with the last handle on its capture.
        let _ = self.queue.send_deadline(Message::End, deadline);
        self.finished.recv_deadline(deadline) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
