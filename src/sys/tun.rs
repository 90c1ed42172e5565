//! TAP devices with virtio headers (Documentation/networking/tuntap.rst, drivers/net/tun.c, drivers/net/tap.c).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::netdev::InterfaceRequest;
use super::{VIRTIO_HEADER_LEN, check, fd};

pub use libc::{TUN_F_CSUM, TUN_F_TSO_ECN, TUN_F_TSO4, TUN_F_TSO6, TUN_F_USO4, TUN_F_USO6};

#[expect(clippy::cast_possible_truncation, reason = "ifr_flags has 16 bits, and so has this")]
const MULTI_QUEUE: libc::c_short = libc::IFF_MULTI_QUEUE as libc::c_short;

/// The file that all TAPs but those of macvtap are opened through.
pub const CLONE_DEVICE: &str = "/dev/net/tun";

/// A TAP device's file.
#[derive(Debug)]
pub struct TapFile {
    file: File,
}

impl TapFile {
    /// Creates the TAP `name` (a `%d` in it becomes a number), or attaches to it where it exists, and returns
    /// it with the name the kernel gave.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `EBUSY` while another program holds the TAP,
    /// `EINVAL` where an interface of another kind has that name.
    pub fn create(name: &str, virtio_header: bool) -> io::Result<(Self, String)> {
        let tap = Self::open(Path::new(CLONE_DEVICE))?;
        let attached = tap.attach(name, flags(virtio_header)).or_else(|error| {
            // A persistent TAP made for several queues refuses an opener that does not say so.
            if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
            let attached = tap.attach(name, flags(virtio_header) | MULTI_QUEUE).map_err(|_| error)?;
            // That made a queue of our own. Beside another program's, it would get some of the flows only.
            if queues(&attached).is_some_and(|queues| queues > 1) {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            Ok(attached)
        })?;
        tap.settle(virtio_header)?;
        Ok((tap, attached))
    }

    /// Opens the character device of a macvtap or ipvtap interface, as `/dev/tap7`, and returns it with the
    /// interface's name.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` for no such file, `ENOTTY` for a file of another kind, `EBUSY` in use.
    pub fn open_macvtap(path: &Path, virtio_header: bool) -> io::Result<(Self, String)> {
        let tap = Self::open(path)?;
        let mut request = InterfaceRequest::empty();
        tap.ask(libc::TUNGETIFF, &mut request)?;
        let name = request.name();
        tap.attach(&name, flags(virtio_header))?;
        tap.settle(virtio_header)?;
        Ok((tap, name))
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(Self { file })
    }

    fn attach(&self, name: &str, flags: libc::c_short) -> io::Result<String> {
        let mut request = InterfaceRequest::named(name)?;
        request.set_flags(flags);
        self.ask(libc::TUNSETIFF, &mut request)?;
        Ok(request.name())
    }

    /// Brings the state that outlives an opener of a persistent TAP to what this one expects.
    fn settle(&self, virtio_header: bool) -> io::Result<()> {
        if virtio_header {
            let length = libc::c_int::try_from(VIRTIO_HEADER_LEN).unwrap_or_default();
            // JUSTIFICATION: std has no ioctl.
            // SAFETY: TUNSETVNETHDRSZ reads an int behind the pointer, which is that of a live one.
            check(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) })?;
        }
        self.set_offloads(0)
    }

    /// Tells the kernel what it may hand over unfinished: a sum of the `TUN_F_` flags.
    ///
    /// # Errors
    /// `EINVAL` where the kernel does not know one of them, or misses one that another needs.
    pub fn set_offloads(&self, mask: u32) -> io::Result<()> {
        // JUSTIFICATION: std has no ioctl.
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        let set = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(mask)) };
        check(set).map(drop)
    }

    /// One of the ioctls that take an `ifreq`: TUNSETIFF or TUNGETIFF.
    fn ask(&self, what: libc::Ioctl, request: &mut InterfaceRequest) -> io::Result<()> {
        // JUSTIFICATION: std has no ioctl.
        // SAFETY: both read and write a whole ifreq, exclusively borrowed here, and follow no pointer in it; any
        // other request to this file would fail or, taking a smaller argument, stay within it.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), what, request.as_mut_ptr()) };
        check(done).map(drop)
    }

    /// Reads one frame, preceded by its virtio header where that is on. A buffer filled to the end means that
    /// the frame may have been longer: the kernel does not say.
    ///
    /// # Errors
    /// `WouldBlock` when none is waiting; `EBADFD` when the interface is gone.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        fd::read(self.file.as_fd(), buffer)
    }

    /// Writes one frame, preceded by its virtio header where that is on.
    ///
    /// # Errors
    /// `EIO` while the interface is down; `EINVAL` for a header that the kernel does not accept.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        fd::write(self.file.as_fd(), bytes).map(drop)
    }

    /// A second handle to the same file, for the other direction.
    ///
    /// # Errors
    /// `EMFILE` when too many files are open.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }
}

impl AsFd for TapFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How many queues the TAP `name` has attached, where sysfs shows this network namespace.
fn queues(name: &str) -> Option<usize> {
    let entries = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
    Some(entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"rx-")).count())
}

#[expect(clippy::cast_possible_truncation, reason = "ifr_flags has 16 bits, and so have these")]
fn flags(virtio_header: bool) -> libc::c_short {
    (libc::IFF_TAP | libc::IFF_NO_PI | if virtio_header { libc::IFF_VNET_HDR } else { 0 }) as libc::c_short
}
