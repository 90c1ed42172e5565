//! What the kernel says of a network interface, and what it is told (netdevice(7)).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{MAX_INTERFACE_NAME, check};

/// `SIOCBRADDIF` (linux/sockios.h).
const ADD_BRIDGE_PORT: libc::c_ulong = 0x89a2;

/// One interface of this thread's network namespace.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    name: String,
}

impl Interface {
    /// An interface by its name; it need not exist yet.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no interface can have; `EMFILE` when too many files are open.
    pub fn named(name: &str) -> io::Result<Self> {
        InterfaceRequest::named(name)?;
        // JUSTIFICATION: std has no socket that is neither connected nor bound.
        // SAFETY: no pointers are passed.
        let raw = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
        // JUSTIFICATION: the descriptor must be closed on every way out.
        // SAFETY: it was just created and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { socket, name: name.to_owned() })
    }

    /// Its index.
    ///
    /// # Errors
    /// `ENODEV` where there is no such interface.
    pub fn index(&self) -> io::Result<u32> {
        let request = self.ask(libc::SIOCGIFINDEX)?;
        Ok(request.integer().unsigned_abs())
    }

    /// The largest packet it carries, in bytes without the link-layer header.
    ///
    /// # Errors
    /// `ENODEV` where there is no such interface.
    pub fn mtu(&self) -> io::Result<u32> {
        let request = self.ask(libc::SIOCGIFMTU)?;
        Ok(request.integer().unsigned_abs())
    }

    /// Whether its frames start with an Ethernet header, as those of `lo` do too.
    ///
    /// # Errors
    /// `ENODEV` where there is no such interface.
    pub fn is_ethernet(&self) -> io::Result<bool> {
        let request = self.ask(libc::SIOCGIFHWADDR)?;
        Ok(matches!(request.hardware_type(), libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK))
    }

    /// Whether its hardware merges received segments (LRO), in ways that a virtio header cannot describe.
    /// An interface that knows no such feature has it off.
    #[must_use]
    pub fn has_lro(&self) -> bool {
        /// `ETHTOOL_GFLAGS` and its bit `ETH_FLAG_LRO` (linux/ethtool.h).
        const GET_FLAGS: u32 = 0x25;
        const LRO: u32 = 1 << 15;
        self.ethtool(GET_FLAGS, 0).is_ok_and(|flags| flags & LRO != 0)
    }

    /// Has it send frames with finished checksums only.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` where there is no such interface, `EOPNOTSUPP` where it cannot.
    pub fn finish_checksums(&self) -> io::Result<()> {
        /// `ETHTOOL_STXCSUM` (linux/ethtool.h).
        const SET_TX_CHECKSUM: u32 = 0x17;
        self.ethtool(SET_TX_CHECKSUM, 0).map(drop)
    }

    /// Gives it a MAC address.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` where there is no such interface, `EADDRNOTAVAIL` for a multicast
    /// address, `EINVAL` where it is no Ethernet interface, `EBUSY` where its driver wants it down for that.
    pub fn set_address(&self, address: [u8; 6]) -> io::Result<()> {
        let mut request = InterfaceRequest::named(&self.name)?;
        let mut data = [0; 14];
        for (field, byte) in data.iter_mut().zip(address) {
            *field = libc::c_char::from_ne_bytes([byte]);
        }
        request.0.ifr_ifru.ifru_hwaddr = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data };
        self.pass(libc::SIOCSIFHWADDR, &mut request)
    }

    /// Makes the interface with index `port` a port of this one, a bridge.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` where there is no such bridge, `EOPNOTSUPP` where it is none,
    /// `EBUSY` where the other is a port already, of this bridge or another, else why it cannot be one.
    pub fn add_port(&self, port: u32) -> io::Result<()> {
        let mut request = InterfaceRequest::named(&self.name)?;
        request.0.ifr_ifru.ifru_ifindex = libc::c_int::try_from(port).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.pass(ADD_BRIDGE_PORT, &mut request)
    }

    /// One of ethtool's commands that take a number and return one.
    fn ethtool(&self, command: u32, data: u32) -> io::Result<u32> {
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        let mut value = Value { command, data };
        let mut request = InterfaceRequest::named(&self.name)?;
        request.0.ifr_ifru.ifru_data = (&raw mut value).cast();
        // JUSTIFICATION: the request carries a pointer for the kernel to follow.
        // SAFETY: it points to a live structure of the layout of the commands passed here, ETHTOOL_GFLAGS and
        // ETHTOOL_STXCSUM.
        unsafe { self.ioctl(libc::SIOCETHTOOL, &mut request) }?;
        Ok(value.data)
    }

    fn ask(&self, what: libc::c_ulong) -> io::Result<InterfaceRequest> {
        let mut request = InterfaceRequest::named(&self.name)?;
        self.pass(what, &mut request)?;
        Ok(request)
    }

    /// Makes one of the requests that carry all they are about.
    fn pass(&self, what: libc::c_ulong, request: &mut InterfaceRequest) -> io::Result<()> {
        // JUSTIFICATION: calling `ioctl`.
        // SAFETY: the requests passed here, SIOCGIFINDEX, SIOCGIFMTU, SIOCGIFHWADDR, SIOCSIFHWADDR and SIOCBRADDIF,
        // follow no pointer.
        unsafe { self.ioctl(what, request) }
    }

    /// # Safety
    /// Where the request `what` makes the kernel follow a pointer in `request`, it must point to a live
    /// structure of the layout that goes with it.
    unsafe fn ioctl(&self, what: libc::c_ulong, request: &mut InterfaceRequest) -> io::Result<()> {
        // JUSTIFICATION: std has no ioctl.
        // SAFETY: it takes an ifreq, exclusively borrowed here; the caller answers for what it points to.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), what as libc::Ioctl, request.as_mut_ptr()) };
        check(done).map(drop)
    }
}

/// `InvalidInput` for a name that no interface can have.
pub(super) fn check_name(name: &str) -> io::Result<()> {
    // As the kernel's dev_valid_name (net/core/dev.c).
    let forbidden = |c: char| matches!(c, '\0' | '/' | ':') || c.is_ascii_whitespace();
    if matches!(name, "" | "." | "..") || name.len() > MAX_INTERFACE_NAME || name.contains(forbidden) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(())
}

/// A `struct ifreq` with its name filled in, NUL-terminated.
pub(super) struct InterfaceRequest(libc::ifreq);

impl InterfaceRequest {
    /// A request that names no interface.
    pub(super) fn empty() -> Self {
        // JUSTIFICATION: the structure holds a union, which has no safe default.
        // SAFETY: it is plain data, for which all zero bytes are a valid value.
        Self(unsafe { zeroed() })
    }

    /// A request about `name`.
    pub(super) fn named(name: &str) -> io::Result<Self> {
        check_name(name)?;
        let mut request = Self::empty();
        for (field, byte) in request.0.ifr_name.iter_mut().zip(name.bytes()) {
            *field = libc::c_char::from_ne_bytes([byte]);
        }
        Ok(request)
    }

    /// The interface's name, as the kernel may have filled it in.
    pub(super) fn name(&self) -> String {
        let bytes = self.0.ifr_name.iter().map(|c| c.to_ne_bytes()[0]).take_while(|&byte| byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
    }

    pub(super) fn set_flags(&mut self, flags: libc::c_short) {
        self.0.ifr_ifru.ifru_flags = flags;
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::ifreq {
        &raw mut self.0
    }

    fn integer(&self) -> libc::c_int {
        // JUSTIFICATION: reading a union field.
        // SAFETY: every variant is plain data over the same, fully initialised bytes.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    fn hardware_type(&self) -> u16 {
        // JUSTIFICATION: as in `integer`.
        // SAFETY: as in `integer`.
        unsafe { self.0.ifr_ifru.ifru_hwaddr }.sa_family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known() {
        let lo = Interface::named("lo").unwrap();
        assert_eq!(lo.index().unwrap(), 1);
        assert!(lo.mtu().unwrap() >= 1500);
        assert!(lo.is_ethernet().unwrap());
        assert!(!lo.has_lro());
    }

    #[test]
    fn impossible_names_are_refused_and_missing_ones_are_no_device() {
        for name in ["", ".", "..", "sixteen-letters!", "a/b", "a:b", "a b", "a\0b"] {
            assert_eq!(Interface::named(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
        let missing = Interface::named("rb-missing-0").unwrap();
        assert_eq!(missing.index().unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
