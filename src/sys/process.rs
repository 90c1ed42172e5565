//! What the kernel knows this process as.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;

use super::check;

/// Gives this thread the name that `ps` and `/proc/<pid>/comm` show; the main thread's is the process's. Only
/// its first 15 bytes count.
///
/// # Errors
/// None that a valid name causes.
pub fn set_name(name: &CStr) -> io::Result<()> {
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

/// The version of the running kernel, as three numbers; a part that is missing is 0.
#[must_use]
pub fn kernel_version() -> [u32; 3] {
    // JUSTIFICATION: std does not tell.
    // SAFETY: it is plain data, for which all zero bytes are a valid value.
    let mut names: libc::utsname = unsafe { zeroed() };
    // JUSTIFICATION: as above.
    // SAFETY: the pointer is that of a live structure, which the kernel fills. It cannot fail for a valid pointer.
    unsafe { libc::uname(&raw mut names) };
    let release: String = names.release.iter().map(|c| char::from(c.to_ne_bytes()[0])).collect();
    version(&release)
}

fn version(release: &str) -> [u32; 3] {
    let numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut version = [0; 3];
    for (part, number) in version.iter_mut().zip(numbers) {
        *part = number.parse().unwrap_or_default();
    }
    version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_a_version() {
        assert_eq!(version("6.18.44"), [6, 18, 44]);
        assert_eq!(version("7.1.0-rc3-generic"), [7, 1, 0]);
        assert_eq!(version("7.0-12"), [7, 0, 12]);
        assert_eq!(version(""), [0; 3]);
        assert!(kernel_version()[0] >= 4);
    }
}
