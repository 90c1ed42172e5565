//! Options of sockets of any family that std does not offer (socket(7), ip(7), ipv6(7)).

use std::io;
use std::os::fd::AsFd;

use super::fd;

/// Asks for `bytes` of buffer in both directions, beyond the system's limit where allowed to
/// (`CAP_NET_ADMIN`), else up to it.
///
/// # Errors
/// The kernel's; a smaller buffer than asked for is no error.
pub fn enlarge_buffers(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for (force, ask) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        let socket = socket.as_fd();
        fd::set_option(socket, libc::SOL_SOCKET, force, &bytes)
            .or_else(|_| fd::set_option(socket, libc::SOL_SOCKET, ask, &bytes))?;
    }
    Ok(())
}

/// Lets datagrams longer than the path allows be fragmented on their way, instead of forbidding that and waiting
/// to be told of the path (`IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`).
///
/// # Errors
/// The kernel's.
pub fn allow_fragments(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let (level, name, value) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
    };
    fd::set_option(socket.as_fd(), level, name, &value)
}
