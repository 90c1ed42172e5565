//! The egress of kernel devices that take frames behind a virtio header.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::{Egress, Mode, Outgoing};
use crate::wire::offload::{Features, Offload};

/// A device that takes one frame a call.
pub(super) trait Device: AsFd + Debug + Send {
    /// Writes one frame.
    fn send(&self, bytes: &[u8]) -> io::Result<()>;

    /// Whether frames go behind a virtio header, where it was opened in this mode.
    fn has_virtio_header(&self, mode: Mode) -> bool {
        mode.has_metadata()
    }
}

/// Writes frames to a device, with their metadata where it was opened for that.
#[derive(Debug)]
pub(super) struct DeviceEgress<D> {
    device: D,
    mode: Mode,
    mtu: u32,
}

impl<D: Device> DeviceEgress<D> {
    pub(super) fn new(device: D, mode: Mode, mtu: u32) -> Self {
        Self { device, mode, mtu }
    }
}

impl<D: Device> Egress for DeviceEgress<D> {
    fn fd(&self) -> RawFd {
        self.device.as_fd().as_raw_fd()
    }

    fn features(&self) -> Features {
        self.mode.features()
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.mtu)
    }

    fn send(&mut self, mut frame: Outgoing<'_>) -> io::Result<()> {
        if self.device.has_virtio_header(self.mode) {
            return self.device.send(frame.with_virtio_header());
        }
        if frame.offload != Offload::default() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.device.send(frame.plain())
    }
}
