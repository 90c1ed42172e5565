//! Making, moving and removing links through the kernel's rtnetlink (rtnetlink(7), net/core/rtnetlink.c).
#![forbid(unsafe_code)]

mod message;

use std::io::{self, Read};

use socket2::{Domain, Protocol, Socket, Type};

use super::netdev::check_name;
use message::{Answer, Body};

pub use message::Link;

/// `VETH_INFO_PEER` (linux/veth.h): the other end of a pair, laid out as a link.
const VETH_INFO_PEER: u16 = 1;
const UP: u32 = libc::IFF_UP as u32;
/// Room for all that is said of a link: about 2 KiB, if nobody asks for the virtual functions of a NIC.
const ANSWER: usize = 32 << 10;

/// A connection to the kernel about the links of the network namespace that it was opened in.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a connection.
    ///
    /// # Errors
    /// `EMFILE` when too many files are open.
    pub fn open() -> io::Result<Self> {
        let route = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::DGRAM, Some(route))?;
        // The kernel answers while it is sent the request (netlink_unicast_kernel, net/netlink/af_netlink.c):
        // what is not there then will not come, and must not be waited for.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// What the kernel says of the link `name`.
    ///
    /// # Errors
    /// `ENODEV` where there is none, as of a name that none can have.
    pub fn link(&mut self, name: &str) -> io::Result<Link> {
        check_name(name).map_err(|_| no_device())?;
        let body = Body::link(0, 0).with_text(libc::IFLA_IFNAME, name);
        match self.exchange(libc::RTM_GETLINK, 0, &body)? {
            Answer::Link(link) => Ok(link),
            Answer::Done => Err(no_device()),
        }
    }

    /// Makes a veth pair, with `name` up and `peer` down. Where it fails, neither is left.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `EEXIST` where one of the names is taken, `InvalidInput` for a name that
    /// no interface can have.
    pub fn create_veth(&mut self, name: &str, peer: &str) -> io::Result<()> {
        let peer = Body::link(0, 0).with_text(libc::IFLA_IFNAME, new_name(peer)?);
        let data = Body::nested().with_nested(VETH_INFO_PEER, &peer);
        let info = Body::nested().with_text(libc::IFLA_INFO_KIND, "veth").with_nested(libc::IFLA_INFO_DATA, &data);
        let pair =
            Body::link(0, UP).with_text(libc::IFLA_IFNAME, new_name(name)?).with_nested(libc::IFLA_LINKINFO, &info);
        self.change(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &pair)
    }

    /// Deletes a link, and with one end of a veth pair the other.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` where there is none, `EOPNOTSUPP` for one that is not
    /// software's.
    pub fn delete(&mut self, index: u32) -> io::Result<()> {
        self.change(libc::RTM_DELLINK, 0, &Body::link(index, 0))
    }

    /// Moves a link to the network namespace of the process `pid`, where it is called `name`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` both here and there, `ENODEV` where there is no such link, `ESRCH` where
    /// there is no such process, `InvalidInput` for a name that no interface can have; then nothing has changed.
    /// `EEXIST` where the name is taken over there: then it has moved, and kept its old one, since the kernel
    /// moves first (`do_setlink`, net/core/rtnetlink.c).
    pub fn move_to(&mut self, index: u32, pid: u32, name: &str) -> io::Result<()> {
        let body =
            Body::link(index, 0).with_text(libc::IFLA_IFNAME, new_name(name)?).with_number(libc::IFLA_NET_NS_PID, pid);
        self.change(libc::RTM_NEWLINK, 0, &body)
    }

    /// Takes a link up; one that is up already stays so.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` where there is none, else its driver's.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.change(libc::RTM_NEWLINK, 0, &Body::link(index, UP))
    }

    fn change(&mut self, kind: u16, flags: libc::c_int, body: &Body) -> io::Result<()> {
        self.exchange(kind, libc::NLM_F_ACK | flags, body).map(drop)
    }

    /// Sends a request and reads its answer, past those to earlier requests.
    fn exchange(&mut self, kind: u16, flags: libc::c_int, body: &Body) -> io::Result<Answer> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&body.request(kind, flags, self.sequence))?;
        let mut buffer = vec![0; ANSWER];
        loop {
            let length = (&self.socket).read(&mut buffer)?;
            if let Some(answer) = message::answer(&buffer[..length], self.sequence)? {
                return Ok(answer);
            }
        }
    }
}

/// A name to be given. In one with a `%` the kernel would put a number of its own choosing
/// (`__dev_alloc_name`, net/core/dev.c), so that nobody would know it.
fn new_name(name: &str) -> io::Result<&str> {
    check_name(name)?;
    if name.contains('%') { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(name) }
}

fn no_device() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known() {
        let mut netlink = Netlink::open().unwrap();
        // Twice: the second answer is told from the first.
        for _ in 0..2 {
            assert_eq!(netlink.link("lo").unwrap(), Link { index: 1, kind: None, master: None });
        }
    }

    #[test]
    fn impossible_names_are_refused_and_missing_ones_are_no_device() {
        let mut netlink = Netlink::open().unwrap();
        for name in ["", "sixteen-letters!", "a/b", "rb-missing-0"] {
            assert_eq!(netlink.link(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name:?}");
        }
        for name in ["", "sixteen-letters!", "a/b", "a b", "rb%d"] {
            for (first, second) in [(name, "rb0"), ("rb0", name)] {
                let error = netlink.create_veth(first, second).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{first:?} {second:?}");
            }
            assert_eq!(netlink.move_to(1, 1, name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}
