//! `linux_raw`: a network interface through an AF_PACKET socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::device::{Device, DeviceEgress};
use super::{Cause, Frame, Ingress, Kind, Mode, Nio, ReceiveError};
use crate::sys::netdev::Interface;
use crate::sys::packet::PacketSocket;

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "linux_raw", arguments: "<interface>", open };

/// Socket buffers in bytes, each way: some dozens of super-frames, so that a pause of this process loses none.
const BUFFER_BYTES: u32 = 8 << 20;

#[derive(Debug)]
struct RawIngress {
    socket: PacketSocket,
    virtio_header: bool,
    /// The kernel's count of frames that its queue had no room for, and how much of it has been taken.
    overflowed: u32,
    taken: u32,
}

fn open(name: &str, mode: Mode) -> Result<Nio, Cause> {
    let interface = Interface::named(name).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Cause::Name,
        _ => error.into(),
    })?;
    let index = interface.index().map_err(cause)?;
    if !interface.is_ethernet().map_err(cause)? {
        return Err(Cause::NotEthernet);
    }
    let mtu = interface.mtu().map_err(cause)?;
    let virtio_header = mode.has_metadata();
    let socket = PacketSocket::open(index, virtio_header).map_err(cause)?;
    socket.hear_everything(index).map_err(cause)?;
    socket.enlarge_buffers(BUFFER_BYTES).map_err(cause)?;
    if virtio_header && interface.has_lro() {
        tracing::warn!(
            interface = name,
            "LRO is on: frames merged by the hardware cannot be received and are counted as undescribed"
        );
    }
    // The same socket: another one would hear what this one sends.
    let sender = socket.try_clone().map_err(cause)?;
    Ok(Nio {
        name: format!("{}:{name}", KIND.name),
        ingress: Box::new(RawIngress { socket, virtio_header, overflowed: 0, taken: 0 }),
        egress: Box::new(DeviceEgress::new(sender, mode, mtu)),
    })
}

fn cause(error: io::Error) -> Cause {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => Cause::NoSuchInterface,
        Some(libc::EPERM | libc::EACCES) => Cause::not_permitted("CAP_NET_RAW"),
        _ => error.into(),
    }
}

impl Ingress for RawIngress {
    fn fd(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let received = self.socket.receive(frame.space(self.virtio_header))?;
        self.overflowed = received.overflowed.unwrap_or(self.overflowed);
        if received.truncated {
            return Err(ReceiveError::Truncated);
        }
        frame.fill(received.len, self.virtio_header)?;
        if let Some(tag) = received.tag {
            frame.insert_tag(tag.tpid, tag.tci);
        }
        Ok(())
    }

    fn take_overflow(&mut self) -> u64 {
        let count = self.overflowed.wrapping_sub(self.taken);
        self.taken = self.overflowed;
        u64::from(count)
    }
}

impl Device for PacketSocket {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        PacketSocket::send(self, bytes)
    }
}
