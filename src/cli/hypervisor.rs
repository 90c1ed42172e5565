//! `-H`: bridges on demand, driven over TCP.

use anyhow::Context;

use super::bind::Bind;
use super::version;
use crate::engine::Engine;
use crate::hypervisor::{Access, Server};
use crate::lab::Lab;
use crate::nio::Mode;
use crate::output::Console;
use crate::sys::process;

/// How to be driven.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Where to listen.
    pub(super) bind: Bind,
    /// Who may connect.
    pub(super) access: Access,
    /// How much to tell of each frame.
    pub(super) debug: u8,
    /// How NIOs are opened.
    pub(super) mode: Mode,
}

/// Runs until it is told to stop.
pub(super) fn run(options: &Options, console: &Console) -> anyhow::Result<()> {
    // gns3-server finds what earlier servers left behind by this name.
    process::set_name(c"ubridge").context("this process cannot be named")?;
    console.stdout.say(&format!("uBridge {} running with libpcap", version()));
    let addresses = options.bind.resolve()?;
    let server = Server::listen(&addresses, options.access).inspect_err(|_| {
        console.stderr.say("Hypervisor: unable to create TCP sockets.");
    })?;
    for address in server.addresses() {
        let at = match options.bind.host {
            Some(_) => format!("IP {} port {}", address.ip(), address.port()),
            None => format!("port {}", address.port()),
        };
        console.stdout.say(&format!("Hypervisor TCP control server started ({at})."));
    }
    let engine = Engine::start().context("the workers cannot be started")?;
    server.run(&mut Lab::new(console.clone(), options.mode, engine)).context("the control server failed")
}
