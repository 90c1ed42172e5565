//! `linux_raw`: a network interface through an AF_PACKET socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::device::{Device, DeviceEgress};
use super::{Cause, Ends, Frame, Identity, Ingress, Kind, Metadata, Mode, Nio, ReceiveError};
use crate::sys::netdev::Interface;
use crate::sys::packet::PacketSocket;
use crate::sys::socket::enlarge_buffers;
use crate::wire::offload::VIRTIO_HEADER_LEN;

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "linux_raw", arguments: "<interface>", open };

/// Socket buffers in bytes, each way: some dozens of super-frames, so that a pause of this process loses none.
const BUFFER_BYTES: u32 = 8 << 20;

/// Frames that the kernel may fail to describe before its descriptions are done without.
const UNDESCRIBED: u32 = 8;

#[derive(Debug)]
struct RawIngress {
    socket: PacketSocket,
    mode: Mode,
    mtu: u32,
    /// Frames that the kernel could not describe.
    undescribed: u32,
    /// The kernel's count of frames that its queue had no room for, and how much of it has been taken.
    overflowed: u32,
    taken: u32,
}

/// Opens the interface `name`.
///
/// # Errors
/// [`Cause`], which names the cure.
pub fn open(name: &str, mode: Mode) -> Result<Nio, Cause> {
    let mtu = ethernet_mtu(name)?;
    let interface = Interface::named(name)?;
    let index = interface.index().map_err(cause)?;
    // Of what the hardware merged (LRO) the kernel cannot say enough for a virtio header.
    let virtio_header = mode.has_metadata() && !interface.has_lro();
    let socket = PacketSocket::open(index, virtio_header).map_err(cause)?;
    socket.be_promiscuous(index).map_err(cause)?;
    enlarge_buffers(&socket, BUFFER_BYTES).map_err(cause)?;
    // The same socket: another one would hear what this one sends.
    let sender = socket.try_clone().map_err(cause)?;
    let ends = Ends {
        ingress: Box::new(RawIngress { socket, mode, mtu, undescribed: 0, overflowed: 0, taken: 0 }),
        egress: Box::new(DeviceEgress::new(sender, if virtio_header { mode } else { Mode::Plain }, mtu)),
    };
    Ok(Nio { identity: Identity::new(&KIND, name), ends })
}

/// The MTU of the interface `name`, which must be an Ethernet one.
pub(super) fn ethernet_mtu(name: &str) -> Result<u32, Cause> {
    let interface = Interface::named(name).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Cause::Name,
        _ => error.into(),
    })?;
    if !interface.is_ethernet().map_err(cause)? {
        return Err(Cause::NotEthernet);
    }
    interface.mtu().map_err(cause)
}

fn cause(error: io::Error) -> Cause {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => Cause::NoSuchInterface,
        Some(libc::EPERM | libc::EACCES) => Cause::not_permitted("CAP_NET_RAW"),
        _ => error.into(),
    }
}

impl RawIngress {
    /// Does without the kernel's descriptions where it cannot give them time and again: what frames are is inferred then.
    fn failed(&mut self, error: io::Error) -> ReceiveError {
        if error.raw_os_error() == Some(libc::EINVAL) && self.socket.has_virtio_header() {
            self.undescribed += 1;
            if self.undescribed == UNDESCRIBED {
                match self.socket.leave_out_virtio_header() {
                    Ok(()) => tracing::warn!("the kernel cannot describe frames of this interface: they are inferred"),
                    Err(error) => tracing::warn!(%error, "frames are lost that the kernel cannot describe"),
                }
            }
        }
        error.into()
    }

    /// Empties the queue; nothing more must be coming in.
    fn forget(&self) {
        let mut beginning = [0; VIRTIO_HEADER_LEN];
        // Of errors, only this one says that the queue is empty. No queue is longer than this.
        for _ in 0..1_000_000 {
            if self.socket.receive(&mut beginning).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return;
            }
        }
    }
}

impl Ingress for RawIngress {
    fn fd(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let virtio_header = self.socket.has_virtio_header();
        let received = self.socket.receive(frame.space(virtio_header)).map_err(|error| self.failed(error))?;
        self.overflowed = received.overflowed.unwrap_or(self.overflowed);
        if received.truncated {
            return Err(ReceiveError::Truncated);
        }
        frame.fill(received.len, virtio_header)?;
        if let Some(tag) = received.tag {
            frame.insert_tag(tag.tpid, tag.tci);
        }
        Ok(())
    }

    fn metadata(&self) -> Metadata {
        let told = self.mode == Mode::Plain || self.socket.has_virtio_header();
        if told { Metadata::Told } else { Metadata::Missing { mtu: self.mtu } }
    }

    /// Frames that pass while nobody reads are nobody's: they are those of the interface, not for us.
    fn pause(&mut self) {
        let paused = self.socket.hear_nothing();
        self.forget();
        if let Err(error) = paused {
            tracing::warn!(%error, "frames of the time in which nobody reads will be heard later");
        }
    }

    fn resume(&mut self) {
        if let Err(error) = self.socket.hear_all_but_own() {
            tracing::error!(%error, "nothing can be heard of the interface");
        }
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

    fn has_virtio_header(&self, _: Mode) -> bool {
        PacketSocket::has_virtio_header(self)
    }
}
