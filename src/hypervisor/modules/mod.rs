//! The modules of commands.

mod bridge;
mod general;

use super::command::Module;

/// Every module, in the order in which they are registered; they are listed the other way round.
pub(super) const MODULES: &[&Module] = &[&general::MODULE, &bridge::MODULE];
