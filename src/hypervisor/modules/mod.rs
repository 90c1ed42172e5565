//! The modules of commands.

mod brctl;
mod bridge;
mod docker;
mod general;
mod iol_bridge;
mod kernel;
mod shared;

use super::command::Module;

/// Every module, in the order in which they are registered; they are listed the other way round.
pub(super) const MODULES: &[&Module] =
    &[&general::MODULE, &bridge::MODULE, &docker::MODULE, &iol_bridge::MODULE, &brctl::MODULE];
