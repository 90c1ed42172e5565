//! `unix`: a datagram socket in the file system, each frame one datagram to another such socket.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::{Cause, Egress, Ends, Frame, Identity, Ingress, Kind, Metadata, Mode, Nio, Outgoing, ReceiveError};
use crate::sys::socket;

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "unix", arguments: "<local path>:<remote path>", open: open_text };

/// Socket buffers in bytes, each way. The peer's queue is bounded by datagrams too (net.unix.max_dgram_qlen).
const BUFFER_BYTES: u32 = 4 << 20;

/// A bound socket; its path is removed with it.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(crate) socket: UnixDatagram,
    path: PathBuf,
    inode: u64,
}

/// Reads datagrams as frames.
#[derive(Debug)]
pub(super) struct DatagramIngress {
    pub(super) socket: UnixDatagram,
    /// Bytes before each frame; a datagram has more than those.
    pub(super) header_len: usize,
    pub(super) metadata: Metadata,
    /// Kept as long as it is read from.
    pub(super) _bound: Option<BoundSocket>,
}

#[derive(Debug)]
struct UnixEgress {
    socket: UnixDatagram,
    peer: PathBuf,
}

fn open_text(text: &str, mode: Mode) -> Result<Nio, Cause> {
    let (local, remote) = text.split_once(':').ok_or(Cause::Syntax(&KIND))?;
    open(local, remote, mode)
}

/// Opens a socket at the path `local` whose frames go to the one at `remote`, which need not be there yet.
///
/// # Errors
/// [`Cause`]: a path that is too long, or the file cannot be made.
pub fn open(local: &str, remote: &str, mode: Mode) -> Result<Nio, Cause> {
    // The kernel's own words for it do not say which.
    std::os::unix::net::SocketAddr::from_pathname(remote)?;
    let ours = BoundSocket::at(Path::new(local))?;
    let (receiver, sender) = (ours.socket.try_clone()?, ours.socket.try_clone()?);
    Ok(Nio {
        identity: Identity::new(&KIND, format!("{local} -> {remote}")),
        ends: Ends {
            ingress: Box::new(DatagramIngress {
                socket: receiver,
                header_len: 0,
                metadata: mode.metadata_of_wire(),
                _bound: Some(ours),
            }),
            egress: Box::new(UnixEgress { socket: sender, peer: remote.into() }),
        },
    })
}

impl BoundSocket {
    /// A socket at `path`. One that is there already is taken to be left over and removed; a file of another
    /// kind is not.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        std::os::unix::net::SocketAddr::from_pathname(path)?;
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let socket = UnixDatagram::bind(path)?;
        let inode = fs::symlink_metadata(path)?.ino();
        let ours = Self { socket, path: path.to_owned(), inode };
        ours.socket.set_nonblocking(true)?;
        socket::enlarge_buffers(&ours.socket, BUFFER_BYTES)?;
        Ok(ours)
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // Another socket may have taken the path since.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Sends without ever waiting for the receiver: the descriptor would not tell when it takes more, since it
/// belongs to us and the queue to the other.
pub(crate) fn send_or_drop(socket: &UnixDatagram, bytes: &[u8], peer: &Path) -> io::Result<()> {
    socket.send_to(bytes, peer).map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::from_raw_os_error(libc::ENOBUFS),
        _ => error,
    })
}

impl Ingress for DatagramIngress {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let len = self.socket.recv(frame.space(false))?;
        if len > self.header_len { frame.fill(len, false) } else { Err(ReceiveError::Empty) }
    }

    fn metadata(&self) -> Metadata {
        self.metadata
    }
}

impl Egress for UnixEgress {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()> {
        send_or_drop(&self.socket, frame.plain(), &self.peer)
    }
}
