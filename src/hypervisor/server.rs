//! The control server: listens, and gives each client its turn.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use socket2::{Domain, Socket, Type};

use super::client::{Client, Outcome};
use crate::lab::Lab;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// When to try again to accept a connection for which there was no descriptor.
const RETRY: Duration = Duration::from_millis(100);
/// How long the end of the program waits for clients to close their side.
const FAREWELL: Duration = Duration::from_millis(60);

const SIGNALS: Token = Token(0);
const FIRST_LISTENER: usize = 1;
/// Above all listeners.
const FIRST_CLIENT: usize = 1024;

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Programs on this machine: those that come from loopback, or from the very address that they connect to.
    Local,
    /// Anybody. Whoever connects can do what this program can.
    Anybody,
}

/// A control server that listens.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listeners: Vec<TcpListener>,
    /// Signals write to the other end, which must not find this one closed.
    _signals: UnixStream,
    access: Access,
    clients: BTreeMap<usize, Client>,
    next_client: usize,
    /// A connection could not be accepted.
    retry: Option<Instant>,
}

impl Server {
    /// Listens on those of `addresses` that can be had. SIGTERM and SIGINT will end [`Server::run`], SIGHUP nothing.
    ///
    /// # Errors
    /// The last one, where none could be had.
    pub fn listen(addresses: &[SocketAddr], access: Access) -> io::Result<Self> {
        let poll = Poll::new()?;
        let signals = catch_signals()?;
        register(&poll, signals.as_raw_fd(), SIGNALS, Interest::READABLE)?;
        let mut listeners = Vec::new();
        let mut failed = io::ErrorKind::AddrNotAvailable.into();
        for &address in addresses {
            match listen(address) {
                Ok(listener) => {
                    let token = Token(FIRST_LISTENER + listeners.len());
                    register(&poll, listener.as_raw_fd(), token, Interest::READABLE)?;
                    listeners.push(listener);
                }
                Err(error) => failed = error,
            }
        }
        if listeners.is_empty() {
            return Err(failed);
        }
        let (clients, next_client) = (BTreeMap::new(), FIRST_CLIENT);
        Ok(Self { poll, listeners, _signals: signals, access, clients, next_client, retry: None })
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Serves clients until one of them, or a signal, ends it.
    ///
    /// # Errors
    /// Where waiting for clients fails.
    pub fn run(mut self, lab: &mut Lab) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        let mut outcome = Outcome::Alive;
        while outcome != Outcome::Stop {
            if let Err(error) = self.poll.poll(&mut events, self.patience()) {
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            let signalled = events.iter().any(|event| event.token() == SIGNALS);
            events.iter().for_each(|event| self.announce(event.token()));
            if self.retry.is_some_and(|at| at <= Instant::now()) {
                self.retry = None;
                (0..self.listeners.len()).for_each(|number| self.accept(number));
            }
            outcome = if signalled { Outcome::Stop } else { self.serve(lab) };
        }
        self.end(lab);
        Ok(())
    }

    fn announce(&mut self, Token(number): Token) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.announce();
        } else if (FIRST_LISTENER..FIRST_CLIENT).contains(&number) {
            self.accept(number - FIRST_LISTENER);
        }
    }

    /// How long it may wait for events.
    fn patience(&self) -> Option<Duration> {
        if self.clients.values().any(Client::is_ready) {
            return Some(Duration::ZERO);
        }
        let next = self.clients.values().filter_map(Client::deadline).chain(self.retry).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Gives each client a turn that has something to do.
    fn serve(&mut self, lab: &mut Lab) -> Outcome {
        let mut gone = Vec::new();
        let now = Instant::now();
        for (&number, client) in &mut self.clients {
            if !client.is_ready() && client.deadline().is_none_or(|end| end > now) {
                continue;
            }
            match client.turn(lab) {
                Outcome::Alive => {}
                Outcome::Gone => gone.push(number),
                Outcome::Stop => return Outcome::Stop,
            }
        }
        for number in gone {
            self.clients.remove(&number);
        }
        Outcome::Alive
    }

    fn accept(&mut self, number: usize) {
        loop {
            let Some(listener) = self.listeners.get(number) else { return };
            match listener.accept() {
                Ok((stream, peer)) => {
                    if let Err(error) = self.admit(stream, peer) {
                        tracing::warn!(%peer, %error, "a client was turned away");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // That one has gone again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // It stays in the queue, for want of a descriptor, and is not announced again.
                    self.retry = Some(Instant::now() + RETRY);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let (peer, ours) = (peer.ip().to_canonical(), stream.local_addr()?.ip().to_canonical());
        if self.access == Access::Local && !is_here(peer, ours) {
            let text = "it is not of this machine; --allow-remote-control lets it in";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let client = Client::new(stream)?;
        let number = self.next_client;
        register(&self.poll, client.fd(), Token(number), Interest::READABLE | Interest::WRITABLE)?;
        self.next_client += 1;
        self.clients.insert(number, client);
        Ok(())
    }

    /// Closes connections in order, so that none is reset, and ends all bridges.
    fn end(mut self, lab: &mut Lab) {
        let console = lab.console.clone();
        console.stdout.say("Hypervisor: closing control sockets.");
        // Closing a listener resets those who wait to be accepted.
        (0..self.listeners.len()).for_each(|number| self.accept(number));
        self.listeners.clear();
        console.stdout.say("Hypervisor: closing remote client connections.");
        self.clients.values_mut().for_each(Client::close);
        self.serve(lab);
        // That may take long.
        lab.reset();
        let end = Instant::now() + FAREWELL;
        let mut events = Events::with_capacity(64);
        while !self.clients.is_empty() && Instant::now() < end {
            let wait = self.patience().unwrap_or(FAREWELL).min(end.saturating_duration_since(Instant::now()));
            if self.poll.poll(&mut events, Some(wait)).is_err() {
                break;
            }
            self.clients.values_mut().for_each(Client::announce);
            self.serve(lab);
        }
        console.stdout.say("Hypervisor: stopped.");
    }
}

/// Whether a connection comes from this machine.
fn is_here(peer: IpAddr, ours: IpAddr) -> bool {
    peer.is_loopback() || peer == ours
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn catch_signals() -> io::Result<UnixStream> {
    let (ours, handler) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
    }
    // Caught, so that it does not end the program.
    signal_hook::flag::register(SIGHUP, Arc::<AtomicBool>::default())?;
    Ok(ours)
}

fn register(poll: &Poll, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
    poll.registry().register(&mut SourceFd(&fd), token, interest)
}
