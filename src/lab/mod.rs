//! The bridges that this process has, whoever asked for them.
#![forbid(unsafe_code)]

use crate::output::Console;

/// Everything that commands act upon.
#[derive(Debug)]
pub struct Lab {
    /// Where to complain.
    pub console: Console,
}
