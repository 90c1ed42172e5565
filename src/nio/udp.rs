//! `udp`: a tunnel that carries each frame as one datagram, to and from one peer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{
    Cause, Egress, Ends, Frame, Identity, Ingress, Kind, Metadata, Mode, Nio, Outgoing, ReceiveError, RunLimit,
};
use crate::patience;
use crate::sys::{process, socket, udp};

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "udp", arguments: "<local port>:<host>:<remote port>", open: open_text };

/// Socket buffers in bytes, each way: some dozens of super-frames in pieces.
const BUFFER_BYTES: u32 = 4 << 20;

/// How long to wait for the name of a host to be resolved.
const RESOLVING: Duration = Duration::from_secs(2);

/// Frames in one call before Linux 6.9, and since (`UDP_MAX_SEGMENTS`, include/linux/udp.h).
const FRAMES_PER_CALL: (usize, usize) = (64, 128);

/// Bytes in one call, fewer than the kernel takes: a peer that receives frame by frame has 208 KiB for what it has not read
/// yet, as memory and not as bytes of frames.
const BYTES_PER_CALL: usize = 65_000;

/// The first kernel that spoils datagrams of equal length sent in one call, and the first that does not any more
/// (tailscale/tailscale#19777).
const SPOILING: [[u32; 3]; 2] = [[7, 0, 0], [7, 1, 5]];

/// What makes a tunnel the one that it is: of two sockets with the same, the newer one gets everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// The port of this machine, 0 for any that was free.
    pub local_port: u16,
    /// The far end.
    pub peer: SocketAddr,
}

#[derive(Debug)]
struct UdpIngress {
    socket: UdpSocket,
    metadata: Metadata,
}

#[derive(Debug)]
struct UdpEgress {
    socket: UdpSocket,
    limit: Option<RunLimit>,
}

/// The host may be an IPv6 address, with or without brackets, so the text is split at its ends.
fn open_text(text: &str, mode: Mode) -> Result<Nio, Cause> {
    let parts = text.split_once(':').and_then(|(local, rest)| Some((local, rest.rsplit_once(':')?)));
    let (local, (host, remote)) = parts.ok_or(Cause::Syntax(&KIND))?;
    let port = |text: &str| text.parse().map_err(|_| Cause::Syntax(&KIND));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    open(port(local)?, host, port(remote)?, mode, |_| false)
}

/// Opens a tunnel from `local_port` of this machine, 0 for any that is free, to `remote_port` of `host`, by
/// name or address. One that `is_taken` says others have is not opened: it would take their frames.
///
/// # Errors
/// [`Cause`]: an unknown host, a tunnel that is taken, or what the kernel said to the last of the host's addresses.
pub fn open(
    local_port: u16,
    host: &str,
    remote_port: u16,
    mode: Mode,
    is_taken: impl Fn(Tunnel) -> bool,
) -> Result<Nio, Cause> {
    let mut failed = Cause::UnknownHost(host.to_owned());
    for peer in resolve(host, remote_port)? {
        let tunnel = Tunnel { local_port, peer };
        if local_port != 0 && is_taken(tunnel) {
            return Err(Cause::TunnelTaken);
        }
        match connect(local_port, peer, mode) {
            Ok(ours) => {
                let description = format!("{local_port}:{host}:{remote_port}");
                let sender = ours.try_clone()?;
                return Ok(Nio {
                    identity: Identity { tunnel: Some(tunnel), ..Identity::new(&KIND, description) },
                    ends: Ends {
                        ingress: Box::new(UdpIngress { socket: ours, metadata: mode.metadata_of_wire() }),
                        egress: Box::new(UdpEgress::new(sender, mode)),
                    },
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
fn connect(local_port: u16, peer: SocketAddr, mode: Mode) -> io::Result<UdpSocket> {
    let ours = Socket::new(Domain::for_address(peer), Type::DGRAM, None)?;
    ours.set_nonblocking(true)?;
    ours.set_reuse_address(true)?;
    socket::allow_fragments(&ours, peer.is_ipv6())?;
    socket::enlarge_buffers(&ours, BUFFER_BYTES)?;
    let any = if peer.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    ours.bind(&SocketAddr::new(any, local_port).into())?;
    ours.connect(&peer.into())?;
    if mode.features().runs {
        if let Err(error) = udp::receive_together(&ours) {
            tracing::debug!(%error, "datagrams are received one by one");
        }
    }
    Ok(ours.into())
}

/// How many datagrams this kernel takes in one call; found out once, on a socket that sends to itself.
fn frames_per_call() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    let (surely, perhaps) = FRAMES_PER_CALL;
    let try_more = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        udp::send_together(socket.as_fd(), &vec![0; perhaps], 1)
    };
    *FOUND.get_or_init(|| if try_more().is_ok() { perhaps } else { surely })
}

impl UdpEgress {
    fn new(socket: UdpSocket, mode: Mode) -> Self {
        let [spoils, mended] = SPOILING;
        let kernel = process::kernel_version();
        let together = mode.features().runs && (kernel < spoils || kernel >= mended);
        let limit = || RunLimit { frames: frames_per_call(), bytes: BYTES_PER_CALL };
        Self { socket, limit: together.then(limit) }
    }
}

impl Ingress for UdpIngress {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let received = udp::receive(self.socket.as_fd(), frame.space(false))?;
        match received.size {
            _ if received.truncated => Err(ReceiveError::Truncated),
            _ if received.len == 0 => Err(ReceiveError::Empty),
            None => frame.fill(received.len, false),
            Some(size) => frame.fill_run(received.len, size),
        }
    }

    fn metadata(&self) -> Metadata {
        self.metadata
    }
}

/// It takes frames of any size: larger datagrams are fragmented on their way.
impl Egress for UdpEgress {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()> {
        insist(|| self.socket.send(frame.plain()).map(drop))
    }

    fn run_limit(&self) -> Option<RunLimit> {
        self.limit
    }

    fn send_run(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
        match u16::try_from(size) {
            // For a single one, the kernel would hold its size against the route's MTU too.
            Ok(size) if bytes.len() > usize::from(size) => {
                insist(|| udp::send_together(self.socket.as_fd(), bytes, size))
            }
            _ => insist(|| self.socket.send(bytes).map(drop)),
        }
    }
}

/// Sends once more where the answer was to an earlier datagram, whose receiver has not been there: what is to be sent now
/// has not been tried.
fn insist(send: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match send() {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => send(),
        sent => sent,
    }
}
