//! Several datagrams in one call (udp(7), `UDP_SEGMENT` and `UDP_GRO`, net/ipv4/udp.c, net/ipv4/udp_offload.c).

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{check_len, fd};

/// What [`receive`] got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the buffer.
    pub len: usize,
    /// The length of each datagram but the last, which may be shorter, where there are several.
    pub size: Option<usize>,
    /// There were more bytes than the buffer holds, and they are lost.
    pub truncated: bool,
}

/// Room for one control message, aligned as the kernel aligns them.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Has `socket` receive datagrams of equal length together that arrive together.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0; datagrams then come one by one.
pub fn receive_together(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    fd::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &on)
}

/// Receives one datagram, or several that have arrived together.
///
/// # Errors
/// `WouldBlock` when none is waiting; else the kernel's, `ECONNREFUSED` among them for an earlier datagram that was sent.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = MaybeUninit::<Control>::uninit();
    let mut message = message(&mut part);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    // JUSTIFICATION: only recvmsg tells how long each datagram is.
    // SAFETY: `message` points to one iovec over the exclusively borrowed `buffer` and to `control`, all of which
    // outlive the call, with their true lengths.
    let len = check_len(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) })?;
    let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
    Ok(Received { len, size: datagram_size(&message).filter(|&size| size > 0 && size < len), truncated })
}

/// Sends `bytes` as datagrams of `size` bytes each, the last one perhaps shorter.
///
/// # Errors
/// `WouldBlock` when the send buffer is full. `EINVAL` for more datagrams than the kernel takes in one call, `EMSGSIZE`
/// for more bytes or where a datagram does not fit the route's MTU, `EIO` where the route cannot do it. Nothing has
/// been sent then.
#[inline]
pub fn send_together(socket: BorrowedFd<'_>, bytes: &[u8], size: u16) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    let mut message = message(&mut part);
    message.msg_control = (&raw mut control).cast();
    // JUSTIFICATION: libc declares this piece of arithmetic unsafe.
    // SAFETY: it only computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(super::len_of::<u16>()) } as usize;
    // JUSTIFICATION: control messages are laid out by these macros.
    // SAFETY: pointer and length of the control buffer are set, and it is alive; it has room for one header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // JUSTIFICATION: as above.
    // SAFETY: as for the space.
    let length = unsafe { libc::CMSG_LEN(super::len_of::<u16>()) } as usize;
    let value = libc::cmsghdr { cmsg_len: length, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
    // JUSTIFICATION: as above.
    // SAFETY: it points to the start of the control buffer, which is aligned for a header and larger than one.
    unsafe { header.write(value) };
    // JUSTIFICATION: as above.
    // SAFETY: the header is one of the control buffer.
    let data = unsafe { libc::CMSG_DATA(header) };
    // JUSTIFICATION: as above.
    // SAFETY: behind the header is room for a u16, which is written wherever it lies.
    unsafe { data.cast::<u16>().write_unaligned(size) };
    // JUSTIFICATION: only sendmsg takes a control message.
    // SAFETY: iovec and control buffer are alive with their true lengths; the kernel only reads them.
    check_len(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) }).map(drop)
}

/// A message of one part to or from whoever the socket is connected to.
fn message(part: &mut libc::iovec) -> libc::msghdr {
    // JUSTIFICATION: some platforms have more fields than are named here.
    // SAFETY: it is plain data and null pointers, for which all zero bytes are a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut *part;
    message.msg_iovlen = 1;
    message
}

/// What the kernel says of the length of each datagram in a received message.
fn datagram_size(message: &libc::msghdr) -> Option<usize> {
    // JUSTIFICATION: control messages are laid out by the kernel behind a raw pointer.
    // SAFETY: recvmsg has set pointer and length of the control buffer, which is still alive.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const *message) };
    if first.is_null() {
        return None;
    }
    // JUSTIFICATION: as above.
    // SAFETY: it points to a header in that buffer, which is aligned for it.
    let header = unsafe { first.read() };
    // JUSTIFICATION: libc declares this piece of arithmetic unsafe.
    // SAFETY: it only computes a length.
    let length = unsafe { libc::CMSG_LEN(super::len_of::<libc::c_int>()) } as usize;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) || header.cmsg_len < length {
        return None;
    }
    // JUSTIFICATION: as above.
    // SAFETY: the kernel wrote the header, and its data behind it.
    let data = unsafe { libc::CMSG_DATA(first) };
    // JUSTIFICATION: as above.
    // SAFETY: the message is long enough for an int; an unaligned read does not ask how it lies.
    let size = unsafe { data.cast::<libc::c_int>().read_unaligned() };
    usize::try_from(size).ok()
}
