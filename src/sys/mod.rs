//! The machine, that is the kernel's interfaces and the CPU's vector unit: the only module that may use `unsafe`.
//!
//! Every block says why it is needed (JUSTIFICATION) and why it is sound (SAFETY). What leaves this module
//! is safe: owned descriptors, slices, and `io::Result` with the kernel's own error number.
#![allow(unsafe_code)]

pub mod cpu;
mod fd;
pub mod lock;
pub mod netdev;
pub mod netlink;
pub mod packet;
pub mod process;
pub mod socket;
pub mod tun;
pub mod udp;

use std::io;

/// The longest interface name, without its terminating NUL (`IFNAMSIZ` - 1).
pub const MAX_INTERFACE_NAME: usize = libc::IFNAMSIZ - 1;

/// Length of `struct virtio_net_hdr`, the form that AF_PACKET speaks always and TAP by default.
pub const VIRTIO_HEADER_LEN: usize = 10;

/// What an error is called, as C's `strerror` has it: without the number that std puts behind.
#[must_use]
pub fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((name, _)) => name.to_owned(),
        None => text,
    }
}

/// Turns the C convention of -1 and `errno` into a result.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Turns the C convention of -1 and `errno` into a byte count.
fn check_len(returned: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Length of a C structure, as the kernel wants to be told it.
fn len_of<T>() -> libc::socklen_t {
    #[expect(clippy::cast_possible_truncation, reason = "kernel structures are small")]
    let length = size_of::<T>() as libc::socklen_t;
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_called_what_c_calls_them() {
        assert_eq!(describe(&io::Error::from_raw_os_error(libc::ENODEV)), "No such device");
        assert_eq!(describe(&io::Error::other("of another kind")), "of another kind");
    }
}
