//! The thread that writes a capture file.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::Interface;
use super::format::{Format, Whole};

/// Bytes written at once.
const BATCH: usize = 256 << 10;
/// Rest of a writer that has caught up. Frames gather meanwhile: to wake it for each would cost those who record
/// ten times as much as recording. A reader that follows along does not notice.
const PAUSE: Duration = Duration::from_millis(2);
/// Between two lines about frames that are missing.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Buffers that grew larger than this are not kept.
const LARGEST_SPARE: usize = 16 << 10;

/// What goes to the writer.
pub(super) enum Message {
    /// The record of a frame.
    Record(Vec<u8>),
    /// There is nothing more to write.
    End,
}

/// What the writer shares with those who record.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes of the records between those who record and the file.
    pub(super) waiting_bytes: AtomicUsize,
    /// Frames recorded that are not in the file.
    pub(super) dropped: AtomicU64,
    /// Nothing more is written.
    pub(super) failed: AtomicBool,
    /// Nobody waits for the writer any more.
    pub(super) abandoned: AtomicBool,
    /// Those that frames come from, by their numbers; new ones are appended.
    pub(super) interfaces: Mutex<Vec<Interface>>,
}

impl Shared {
    /// The number of an interface, a new one if need be.
    pub(super) fn number_of(&self, interface: Interface) -> u32 {
        let mut all = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let position = all.iter().position(|other| *other == interface).unwrap_or_else(|| {
            all.push(interface);
            all.len() - 1
        });
        u32::try_from(position).unwrap_or(u32::MAX)
    }
}

/// The writer of a file that has its header already.
pub(super) struct Writer {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) format: Format,
    /// Up to here the file consists of whole records.
    pub(super) len: u64,
    /// Interfaces that are in the file.
    pub(super) described: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) spares: Sender<Vec<u8>>,
    pub(super) batch: Vec<u8>,
    pub(super) reported: Reported,
}

/// Frames that are missing, as far as that has been told.
#[derive(Debug, Default)]
pub(super) struct Reported {
    frames: u64,
    last: Option<Instant>,
}

impl Writer {
    /// Writes until told to end, or until all who record are gone.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        if let Err(error) = self.write_all(messages) {
            self.shared.failed.store(true, Relaxed);
            tracing::warn!(file = %self.path.display(), %error, "a capture file cannot be written: it ends here");
            self.discard(messages);
        }
    }

    fn write_all(&mut self, messages: &Receiver<Message>) -> io::Result<()> {
        while self.gather(messages) {
            let caught_up = self.batch.len() < BATCH;
            self.write_batch()?;
            self.report();
            if caught_up {
                std::thread::sleep(PAUSE);
            }
        }
        self.write_batch()
    }

    /// Waits for a record, and takes all that are there, up to a batch; returns whether there may be more.
    fn gather(&mut self, messages: &Receiver<Message>) -> bool {
        let mut next = messages.recv().unwrap_or(Message::End);
        loop {
            let Message::Record(record) = next else { return false };
            self.batch.extend_from_slice(&record);
            self.keep(record);
            if self.batch.len() >= BATCH {
                return true;
            }
            let Ok(message) = messages.try_recv() else { return true };
            next = message;
        }
    }

    /// Gives a buffer back to those who record, if they need it.
    fn keep(&self, mut record: Vec<u8>) {
        if record.capacity() <= LARGEST_SPARE {
            record.clear();
            let _ = self.spares.try_send(record);
        }
    }

    /// Writes the batch, or, where it fails, the whole records that fit.
    fn write_batch(&mut self) -> io::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let mut frames = 0;
        let result = self.describe_interfaces().and_then(|()| {
            let (whole, result) = self.write(&batch);
            frames = whole.frames;
            result
        });
        self.shared.waiting_bytes.fetch_sub(batch.len(), Relaxed);
        if result.is_err() {
            let gathered = self.format.whole(&batch).frames;
            self.shared.dropped.fetch_add(gathered - frames, Relaxed);
            // What has been read from a FIFO cannot be taken back.
            let _ = self.file.set_len(self.len);
        }
        self.batch = batch;
        self.batch.clear();
        result
    }

    /// Writes what is to be known of interfaces before their first frames. None of the batch is of an interface that
    /// is not there by now.
    fn describe_interfaces(&mut self) -> io::Result<()> {
        let blocks = {
            let all = self.shared.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
            let new = &all[self.described..];
            self.described = all.len();
            self.format.interfaces(new)
        };
        self.write(&blocks).1
    }

    /// Writes `bytes`; says how much of them is in the file for good.
    fn write(&mut self, bytes: &[u8]) -> (Whole, io::Result<()>) {
        let mut written = 0;
        let result = loop {
            if written == bytes.len() {
                break Ok(());
            }
            match self.file.write(&bytes[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(len) => written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The reader of a FIFO is slow.
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.shared.abandoned.load(Relaxed) => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => break Err(error),
            }
        };
        let whole = self.format.whole(&bytes[..written]);
        self.len += whole.bytes as u64;
        (whole, result)
    }

    /// Tells of frames that the queue had no room for, once a second at most.
    fn report(&mut self) {
        let dropped = self.shared.dropped.load(Relaxed);
        let told = self.reported.last.is_some_and(|last| last.elapsed() < REPORT_INTERVAL);
        if dropped == self.reported.frames || told {
            return;
        }
        let missing = dropped - self.reported.frames;
        tracing::warn!(file = %self.path.display(), missing, "a disk is too slow for a capture: frames are missing");
        self.reported = Reported { frames: dropped, last: Some(Instant::now()) };
    }

    /// Counts what still comes.
    fn discard(&mut self, messages: &Receiver<Message>) {
        while let Ok(Message::Record(record)) = messages.recv() {
            self.shared.waiting_bytes.fetch_sub(record.len(), Relaxed);
            self.shared.dropped.fetch_add(1, Relaxed);
        }
    }
}
