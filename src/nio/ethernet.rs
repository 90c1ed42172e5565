//! `ethernet`: a network interface through libpcap, with a filter that decides which frames it receives.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pcap::{Active, Capture};
use socket2::Socket;

use super::device::{Device, DeviceEgress};
use super::{Cause, Ends, Frame, Identity, Ingress, Kind, Metadata, Mode, Nio, ReceiveError, linux_raw};
use crate::filter::{Bpf, FilterError};
use crate::sys::socket::enlarge_buffers;

/// See the module's documentation.
pub(super) const KIND: Kind = Kind { name: "ethernet", arguments: "<interface>", open };

/// The longest frame that libpcap hands over, in bytes.
const SNAP_LEN: i32 = 65_535;

/// libpcap's ring in bytes. A place in it has room for the longest frame, so these are some 500 frames; and each place is a
/// block of 128 KiB to the kernel, so it takes twice as much.
const RING_BYTES: i32 = 32 << 20;

/// The send buffer in bytes.
const SEND_BYTES: u32 = 8 << 20;

/// Frames to forget at most when reading begins: more than the ring holds.
const FORGET: usize = 10_000;

/// How often to ask how many frames had no room in the ring.
const OVERFLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Which frames a NIO receives: all, or those that match an expression in the language of libpcap.
#[derive(Debug, Default)]
pub struct ReceiveFilter(Mutex<Option<Bpf>>);

struct PcapIngress {
    capture: Capture<Active>,
    filter: Arc<ReceiveFilter>,
    metadata: Metadata,
    /// When it was last asked for frames that had no room, and how many there have been.
    asked: Instant,
    overflowed: u32,
}

/// Opens the interface `name`, with a filter that lets all pass.
///
/// # Errors
/// [`Cause`], which names the cure.
pub fn open(name: &str, mode: Mode) -> Result<Nio, Cause> {
    let mtu = linux_raw::ethernet_mtu(name)?;
    let capture = Capture::from_device(name).and_then(|capture| {
        // Without immediate mode a frame waits for others; a timeout has no meaning then.
        capture.promisc(true).snaplen(SNAP_LEN).buffer_size(RING_BYTES).immediate_mode(true).open()?.setnonblock()
    });
    let capture = capture.map_err(|error| cause(error, name))?;
    // What libpcap sends itself it sends through this very socket, but it does not tell the error's number.
    let sender = Socket::from(capture.as_fd().try_clone_to_owned()?);
    sender.set_nonblocking(true)?;
    enlarge_buffers(&sender, SEND_BYTES)?;
    let filter = Arc::<ReceiveFilter>::default();
    let metadata = if mode == Mode::Plain { Metadata::Told } else { Metadata::Missing { mtu } };
    let ingress = PcapIngress { capture, filter: Arc::clone(&filter), metadata, asked: Instant::now(), overflowed: 0 };
    let identity = Identity { receive_filter: Some(filter), ..Identity::new(&KIND, name) };
    let egress = Box::new(DeviceEgress::new(sender, Mode::Plain, mtu));
    Ok(Nio { identity, ends: Ends { ingress: Box::new(ingress), egress } })
}

/// libpcap tells in words what went wrong.
fn cause(error: pcap::Error, name: &str) -> Cause {
    let text = match error {
        pcap::Error::PcapError(text) => text,
        other => other.to_string(),
    };
    if text.contains("ermission") || text.contains("not permitted") {
        return Cause::not_permitted("CAP_NET_RAW");
    }
    if text.contains("not up") {
        return Cause::Down(name.to_owned());
    }
    io::Error::other(text).into()
}

impl ReceiveFilter {
    /// Lets only frames pass that match `expression`, or all; from the next frame on.
    ///
    /// # Errors
    /// Where the expression cannot be compiled; nothing is changed then.
    pub fn set(&self, expression: Option<&str>) -> Result<(), FilterError> {
        let program = expression.map(|expression| Bpf::compile(expression, None)).transpose()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = program;
        Ok(())
    }

    fn wants(&self, frame: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(|program| program.matches(frame))
    }
}

impl Ingress for PcapIngress {
    fn fd(&self) -> RawFd {
        self.capture.as_raw_fd()
    }

    fn receive(&mut self, frame: &mut Frame) -> Result<(), ReceiveError> {
        let packet = self.capture.next_packet().map_err(receive_error)?;
        if packet.header.len as usize > packet.data.len() {
            return Err(ReceiveError::Truncated);
        }
        if !self.filter.wants(packet.data) {
            return Err(ReceiveError::Unwanted);
        }
        frame.space(false)[..packet.data.len()].copy_from_slice(packet.data);
        frame.fill(packet.data.len(), false)
    }

    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn take_overflow(&mut self) -> u64 {
        if self.asked.elapsed() < OVERFLOW_INTERVAL {
            return 0;
        }
        self.asked = Instant::now();
        let Ok(stats) = self.capture.stats() else { return 0 };
        let count = stats.dropped.wrapping_sub(self.overflowed);
        self.overflowed = stats.dropped;
        u64::from(count)
    }

    /// Forgets what came while nobody read: it was meant for others.
    fn resume(&mut self) {
        for _ in 0..FORGET {
            if self.capture.next_packet().is_err() {
                return;
            }
        }
    }
}

impl Device for Socket {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        Socket::send(self, bytes).map(drop)
    }
}

/// As for [`cause`].
fn receive_error(error: pcap::Error) -> ReceiveError {
    let number = match &error {
        pcap::Error::TimeoutExpired => libc::EAGAIN,
        pcap::Error::PcapError(text) if text.contains("disappeared") => libc::ENODEV,
        _ => return io::Error::other(error).into(),
    };
    io::Error::from_raw_os_error(number).into()
}

impl std::fmt::Debug for PcapIngress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PcapIngress").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
