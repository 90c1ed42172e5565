//! `-H`: bridges on demand, driven over TCP.

use super::bind::Bind;
use crate::nio::Mode;
use crate::output::Console;

/// How to be driven.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Where to listen.
    pub(super) bind: Bind,
    /// Whether connections from other machines are accepted.
    pub(super) allow_remote: bool,
    /// How much to tell of each frame.
    pub(super) debug: u8,
    /// How NIOs are opened.
    pub(super) mode: Mode,
}

/// Runs until it is told to stop.
pub(super) fn run(options: &Options, console: &Console) -> anyhow::Result<()> {
    let addresses = options.bind.resolve()?;
    let _ = (addresses, console);
    anyhow::bail!("not there yet")
}
