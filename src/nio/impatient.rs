//! An egress that does not wait.

use std::io;
use std::os::fd::RawFd;

use super::{Egress, Outgoing, RunLimit};
use crate::wire::offload::Features;

/// Loses frames that its egress does not take at once, where waiting would hold up others.
#[derive(Debug)]
pub struct Impatient(pub Box<dyn Egress>);

impl Egress for Impatient {
    fn fd(&self) -> RawFd {
        self.0.fd()
    }

    fn features(&self) -> Features {
        self.0.features()
    }

    fn mtu(&self) -> Option<u32> {
        self.0.mtu()
    }

    fn send(&mut self, frame: Outgoing<'_>) -> io::Result<()> {
        self.0.send(frame).map_err(at_once)
    }

    fn run_limit(&self) -> Option<RunLimit> {
        self.0.run_limit()
    }

    fn send_run(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
        self.0.send_run(bytes, size).map_err(at_once)
    }
}

/// What could be sent later is lost.
fn at_once(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::from_raw_os_error(libc::ENOBUFS),
        _ => error,
    }
}
