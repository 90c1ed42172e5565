//! AF_PACKET sockets with virtio headers (packet(7), net/packet/af_packet.c).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{check, check_len, fd, len_of};

/// All protocols, in network byte order as the kernel wants it.
const ALL_PROTOCOLS: u16 = short(libc::ETH_P_ALL).to_be();

/// The marks (`SO_MARK`) of frames sent here: this, and bits that tell one socket from another, so that two
/// bridges on one interface hear each other.
const MARK: u32 = 0x7262_0000;
const MARK_BITS: u32 = 0xffff;

/// A raw packet socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    virtio_header: Arc<AtomicBool>,
}

/// What [`PacketSocket::receive`] got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the buffer, the virtio header included where it is on.
    pub len: usize,
    /// The frame was longer than the buffer and its end is lost.
    pub truncated: bool,
    /// The VLAN tag that the kernel took out of the frame.
    pub tag: Option<VlanTag>,
    /// How many frames the socket's queue had no room for since it was opened, modulo 2^32, where any.
    pub overflowed: Option<u32>,
}

/// An 802.1Q or 802.1ad tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag protocol identifier: 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN number.
    pub tci: u16,
}

/// Room for two control messages, a `struct tpacket_auxdata` and a count, aligned as the kernel aligns them.
#[repr(C, align(8))]
struct Control([u8; 96]);

impl PacketSocket {
    /// Opens a non-blocking socket on the interface with index `index`, which hears nothing yet.
    ///
    /// It is created for no protocol at all and gets one when it is bound: otherwise frames of every
    /// interface would queue up in between. `virtio_header` puts a virtio header before each frame, in both
    /// directions. Frames sent by other sockets and by the host through this interface are received too.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW`, `ENODEV` for an unknown index.
    pub fn open(index: u32, virtio_header: bool) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // JUSTIFICATION: std has no packet sockets.
        // SAFETY: no pointers are passed.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // JUSTIFICATION: the descriptor must be closed on every way out.
        // SAFETY: it was just created and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let socket = Self { fd, virtio_header: Arc::new(virtio_header.into()) };
        let on: libc::c_int = 1;
        socket.set(libc::PACKET_AUXDATA, &on)?;
        fd::set_option(socket.fd.as_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &on)?;
        if virtio_header {
            socket.set(libc::PACKET_VNET_HDR, &on)?;
        }
        let mark = socket.mark()?;
        fd::set_option(socket.fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
        socket.hear_nothing()?;
        socket.bind(index)?;
        Ok(socket)
    }

    /// Refuses every frame that arrives from now on.
    ///
    /// # Errors
    /// `ENOMEM` where the kernel has no memory for the filter.
    pub fn hear_nothing(&self) -> io::Result<()> {
        self.attach(&mut [filter(libc::BPF_RET | libc::BPF_K, 0, 0, 0)])
    }

    /// Takes every frame that arrives from now on, but those that this socket sent.
    ///
    /// The kernel keeps them away by itself as long as a frame knows its socket. When it cuts a super-frame, only the
    /// last segment does (`skb_segment`, net/core/skbuff.c), and all others would be heard as the host's own
    /// frames. They all keep the mark of the super-frame.
    ///
    /// # Errors
    /// `ENOMEM` where the kernel has no memory for the filter.
    pub fn hear_all_but_own(&self) -> io::Result<()> {
        let load = |what: i32| filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, ancillary(what));
        let unless = |value: u32, skip: u8| filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, value);
        self.attach(&mut [
            load(libc::SKF_AD_PKTTYPE),
            unless(u32::from(libc::PACKET_OUTGOING), 3),
            load(libc::SKF_AD_MARK),
            unless(self.mark()?, 1),
            filter(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            filter(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ])
    }

    fn attach<const COUNT: usize>(&self, instructions: &mut [libc::sock_filter; COUNT]) -> io::Result<()> {
        const { assert!(COUNT <= u16::MAX as usize) };
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        let len = COUNT as u16;
        // The kernel follows the pointer only during the call, while the instructions live.
        let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
        // JUSTIFICATION: the option's value holds a pointer for the kernel to follow, which `fd::set_option` must not.
        // SAFETY: it points to `len` live instructions, exclusively borrowed for the call, which the kernel only reads.
        let set = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                len_of::<libc::sock_fprog>(),
            )
        };
        check(set).map(drop)
    }

    /// The mark of frames that this socket sends.
    fn mark(&self) -> io::Result<u32> {
        Ok(MARK | self.cookie()? & MARK_BITS)
    }

    /// The low half of a number that no other socket of this boot has.
    fn cookie(&self) -> io::Result<u32> {
        let mut cookie = 0u64;
        let mut length = len_of::<u64>();
        // JUSTIFICATION: std does not offer this option.
        // SAFETY: pointers and length describe the two live locals, which the kernel fills.
        let got = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        check(got)?;
        #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
        let low = cookie as u32;
        Ok(low)
    }

    fn set<T: Copy>(&self, name: libc::c_int, value: &T) -> io::Result<()> {
        fd::set_option(self.fd.as_fd(), libc::SOL_PACKET, name, value)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: short(libc::AF_PACKET),
            sll_protocol: ALL_PROTOCOLS,
            sll_ifindex: libc::c_int::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = len_of::<libc::sockaddr_ll>();
        // JUSTIFICATION: std cannot bind to a link-layer address.
        // SAFETY: pointer and length describe one live sockaddr_ll, which the kernel only reads.
        let bound = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) };
        check(bound).map(drop)
    }

    /// Makes the interface hear every frame while this socket is open. The kernel counts such memberships,
    /// so several programs do not switch each other's off.
    ///
    /// # Errors
    /// The kernel's.
    pub fn be_promiscuous(&self, index: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: libc::c_int::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?,
            mr_type: short(libc::PACKET_MR_PROMISC),
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// Receives one frame, preceded by its virtio header where that is on.
    ///
    /// # Errors
    /// `WouldBlock` when none is waiting. `EINVAL` when the kernel had a frame that a virtio header cannot
    /// describe (hardware LRO, SCTP and fraglist super-frames): that frame is gone.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = MaybeUninit::<Control>::uninit();
        let mut message = libc::msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: &raw mut part,
            msg_iovlen: 1,
            msg_control: control.as_mut_ptr().cast(),
            msg_controllen: size_of::<Control>(),
            msg_flags: 0,
        };
        // JUSTIFICATION: only recvmsg hands over the tag and the truncation flag.
        // SAFETY: `message` points to one iovec over the exclusively borrowed `buffer` and to `control`, all of
        // which outlive the call, with their true lengths.
        let len = check_len(unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) })?;
        let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        let mut received = Received { len, truncated, tag: None, overflowed: None };
        read_control(&message, &mut received);
        Ok(received)
    }

    /// Sends one frame, preceded by its virtio header where that is on.
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full; `EMSGSIZE` when the frame exceeds the interface's MTU and
    /// is no super-frame; else the kernel's.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        fd::write(self.fd.as_fd(), bytes).map(drop)
    }

    /// Whether a virtio header precedes each frame.
    #[inline]
    #[must_use]
    pub fn has_virtio_header(&self) -> bool {
        self.virtio_header.load(Relaxed)
    }

    /// Has frames come and go without a virtio header from now on. A frame that another thread sends at this very moment
    /// may be taken wrongly by the kernel, and lost.
    ///
    /// # Errors
    /// The kernel's; the header stays then.
    pub fn leave_out_virtio_header(&self) -> io::Result<()> {
        let off: libc::c_int = 0;
        self.set(libc::PACKET_VNET_HDR, &off)?;
        self.virtio_header.store(false, Relaxed);
        Ok(())
    }

    /// A second handle to the same socket, for the other direction.
    ///
    /// # Errors
    /// `EMFILE` when too many files are open.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, virtio_header: Arc::clone(&self.virtio_header) })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Reads the control messages that came with a received message.
#[inline]
fn read_control(message: &libc::msghdr, received: &mut Received) {
    // JUSTIFICATION: control messages are laid out by the kernel behind a raw pointer.
    // SAFETY: recvmsg has set pointer and length of the control buffer, which is still alive.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // JUSTIFICATION: as above.
        // SAFETY: it points to a header in that buffer, which is aligned for it. It is copied: a reference to the
        // header alone would not give access to the data behind it.
        let header = unsafe { next.read() };
        // JUSTIFICATION: as above.
        // SAFETY: the kernel wrote the header, and its data behind it.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) if holds::<libc::tpacket_auxdata>(&header) => {
                // JUSTIFICATION: as above.
                // SAFETY: the message is long enough for a tpacket_auxdata, of which any bytes are a valid value;
                // an unaligned read does not ask how it lies.
                let auxdata = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                received.tag = VlanTag::of(&auxdata);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if holds::<u32>(&header) => {
                // JUSTIFICATION: as above.
                // SAFETY: as above, for a u32.
                received.overflowed = Some(unsafe { data.cast::<u32>().read_unaligned() });
            }
            _ => {}
        }
        // JUSTIFICATION: as above.
        // SAFETY: message and header are those of the loop, unchanged.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
}

/// Whether a control message is long enough for a `T`.
#[inline]
fn holds<T>(header: &libc::cmsghdr) -> bool {
    // JUSTIFICATION: libc declares this piece of arithmetic unsafe.
    // SAFETY: it only computes a length.
    let length = unsafe { libc::CMSG_LEN(len_of::<T>()) };
    header.cmsg_len >= length as usize
}

impl VlanTag {
    fn of(auxdata: &libc::tpacket_auxdata) -> Option<Self> {
        if auxdata.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let has_tpid = auxdata.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        Some(Self { tpid: if has_tpid { auxdata.tp_vlan_tpid } else { 0x8100 }, tci: auxdata.tp_vlan_tci })
    }
}

/// One instruction of a classic BPF program.
fn filter(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    #[expect(clippy::cast_possible_truncation, reason = "operation codes have 16 bits")]
    let code = code as u16;
    libc::sock_filter { code, jt, jf, k }
}

/// Where a classic BPF program loads something other than the frame's bytes from.
fn ancillary(what: libc::c_int) -> u32 {
    u32::from_ne_bytes((libc::SKF_AD_OFF + what).to_ne_bytes())
}

/// A constant of C's type `int` for a field that C declares short.
const fn short(constant: libc::c_int) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "the constants used here are below 256")]
    let short = constant.unsigned_abs() as u16;
    short
}
