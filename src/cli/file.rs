//! `-f`: the bridges of an INI file.

use std::path::PathBuf;

use crate::config::ini;
use crate::nio::Mode;
use crate::output::Console;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The file that describes the bridges.
    pub(super) path: PathBuf,
    /// How much to tell of each frame.
    pub(super) debug: u8,
    /// How NIOs are opened.
    pub(super) mode: Mode,
}

/// Runs until a signal ends it; a file that cannot be read is told, but no failure.
pub(super) fn run(options: &Options, console: &Console) -> anyhow::Result<()> {
    if let Err(faults) = ini::load(&options.path) {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        console.stderr.say(&lines.join("\n"));
        return Ok(());
    }
    anyhow::bail!("not there yet")
}
