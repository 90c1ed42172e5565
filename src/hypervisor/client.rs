//! One client's connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::modules::execute;
use super::reply::{After, Code, Reply};
use super::tokenizer::{Line, Tokenizer};
use crate::lab::Lab;

/// How much is read at once; then other clients have their turn.
const CHUNK: usize = 4096;
/// How many chunks are thrown away at most, at the end of a connection: more than the kernel holds.
const LAST_CHUNKS: usize = 4096;
/// How long a client that has closed its side has to take its last reply.
const LAST_REPLY: Duration = Duration::from_secs(10);
/// How long a client has to close its side, once ours is closed.
const FAREWELL: Duration = Duration::from_millis(300);
/// After how long of silence a client is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection and what is under way on it.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    tokenizer: Tokenizer,
    /// Read, but not yet looked at: while a reply cannot be sent, no further command is carried out.
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    state: State,
    /// There may be more to read.
    readable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The client has closed its side: it gets what is still to be sent.
    Finishing(Instant),
    /// Our side is to be closed; what still comes is thrown away, since closing with bytes unread resets the connection.
    Closing(Instant),
    /// The same, and our side is closed.
    Draining(Instant),
}

/// What was there to be thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discarded {
    Some,
    /// Nothing for now.
    None,
    /// The client has closed its side.
    End,
}

/// What a client's turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Alive,
    Gone,
    /// It wants the program to end.
    Stop,
}

impl Client {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE))?;
        Ok(Self {
            stream,
            tokenizer: Tokenizer::default(),
            inbox: Vec::new(),
            outbox: Vec::new(),
            state: State::Open,
            readable: true,
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// There may be something to read, or room to write.
    pub(super) fn announce(&mut self) {
        self.readable = true;
    }

    /// Whether it wants another turn at once.
    pub(super) fn is_ready(&self) -> bool {
        self.readable
    }

    /// When it wants a turn at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Finishing(end) | State::Closing(end) | State::Draining(end) => Some(end),
        }
    }

    /// Sends, reads and carries out what there is, up to a chunk.
    pub(super) fn turn(&mut self, lab: &mut Lab) -> Outcome {
        self.work(lab).unwrap_or(Outcome::Gone)
    }

    /// Begins to close the connection.
    pub(super) fn close(&mut self) {
        if !matches!(self.state, State::Closing(_) | State::Draining(_)) {
            self.state = State::Closing(Instant::now() + FAREWELL);
            self.readable = true;
        }
    }

    fn work(&mut self, lab: &mut Lab) -> io::Result<Outcome> {
        if self.deadline().is_some_and(|end| end <= Instant::now()) {
            return Ok(Outcome::Gone);
        }
        if !self.flush()? {
            // A client that does not read its replies waits for its next one.
            self.readable = matches!(self.state, State::Closing(_)) && self.discard()? == Discarded::Some;
            return Ok(Outcome::Alive);
        }
        match self.state {
            State::Open => self.obey(lab),
            State::Finishing(_) => Ok(Outcome::Gone),
            State::Closing(end) => {
                self.stream.shutdown(Shutdown::Write)?;
                self.state = State::Draining(end);
                self.drain()
            }
            State::Draining(_) => self.drain(),
        }
    }

    /// Sends what waits to be sent; returns whether that is all.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn obey(&mut self, lab: &mut Lab) -> io::Result<Outcome> {
        if self.inbox.is_empty() && !self.read()? {
            return Ok(Outcome::Alive);
        }
        let inbox = std::mem::take(&mut self.inbox);
        for (at, &byte) in inbox.iter().enumerate() {
            let Some(line) = self.tokenizer.take(byte) else { continue };
            let after = self.answer(&line, lab);
            match after {
                After::GoOn => {}
                After::Close => self.close(),
                After::Stop => return Ok(Outcome::Stop),
            }
            if !self.flush()? || after == After::Close {
                self.inbox = inbox[at + 1..].to_vec();
                break;
            }
        }
        Ok(Outcome::Alive)
    }

    fn answer(&mut self, line: &Line, lab: &mut Lab) -> After {
        let answer = match line {
            Line::Words(words) => execute(lab, &words.iter().map(String::as_str).collect::<Vec<_>>()),
            Line::Malformed(why) => Reply::failed(Code::ParseError, format!("Parse error: {why}")),
        };
        // What was complained of has to be in the log before the reply: the client reads it then.
        if answer.is_err() {
            lab.console.stderr.finish();
        }
        let (Ok(reply) | Err(reply)) = answer;
        self.outbox.extend(reply.encode().bytes());
        reply.after
    }

    /// Reads a chunk into the inbox; returns whether there was anything.
    fn read(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            // What has not been ended by a line feed is no command.
            Ok(0) => {
                self.state = State::Finishing(Instant::now() + LAST_REPLY);
                Ok(false)
            }
            Ok(len) => {
                self.inbox.extend(&chunk[..len]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn drain(&mut self) -> io::Result<Outcome> {
        let discarded = self.discard()?;
        self.readable = discarded == Discarded::Some;
        Ok(if discarded == Discarded::End { Outcome::Gone } else { Outcome::Alive })
    }

    /// Throws a chunk away.
    fn discard(&mut self) -> io::Result<Discarded> {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => Ok(Discarded::End),
            Ok(_) => Ok(Discarded::Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Discarded::None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Discarded::Some),
            Err(error) => Err(error),
        }
    }
}

/// Closing with bytes unread would reset the connection, and take replies from the client that it has not read yet.
impl Drop for Client {
    fn drop(&mut self) {
        // Not for ever, where one keeps sending.
        for _ in 0..LAST_CHUNKS {
            if !matches!(self.discard(), Ok(Discarded::Some)) {
                return;
            }
        }
    }
}
