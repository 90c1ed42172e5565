//! A thread that owns directions and runs them as their descriptors allow.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::direction::{Direction, Turn};
use super::faults::LogGate;
use super::linger::Linger;

const WAKE: Token = Token(usize::MAX);

enum Command {
    Add(Box<Direction>, Sender<io::Result<()>>),
    Stop,
}

/// The handle to a worker; dropping it stops the worker and its directions.
#[derive(Debug)]
pub(super) struct Worker {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker without directions.
    pub(super) fn start(number: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (commands, receiver) = unbounded();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || Loop { poll, commands: receiver, slots: Vec::new(), log: LogGate::default() }.run())?;
        Ok(Self { commands, waker, thread: Some(thread) })
    }

    /// Hands a direction to the worker, and returns once it runs.
    pub(super) fn add(&self, direction: Direction) -> io::Result<()> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.send(Command::Add(Box::new(direction), reply))?;
        answer.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
    }

    fn send(&self, command: Command) -> io::Result<()> {
        self.commands.send(command).map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.waker.wake()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let told = self.send(Command::Stop).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| told) {
            // A panic in the thread has been reported by the thread.
            let _ = thread.join();
        }
    }
}

/// A direction and whether it has a turn coming.
struct Slot {
    direction: Direction,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has a turn coming.
    Ready,
    /// It waits for its ingress.
    Waiting,
    /// It waits for its egress, whose descriptor is registered meanwhile.
    Blocked,
    /// Its ingress is gone.
    Over,
}

struct Loop {
    poll: Poll,
    commands: Receiver<Command>,
    slots: Vec<Slot>,
    log: LogGate,
}

impl Loop {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut linger = Linger::new();
        loop {
            // Descriptors are announced once (edge-triggered), so unfinished directions need no event.
            let unfinished = self.slots.iter().any(|slot| slot.state == State::Ready);
            let timeout = (unfinished || linger.look_again()).then_some(Duration::ZERO);
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                tracing::error!(%error, "waiting for frames failed");
                return;
            }
            if !events.is_empty() {
                linger.work();
            }
            for event in &events {
                if event.token() == WAKE {
                    if self.obey() == Continue::No {
                        return;
                    }
                } else {
                    self.announce(event.token());
                }
            }
            for index in 0..self.slots.len() {
                self.turn(index);
            }
        }
    }

    fn obey(&mut self) -> Continue {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(direction, reply) => {
                    // Whoever asked may have gone; the direction runs all the same.
                    let _ = reply.send(self.add(*direction));
                }
                Command::Stop => return Continue::No,
            }
        }
        Continue::Yes
    }

    fn add(&mut self, direction: Direction) -> io::Result<()> {
        let token = ingress_token(self.slots.len());
        let fd = direction.ingress_fd();
        self.poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        self.slots.push(Slot { direction, state: State::Ready });
        Ok(())
    }

    fn announce(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token.0 / 2) else { return };
        let writable = token == egress_token(token.0 / 2);
        match slot.state {
            State::Blocked if writable => {
                unwatch_egress(self.poll.registry(), &slot.direction);
                slot.state = State::Ready;
            }
            State::Waiting if !writable => slot.state = State::Ready,
            _ => {}
        }
    }

    fn turn(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.state != State::Ready {
            return;
        }
        slot.state = match slot.direction.turn() {
            Turn::Unfinished => State::Ready,
            Turn::Drained => State::Waiting,
            Turn::Over => State::Over,
            Turn::Blocked => {
                let fd = slot.direction.egress_fd();
                let watch = SourceFd(&fd);
                match self.poll.registry().register(&mut { watch }, egress_token(index), Interest::WRITABLE) {
                    Ok(()) => State::Blocked,
                    Err(error) => {
                        if let Some(held_back) = self.log.pass() {
                            tracing::warn!(%error, held_back, "an egress cannot be watched: trying it again at once");
                        }
                        State::Ready
                    }
                }
            }
        };
    }
}

/// Descriptors are watched for writing only while a direction is blocked: else every frame that leaves a
/// socket's buffer would wake the worker for nothing.
fn unwatch_egress(registry: &Registry, direction: &Direction) {
    let fd = direction.egress_fd();
    if let Err(error) = registry.deregister(&mut SourceFd(&fd)) {
        tracing::debug!(%error, "an egress was not watched");
    }
}

#[derive(PartialEq, Eq)]
enum Continue {
    Yes,
    No,
}

fn ingress_token(slot: usize) -> Token {
    Token(2 * slot)
}

fn egress_token(slot: usize) -> Token {
    Token(2 * slot + 1)
}
