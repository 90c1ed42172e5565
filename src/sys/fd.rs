//! Reading, writing and socket options on descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{check, check_len, len_of};

/// Reads once into `buffer`.
pub(super) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // JUSTIFICATION: std reads only through types that own or wrap the descriptor as a file.
    // SAFETY: pointer and length are those of a live, exclusively borrowed slice; the descriptor is open.
    check_len(unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// Writes `bytes` in one call.
pub(super) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // JUSTIFICATION: as in `read`.
    // SAFETY: pointer and length are those of a live slice, which the kernel only reads; the descriptor is open.
    check_len(unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Sets a socket option whose value is the plain structure `value`, without pointers for the kernel to follow.
pub(super) fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    // JUSTIFICATION: std offers none of the packet options.
    // SAFETY: pointer and length describe one live `T`, which the kernel only reads; `T: Copy` has no drop glue.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), len_of::<T>()) };
    check(set).map(drop)
}
