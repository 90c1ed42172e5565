//! An egress that leads nowhere.

use std::io;
use std::os::fd::RawFd;

use super::{Egress, Outgoing};

/// Takes every frame and does nothing with it: the way of frames ends at what they pass before it.
#[derive(Debug)]
pub struct Nowhere;

impl Egress for Nowhere {
    /// It never has anybody wait for it.
    fn fd(&self) -> RawFd {
        -1
    }

    fn send(&mut self, _: Outgoing<'_>) -> io::Result<()> {
        Ok(())
    }
}
