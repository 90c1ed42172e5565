//! `tap`: a TAP, or the character device of a macvtap.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use super::device::{Device, DeviceEgress};
use super::{Cause, Ends, Frame, Identity, Ingress, Kind, Mode, Nio, ReceiveError};
use crate::sys::netdev::Interface;
use crate::sys::tun::{self, TapFile};
use crate::wire::offload::Features;

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "tap", arguments: "<name or /dev/tapN>", open };

/// The MTU of an Ethernet interface that does not say.
const DEFAULT_MTU: u32 = 1500;

#[derive(Debug)]
struct TapIngress {
    file: TapFile,
    virtio_header: bool,
}

/// Opens the TAP `name`, made if it is not there, or the macvtap with that path.
///
/// # Errors
/// [`Cause`], which names the cure.
pub fn open(name: &str, mode: Mode) -> Result<Nio, Cause> {
    let virtio_header = mode.has_metadata();
    let (file, interface) = if name.starts_with('/') {
        TapFile::open_macvtap(Path::new(name), virtio_header)
    } else {
        TapFile::create(name, virtio_header)
    }
    .map_err(|error| cause(name, error))?;
    let mtu = Interface::named(&interface).and_then(|tap| tap.mtu()).unwrap_or(DEFAULT_MTU);
    let writer = file.try_clone()?;
    let ingress = TapIngress { file, virtio_header };
    if virtio_header {
        ingress.ask_for(mode.features());
    }
    let description = if name.starts_with('/') { name.to_owned() } else { interface };
    Ok(Nio {
        identity: Identity::new(&KIND, description),
        ends: Ends { ingress: Box::new(ingress), egress: Box::new(DeviceEgress::new(writer, mode, mtu)) },
    })
}

fn cause(name: &str, error: io::Error) -> Cause {
    match error.raw_os_error() {
        None if error.kind() == io::ErrorKind::InvalidInput => Cause::Name,
        Some(libc::ENOENT | libc::ENXIO) if name.starts_with('/') => Cause::NoSuchFile,
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Cause::NoTun,
        Some(libc::EACCES) => Cause::NoAccess(if name.starts_with('/') { name } else { tun::CLONE_DEVICE }.to_owned()),
        Some(libc::EPERM) => Cause::not_permitted("CAP_NET_ADMIN"),
        Some(libc::EBUSY) => Cause::Busy,
        Some(libc::EINVAL | libc::ENOTTY | libc::EEXIST) => Cause::NotATap,
        _ => error.into(),
    }
}

/// The kernel's flags for `features`.
fn offload_mask(features: Features) -> u32 {
    [
        (features.checksum, tun::TUN_F_CSUM),
        (features.tso4, tun::TUN_F_TSO4),
        (features.tso6, tun::TUN_F_TSO6),
        (features.ecn && (features.tso4 || features.tso6), tun::TUN_F_TSO_ECN),
        (features.uso, tun::TUN_F_USO4 | tun::TUN_F_USO6),
    ]
    .iter()
    .filter(|(on, _)| *on && features.checksum)
    .fold(0, |mask, (_, flag)| mask | flag)
}

impl TapIngress {
    /// Asks the TAP for frames that are unfinished in these ways, and for super-frames: whatever the egress takes, one of
    /// them costs less to read and to cut than its pieces to read.
    fn ask_for(&self, features: Features) {
        // Kernels before 6.2 know no USO and refuse the whole mask for it.
        let without_uso = Features { uso: false, ..features };
        let set = [features, without_uso].iter().any(|&wanted| self.file.set_offloads(offload_mask(wanted)).is_ok());
        if !set {
            tracing::warn!("the TAP takes no offloads; its frames come one by one");
        }
    }
}

impl Ingress for TapIngress {
    fn fd(&self) -> RawFd {
        self.file.as_fd().as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let len = self.file.receive(frame.space(self.virtio_header))?;
        frame.fill(len, self.virtio_header)
    }
}

impl Drop for TapIngress {
    /// The mask is the device's and outlives us where the TAP is persistent: the next opener may be a plain
    /// one, who would get super-frames. A device that is gone has no mask to reset.
    fn drop(&mut self) {
        let _ = self.file.set_offloads(0);
    }
}

impl Device for TapFile {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        TapFile::send(self, bytes)
    }
}
