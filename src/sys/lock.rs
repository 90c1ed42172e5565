//! Locks on files that other processes can see (fcntl(2), `F_SETLK`).

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use super::check;

/// What became of an attempt to lock a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// It is ours until this process closes any descriptor of that file.
    Ours,
    /// Another process has it.
    By(i32),
}

/// Locks the whole of `file` for writing, without waiting. A process does not see locks of its own.
///
/// # Errors
/// The kernel's: `EBADF` where the file is not open for writing, `ENOLCK` where there are too many locks.
pub fn lock(file: &File) -> io::Result<Locked> {
    loop {
        match control(file, libc::F_SETLK, &mut whole_file()) {
            Ok(()) => return Ok(Locked::Ours),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {}
            Err(error) => return Err(error),
        }
        let mut region = whole_file();
        control(file, libc::F_GETLK, &mut region)?;
        // It may have been given up since.
        if libc::c_int::from(region.l_type) != libc::F_UNLCK {
            return Ok(Locked::By(region.l_pid));
        }
    }
}

/// A write lock from the start of a file to its end, however long it grows.
fn whole_file() -> libc::flock {
    // JUSTIFICATION: some platforms have more fields than are named here.
    // SAFETY: it is plain data, for which all zero bytes are a valid value.
    let mut region: libc::flock = unsafe { zeroed() };
    #[expect(clippy::cast_possible_truncation, reason = "the constants are below 4")]
    {
        region.l_type = libc::F_WRLCK as libc::c_short;
        region.l_whence = libc::SEEK_SET as libc::c_short;
    }
    region
}

fn control(file: &File, command: libc::c_int, region: &mut libc::flock) -> io::Result<()> {
    // JUSTIFICATION: std's locks are of another kind (flock(2)), which do not tell who has them.
    // SAFETY: both commands take a flock, here exclusively borrowed for the call; the descriptor is open.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *region) }).map(drop)
}
