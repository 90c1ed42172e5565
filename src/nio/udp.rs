//! `udp`: a tunnel that carries each frame as one datagram, to and from one peer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{Cause, Egress, Ends, Frame, Identity, Ingress, Kind, Mode, Nio, Outgoing, ReceiveError};
use crate::patience;
use crate::sys::socket;
use crate::wire::offload::Features;

/// See the module's documentation.
pub(super) const KIND: Kind =
    Kind { name: "udp", arguments: "<local port>:<host>:<remote port>", open: |text, _: Mode| open_text(text) };

/// Socket buffers in bytes, each way: some dozens of super-frames in pieces.
const BUFFER_BYTES: u32 = 4 << 20;

/// How long to wait for the name of a host to be resolved.
const RESOLVING: Duration = Duration::from_secs(5);

/// What makes a tunnel the one that it is: of two sockets with the same, the newer one gets everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// The port of this machine, 0 for any that was free.
    pub local_port: u16,
    /// The far end.
    pub peer: SocketAddr,
}

#[derive(Debug)]
struct UdpNio(UdpSocket);

/// The host may be an IPv6 address, with or without brackets, so the text is split at its ends.
fn open_text(text: &str) -> Result<Nio, Cause> {
    let parts = text.split_once(':').and_then(|(local, rest)| Some((local, rest.rsplit_once(':')?)));
    let (local, (host, remote)) = parts.ok_or(Cause::Syntax(&KIND))?;
    let port = |text: &str| text.parse().map_err(|_| Cause::Syntax(&KIND));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    open(port(local)?, host, port(remote)?, |_| false)
}

/// Opens a tunnel from `local_port` of this machine, 0 for any that is free, to `remote_port` of `host`, by
/// name or address. One that `is_taken` says others have is not opened: it would take their frames.
///
/// # Errors
/// [`Cause`]: an unknown host, a tunnel that is taken, or what the kernel said to the last of the host's addresses.
pub fn open(local_port: u16, host: &str, remote_port: u16, is_taken: impl Fn(Tunnel) -> bool) -> Result<Nio, Cause> {
    let mut failed = Cause::UnknownHost(host.to_owned());
    for peer in resolve(host, remote_port)? {
        let tunnel = Tunnel { local_port, peer };
        if local_port != 0 && is_taken(tunnel) {
            return Err(Cause::TunnelTaken);
        }
        match connect(local_port, peer) {
            Ok(ours) => {
                let description = format!("{local_port}:{host}:{remote_port}");
                let sender = ours.try_clone()?;
                return Ok(Nio {
                    identity: Identity { tunnel: Some(tunnel), ..Identity::new(&KIND, description) },
                    ends: Ends { ingress: Box::new(UdpNio(ours)), egress: Box::new(UdpNio(sender)) },
                });
            }
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Cause> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let resolved = patience::wait(RESOLVING, move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect));
    resolved.and_then(Result::ok).ok_or_else(|| Cause::UnknownHost(host.to_owned()))
}

/// A socket that only `peer` can send to. It is bound to every address of this machine, so that the peer may send
/// to any, and shares its port with others (`SO_REUSEADDR`), as ports are reused quickly.
fn connect(local_port: u16, peer: SocketAddr) -> io::Result<UdpSocket> {
    let ours = Socket::new(Domain::for_address(peer), Type::DGRAM, None)?;
    ours.set_nonblocking(true)?;
    ours.set_reuse_address(true)?;
    socket::allow_fragments(&ours, peer.is_ipv6())?;
    socket::enlarge_buffers(&ours, BUFFER_BYTES)?;
    let any = if peer.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    ours.bind(&SocketAddr::new(any, local_port).into())?;
    ours.connect(&peer.into())?;
    Ok(ours.into())
}

impl Ingress for UdpNio {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        match self.0.recv(frame.space(false))? {
            0 => Err(ReceiveError::Empty),
            len => frame.fill(len, false),
        }
    }
}

impl Egress for UdpNio {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn features(&self) -> Features {
        Features::NONE
    }

    /// Larger datagrams are fragmented on their way.
    fn mtu(&self) -> Option<u32> {
        None
    }

    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()> {
        match self.0.send(frame.plain()) {
            // That is the answer to an earlier datagram, whose receiver has not been there; this one has not been tried.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.0.send(frame.plain()),
            sent => sent,
        }
        .map(drop)
    }
}
