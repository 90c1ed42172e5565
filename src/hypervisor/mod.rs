//! The control protocol of ubridge, which gns3-server speaks: lines of text over TCP.
#![forbid(unsafe_code)]

mod brctl;
mod command;
mod docker;
mod kernel;
mod reply;

use command::Module;

/// Every module, in the order in which they are registered; they are listed the other way round.
const MODULES: &[Module] = &[docker::MODULE, brctl::MODULE];
