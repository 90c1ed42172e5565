//! A test's own end of a wire: sends frames with metadata, and receives them as they are on the wire.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rubridge::sys::VIRTIO_HEADER_LEN;
use rubridge::sys::packet::PacketSocket;
use rubridge::sys::socket::enlarge_buffers;

use super::{Namespace, PATIENCE, uninterrupted};

/// An AF_PACKET socket on one interface.
pub(crate) struct WireTap {
    socket: PacketSocket,
    buffer: Vec<u8>,
}

/// A frame and the virtio header that came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) header: [u8; VIRTIO_HEADER_LEN],
    pub(crate) frame: Vec<u8>,
}

/// An EtherType for experiments (IEEE 802): frames of the kernel's own never carry it.
const MARK: [u8; 2] = [0x88, 0xb5];

impl WireTap {
    pub(crate) fn new(namespace: &Namespace, interface: &str) -> Self {
        let index = namespace.index(interface);
        let socket = namespace.run(|| {
            let socket = PacketSocket::open(index, true).expect("a packet socket");
            socket.be_promiscuous(index).expect("promiscuous mode");
            socket.hear_all_but_own().expect("a filter");
            enlarge_buffers(&socket, 32 << 20).expect("larger buffers");
            socket
        });
        Self { socket, buffer: vec![0; 1 << 19] }
    }

    /// Sends one frame behind the virtio header `header`.
    pub(crate) fn try_send(&self, header: &[u8; VIRTIO_HEADER_LEN], frame: &[u8]) -> std::io::Result<()> {
        self.socket.send(&[header.as_slice(), frame].concat())
    }

    pub(crate) fn send(&self, header: &[u8; VIRTIO_HEADER_LEN], frame: &[u8]) {
        self.try_send(header, frame).unwrap_or_else(|error| panic!("{error}: {header:?} {} bytes", frame.len()));
    }

    /// Sends a frame that needs nothing.
    pub(crate) fn send_plain(&self, frame: &[u8]) {
        self.send(&[0; VIRTIO_HEADER_LEN], frame);
    }

    /// A frame that nothing but these tests sends, told from others like it by `number`.
    pub(crate) fn mark(number: u16) -> Vec<u8> {
        let mut frame = vec![2; 60];
        frame[12..14].copy_from_slice(&MARK);
        frame[14..16].copy_from_slice(&number.to_be_bytes());
        frame
    }

    /// The next frame, with its VLAN tag put back, if one comes within `patience`.
    pub(crate) fn next(&mut self, patience: Duration) -> Option<Heard> {
        let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(patience).expect("a short time");
        if uninterrupted(|| Ok(poll(&mut ready, patience)?)).expect("poll") == 0 {
            return None;
        }
        let received = self.socket.receive(&mut self.buffer).expect("a frame");
        assert!(!received.truncated);
        let (header, frame) = self.buffer[..received.len].split_first_chunk().expect("a virtio header");
        let mut frame = frame.to_vec();
        if let Some(tag) = received.tag {
            frame.splice(12..12, tag.tpid.to_be_bytes().into_iter().chain(tag.tci.to_be_bytes()));
        }
        Some(Heard { header: *header, frame })
    }

    /// All frames before the mark `number`, the kernel's own chatter (IPv6 neighbour discovery) left out.
    pub(crate) fn until_mark(&mut self, number: u16) -> Vec<Heard> {
        let mark = Self::mark(number);
        let mut heard = Vec::new();
        let start = Instant::now();
        loop {
            let left = PATIENCE.checked_sub(start.elapsed()).expect("the mark comes");
            let Some(next) = self.next(left) else { panic!("no mark after {} frames", heard.len()) };
            if next.frame == mark {
                return heard;
            }
            let of_the_kernel = next.frame.starts_with(&[0x33, 0x33]);
            let older_mark = next.frame[12..14] == MARK;
            if !of_the_kernel && !older_mark {
                heard.push(next);
            }
        }
    }
}
