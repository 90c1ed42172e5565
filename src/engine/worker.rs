//! A thread that owns tasks and runs them as their descriptors and their clocks allow.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::faults::LogGate;
use super::linger::Linger;

const WAKE: Token = Token(usize::MAX);

/// What a worker runs.
pub(super) trait Task: Debug + Send + Any {
    /// The descriptor that announces work by becoming readable.
    fn ingress_fd(&self) -> RawFd;

    /// The descriptor that becomes writable, for a turn that ended with [`Turn::Blocked`].
    fn egress_fd(&self) -> RawFd;

    /// Works for a while.
    fn turn(&mut self) -> Turn;

    /// When it wants a turn even if its ingress is silent.
    fn due(&self) -> Option<Instant>;

    /// For [`Running::call`].
    fn as_any(&mut self) -> &mut dyn Any;

    /// For [`Running::stop`].
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Everything is forwarded: wait until the ingress is readable.
    Drained,
    /// The egress takes no more: wait until it is writable.
    Blocked,
    /// There may be more to do.
    Unfinished,
}

type Call = Box<dyn FnOnce(&mut dyn Task) + Send>;
/// A task that could not be added, and why.
type Refused = (io::Error, Box<dyn Task>);

enum Command {
    Add(Box<dyn Task>, Sender<Result<usize, Refused>>),
    Call(usize, Call),
    Remove(usize, Sender<Box<dyn Task>>),
    Stop,
}

/// The handle to a worker; dropping it stops the worker and its tasks.
#[derive(Debug)]
pub(super) struct Worker {
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// A task on a worker; dropping it removes the task.
#[derive(Debug)]
pub(super) struct Running<T> {
    worker: Arc<Worker>,
    /// `None` once it is removed: another task may have the slot by then.
    slot: Option<usize>,
    task: PhantomData<fn() -> T>,
}

impl Worker {
    /// Starts a worker without tasks.
    pub(super) fn start(number: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let (commands, receiver) = unbounded();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || Loop { poll, commands: receiver, slots: Vec::new(), log: LogGate::default() }.run())?;
        Ok(Self { commands, waker, thread: Some(thread) })
    }

    /// Hands a task to the worker, and returns once it runs; or gives it back with the error.
    pub(super) fn run<T: Task>(self: &Arc<Self>, task: T) -> Result<Running<T>, (io::Error, Option<T>)> {
        let (reply, answer) = bounded(1);
        self.send(Command::Add(Box::new(task), reply)).map_err(|error| (error, None))?;
        match answer.recv() {
            Ok(Ok(slot)) => Ok(Running { worker: Arc::clone(self), slot: Some(slot), task: PhantomData }),
            Ok(Err((error, task))) => Err((error, task.into_any().downcast().ok().map(|task| *task))),
            Err(_) => Err((io::ErrorKind::BrokenPipe.into(), None)),
        }
    }

    /// Whether its thread still runs: it ends only with the worker, unless something is badly wrong.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
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

impl<T: Task> Running<T> {
    /// Has the worker do `work` to the task, between two of its turns; returns when it is done.
    pub(super) fn call(&self, work: impl FnOnce(&mut T) + Send + 'static) {
        let (done, wait) = bounded::<()>(0);
        let call: Call = Box::new(move |task| {
            if let Some(task) = task.as_any().downcast_mut() {
                work(task);
            }
            drop(done);
        });
        let Some(slot) = self.slot else { return };
        if self.worker.send(Command::Call(slot, call)).is_ok() {
            // Nothing is ever sent: it ends when `done` is dropped.
            let _ = wait.recv();
        }
    }

    /// Stops the task and gives it back; `None` where the worker has died with it.
    pub(super) fn stop(mut self) -> Option<T> {
        self.remove()?.into_any().downcast().ok().map(|task| *task)
    }
}

impl<T> Running<T> {
    /// Where it runs.
    pub(super) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    fn remove(&mut self) -> Option<Box<dyn Task>> {
        let slot = self.slot.take()?;
        let (reply, answer) = bounded(1);
        self.worker.send(Command::Remove(slot, reply)).ok()?;
        answer.recv().ok()
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A task and whether it has a turn coming.
struct Slot {
    task: Box<dyn Task>,
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
}

struct Loop {
    poll: Poll,
    commands: Receiver<Command>,
    slots: Vec<Option<Slot>>,
    log: LogGate,
}

impl Loop {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut linger = Linger::new();
        loop {
            // Descriptors are announced once (edge-triggered), so unfinished tasks need no event.
            let unfinished = self.occupied().any(|slot| slot.state == State::Ready);
            let timeout =
                if unfinished || linger.look_again() { Some(Duration::ZERO) } else { self.until_the_next_is_due() };
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

    fn occupied(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    fn until_the_next_is_due(&self) -> Option<Duration> {
        let next = self.occupied().filter_map(Slot::due).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn obey(&mut self) -> Continue {
        // Whoever asked may have gone meanwhile; what was asked is done all the same.
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(task, reply) => drop(reply.send(self.add(task))),
                Command::Call(slot, call) => {
                    if let Some(slot) = self.slots.get_mut(slot).and_then(Option::as_mut) {
                        call(&mut *slot.task);
                        slot.wake();
                    }
                }
                Command::Remove(slot, reply) => {
                    if let Some(task) = self.remove(slot) {
                        drop(reply.send(task));
                    }
                }
                Command::Stop => return Continue::No,
            }
        }
        Continue::Yes
    }

    fn add(&mut self, task: Box<dyn Task>) -> Result<usize, Refused> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let fd = task.ingress_fd();
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&fd), ingress_token(free), Interest::READABLE) {
            return Err((error, task));
        }
        if free == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[free] = Some(Slot { task, state: State::Ready });
        Ok(free)
    }

    fn remove(&mut self, slot: usize) -> Option<Box<dyn Task>> {
        let slot = self.slots.get_mut(slot)?.take()?;
        let registry = self.poll.registry();
        unwatch(registry, slot.task.ingress_fd());
        if slot.state == State::Blocked {
            unwatch(registry, slot.task.egress_fd());
        }
        Some(slot.task)
    }

    fn announce(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token.0 / 2).and_then(Option::as_mut) else { return };
        let writable = token == egress_token(token.0 / 2);
        match slot.state {
            State::Blocked if writable => {
                unwatch(self.poll.registry(), slot.task.egress_fd());
                slot.state = State::Ready;
            }
            State::Waiting if !writable => slot.state = State::Ready,
            _ => {}
        }
    }

    fn turn(&mut self, index: usize) {
        let Some(slot) = &mut self.slots[index] else { return };
        if slot.due().is_some_and(|due| due <= Instant::now()) {
            slot.wake();
        }
        if slot.state != State::Ready {
            return;
        }
        slot.state = match slot.task.turn() {
            Turn::Unfinished => State::Ready,
            Turn::Drained => State::Waiting,
            Turn::Blocked => {
                // Watched only while it is blocked: else every frame that leaves a socket's buffer would wake
                // the worker for nothing.
                let fd = slot.task.egress_fd();
                match self.poll.registry().register(&mut SourceFd(&fd), egress_token(index), Interest::WRITABLE) {
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

impl Slot {
    /// When it wants a turn; not while it is blocked, since it gets one after that anyway.
    fn due(&self) -> Option<Instant> {
        if self.state == State::Blocked { None } else { self.task.due() }
    }

    /// Gives it a turn, unless it waits for its egress.
    fn wake(&mut self) {
        if self.state == State::Waiting {
            self.state = State::Ready;
        }
    }
}

fn unwatch(registry: &Registry, fd: RawFd) {
    if let Err(error) = registry.deregister(&mut SourceFd(&fd)) {
        tracing::debug!(%error, "a descriptor was not watched");
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
