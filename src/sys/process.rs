//! What the kernel knows this process as.

use std::io;

use super::check;

/// Gives this thread the name that `ps` and `/proc/<pid>/comm` show; the main thread's is the process's. Only
/// its first 15 bytes count.
///
/// # Errors
/// None that a valid name causes.
pub fn set_name(name: &std::ffi::CStr) -> io::Result<()> {
    // JUSTIFICATION: std names only threads that it starts.
    // SAFETY: the pointer is that of a live C string, which the kernel only reads.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }).map(drop)
}

/// The user that started this process.
#[must_use]
pub fn real_user() -> u32 {
    // JUSTIFICATION: std does not tell.
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::getuid() }
}

/// The user whose rights this process has: another one where the program's file is setuid.
#[must_use]
pub fn effective_user() -> u32 {
    // JUSTIFICATION: as above.
    // SAFETY: as above.
    unsafe { libc::geteuid() }
}
