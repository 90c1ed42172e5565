//! The thread that writes a capture file.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::format;

/// Bytes written at once.
const BATCH: usize = 256 << 10;
/// Rest of a writer that has caught up. Frames gather meanwhile: to wake it for each would cost those who record
/// ten times as much as recording. A reader that follows along does not notice.
const PAUSE: Duration = Duration::from_millis(2);
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
}

/// The writer of a file that has its header already.
pub(super) struct Writer {
    file: File,
    path: PathBuf,
    /// Up to here the file consists of whole records.
    len: u64,
    batch: Vec<u8>,
    shared: Arc<Shared>,
    spares: Sender<Vec<u8>>,
}

impl Writer {
    pub(super) fn new(
        file: File,
        path: &Path,
        header_len: usize,
        shared: Arc<Shared>,
        spares: Sender<Vec<u8>>,
    ) -> Self {
        Self { file, path: path.to_owned(), len: header_len as u64, batch: Vec::new(), shared, spares }
    }

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
        let mut written = 0;
        let result = loop {
            if written == self.batch.len() {
                break Ok(());
            }
            match self.file.write(&self.batch[written..]) {
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
        let (records, bytes) = format::whole(&self.batch[..written]);
        self.len += bytes as u64;
        self.shared.waiting_bytes.fetch_sub(self.batch.len(), Relaxed);
        if result.is_err() {
            let (gathered, _) = format::whole(&self.batch);
            self.shared.dropped.fetch_add(gathered - records, Relaxed);
            // What has been read from a FIFO cannot be taken back.
            let _ = self.file.set_len(self.len);
        }
        self.batch.clear();
        result
    }

    /// Counts what still comes.
    fn discard(&mut self, messages: &Receiver<Message>) {
        while let Ok(Message::Record(record)) = messages.recv() {
            self.shared.waiting_bytes.fetch_sub(record.len(), Relaxed);
            self.shared.dropped.fetch_add(1, Relaxed);
        }
    }
}
