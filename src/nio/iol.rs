//! The UNIX sockets through which instances of IOL (IOU) exchange frames: `/tmp/netio<user>/<id>`.
//!
//! Each frame has a header of 8 bytes: the ids of receiver and sender, two bytes each, most significant first, the
//! ports of receiver and sender, a type and a channel. A port is a bay and a unit, 0 to 15 each.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::unix::{BoundSocket, DatagramIngress, send_or_drop};
use super::{Egress, Frame, Ingress, Metadata, Outgoing};
use crate::sys::lock::{Locked, lock};
use crate::sys::process;

const HEADER_LEN: usize = 8;
/// Where in the header the receiver's port is.
const PORT_AT: usize = 4;
/// The type of a frame that carries data.
const DATA: u8 = 1;
/// The longest frame that IOL takes, in bytes.
const LONGEST_FRAME: usize = 4096;

/// A port of an IOL instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port(u8);

/// One id among the IOL instances of a user: its socket and its lock.
#[derive(Debug)]
pub struct Station {
    id: u16,
    folder: PathBuf,
    socket: BoundSocket,
    // Last: the id is free when its socket is gone.
    _lock: LockFile,
}

/// Why there is no [`Station`].
#[derive(Debug, thiserror::Error)]
pub enum StationError {
    /// Another process has the id.
    #[error("PID {0} already has a lock on ID {1}")]
    Taken(i32, u16),
    /// The folder or the lock file cannot be made.
    #[error("could not get lock on {}", .0.display())]
    NoLock(PathBuf, #[source] io::Error),
    /// The socket cannot be made.
    #[error("cannot create UNIX domain socket")]
    NoSocket(#[source] io::Error),
}

/// A locked file with the process id in it, removed when dropped.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    _file: File,
}

/// Writes frames to a port of one instance.
#[derive(Debug)]
struct PortEgress {
    socket: UnixDatagram,
    peer: PathBuf,
    header: [u8; HEADER_LEN],
}

impl Port {
    /// A port by its bay and unit; `None` where one is above 15.
    #[must_use]
    pub fn new(bay: u8, unit: u8) -> Option<Self> {
        (bay < 16 && unit < 16).then_some(Self(unit << 4 | bay))
    }
}

/// As `bay/unit`.
impl Display for Port {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.0 & 0xf, self.0 >> 4)
    }
}

impl Station {
    /// Takes an id for this process: of the instances of the real user, who is the one that they run as too.
    ///
    /// # Errors
    /// [`StationError`]; nothing is left behind then.
    pub fn open(id: u16) -> Result<Self, StationError> {
        let folder = PathBuf::from(format!("/tmp/netio{}", process::real_user()));
        let path = folder.join(id.to_string());
        let lock_path = folder.join(format!("{id}.lck"));
        let lock = make_folder(&folder).and_then(|()| LockFile::at(&lock_path));
        let lock = match lock.map_err(|error| StationError::NoLock(lock_path, error))? {
            Ok(lock) => lock,
            Err(pid) => return Err(StationError::Taken(pid, id)),
        };
        let socket = BoundSocket::at(&path).map_err(StationError::NoSocket)?;
        give_to_user(&path).map_err(StationError::NoSocket)?;
        Ok(Self { id, folder, socket, _lock: lock })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// What reads the frames for all ports. [`take_port`] tells them apart.
    ///
    /// # Errors
    /// `EMFILE` when too many files are open.
    pub fn ingress(&self) -> io::Result<Box<dyn Ingress>> {
        Ok(Box::new(DatagramIngress {
            socket: self.socket.socket.try_clone()?,
            header_len: HEADER_LEN,
            metadata: Metadata::Told,
            _bound: None,
        }))
    }

    /// What writes frames to `port` of the instance `receiver`, from the port of the same number.
    ///
    /// # Errors
    /// `EMFILE` when too many files are open.
    pub fn egress(&self, receiver: u16, port: Port) -> io::Result<Box<dyn Egress>> {
        let ([to_high, to_low], [from_high, from_low]) = (receiver.to_be_bytes(), self.id.to_be_bytes());
        Ok(Box::new(PortEgress {
            socket: self.socket.socket.try_clone()?,
            peer: self.folder.join(receiver.to_string()),
            header: [to_high, to_low, from_high, from_low, port.0, port.0, DATA, 0],
        }))
    }
}

/// Takes the header from a frame of [`Station::ingress`], and returns the port that the frame is for.
pub fn take_port(frame: &mut Frame) -> Option<Port> {
    let port = frame.bytes().get(PORT_AT).copied()?;
    frame.skip(HEADER_LEN);
    Some(Port(port))
}

/// Makes the folder, for the user alone; one that is there already must be the user's or root's.
fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => give_to_user(folder),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(folder)?;
            if found.is_dir() && [0, process::real_user()].contains(&found.uid()) {
                return Ok(());
            }
            Err(io::ErrorKind::PermissionDenied.into())
        }
        Err(error) => Err(error),
    }
}

/// Where the program's file is setuid, what it makes is the owner's: instances run as the user.
fn give_to_user(path: &Path) -> io::Result<()> {
    let user = process::real_user();
    if user == process::effective_user() { Ok(()) } else { lchown(path, Some(user), None) }
}

impl LockFile {
    /// Locks a file and writes the process id into it, or returns the process that has locked it. A file that nobody has
    /// locked is left over from a crash.
    fn at(path: &Path) -> io::Result<Result<Self, i32>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = loop {
            let file = options.open(path)?;
            if let Locked::By(pid) = lock(&file)? {
                return Ok(Err(pid));
            }
            // Whoever had it may have removed it meanwhile: then this is not the file that others look at.
            if is_at(&file, path)? {
                break file;
            }
        };
        give_to_user(path)?;
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Ok(Self { path: path.to_owned(), _file: file }))
    }
}

/// Whether `file` is what is found at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Egress for PortEgress {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn send(&mut self, mut frame: Outgoing<'_>) -> io::Result<()> {
        if frame.plain().len() > LONGEST_FRAME {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        send_or_drop(&self.socket, frame.behind(&self.header), &self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_bay_and_a_unit() {
        assert_eq!(Port::new(1, 3), Some(Port(0x31)));
        assert_eq!(Port(0x31).to_string(), "1/3");
        assert_eq!((Port::new(16, 0), Port::new(0, 16)), (None, None));
    }

    #[test]
    fn the_header_is_taken_off() {
        let mut frame = Frame::default();
        frame.space(false)[..11].copy_from_slice(&[1, 2, 3, 4, 0x31, 5, 6, 7, 8, 9, 10]);
        frame.fill(11, false).unwrap();
        assert_eq!(take_port(&mut frame), Some(Port(0x31)));
        assert_eq!(frame.bytes(), [8, 9, 10]);
    }
}
