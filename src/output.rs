//! Lines for stdout and stderr that neither hold up nor end the program, whoever reads them or does not.
//!
//! A terminal that is stopped, a pipe that nobody empties or a full disk would otherwise stop a worker in the
//! middle of a log line. A thread of its own writes each stream; lines that it cannot keep up with are dropped.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

/// Lines that may wait to be written.
const WAITING: usize = 256;
/// How long to wait for a stream's last lines. Only where nobody reads them does it take any time; a busy machine
/// needs a moment until it gets around to the thread that writes them.
const PATIENCE: Duration = Duration::from_millis(500);

enum Message {
    Text(Vec<u8>),
    /// All before it is written: drop the sender.
    Flush(Sender<()>),
}

/// A stream of lines, written in the background. Clones write to the same stream.
#[derive(Debug, Clone)]
pub struct Output(Sender<Message>);

impl Output {
    /// Starts to write to `stream`.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn to(mut stream: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, messages) = bounded(WAITING);
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            for message in messages {
                match message {
                    // That nobody reads it is no reason to stop.
                    Message::Text(text) => drop(stream.write_all(&text).and_then(|()| stream.flush())),
                    Message::Flush(done) => drop(done),
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Writes a line, or several.
    pub fn say(&self, text: &str) {
        self.pass(Message::Text(format!("{text}\n").into_bytes()));
    }

    /// Waits until all is written, but not for ever.
    pub fn finish(&self) {
        let (done, finished) = bounded(0);
        self.pass(Message::Flush(done));
        // It says so by dropping its end; if not, there is nothing that could still be done.
        let _ = finished.recv_timeout(PATIENCE);
    }

    fn pass(&self, message: Message) {
        // Where too many wait already, this one is dropped.
        let _ = self.0.try_send(message);
    }
}

/// Both streams, and how much is to be said on them.
#[derive(Debug, Clone)]
pub struct Console {
    /// What is told.
    pub stdout: Output,
    /// What is complained of.
    pub stderr: Output,
    /// How much is told of each frame: 0 nothing, 1 a line, 2 its bytes too.
    pub debug: u8,
}

impl Console {
    /// Waits until all is written, but not for ever.
    pub fn flush(&self) {
        self.stdout.finish();
        self.stderr.finish();
    }
}

/// For log lines, which come whole.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass(Message::Text(bytes.to_vec()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes its time, as a thread does that waits for a CPU.
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(100));
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_last_lines_are_waited_for() {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let output = Output::to(Slow(Arc::clone(&written))).unwrap();
        output.say("one");
        output.say("two");
        output.finish();
        assert_eq!(*written.lock().unwrap(), b"one\ntwo\n");
    }
}
