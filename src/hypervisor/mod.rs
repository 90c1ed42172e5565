//! The control protocol of ubridge, which gns3-server speaks: lines of text over TCP.
//!
//! Bytes of a client (`client`) become lines of words (`tokenizer`), each line a command of a module
//! (`modules`) that acts on the lab and makes a `reply`. One thread does all that, so commands
//! are carried out one after another, whoever sends them.
#![forbid(unsafe_code)]

mod client;
mod command;
mod modules;
mod reply;
mod server;
mod tokenizer;

pub use server::{Access, Server};

/// The version of ubridge whose commands these are, and that is told to clients.
pub const UBRIDGE_VERSION: &str = "0.9.19";
