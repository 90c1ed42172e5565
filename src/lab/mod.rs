//! The bridges that this process has, whoever asked for them.
#![forbid(unsafe_code)]

mod bridge;
pub mod configured;
mod iol;
mod passage;

pub use bridge::{Bridge, NotStarted, Traffic};
pub use iol::IolBridge;

use crate::engine::Engine;
use crate::nio::iol::{Port, Station, StationError};
use crate::nio::udp::Tunnel;
use crate::nio::{Identity, Mode, Nio};
use crate::output::Console;

/// Everything that commands act upon.
#[derive(Debug)]
pub struct Lab {
    /// Where to complain.
    pub console: Console,
    /// How NIOs are opened.
    pub mode: Mode,
    /// Newest first.
    bridges: Vec<Bridge>,
    /// Newest first.
    iol_bridges: Vec<IolBridge>,
    // Last, so that it outlives what runs on it.
    engine: Engine,
}

impl Lab {
    /// A lab without bridges, whose NIOs are opened in `mode`.
    #[must_use]
    pub fn new(console: Console, mode: Mode, engine: Engine) -> Self {
        Self { console, mode, bridges: Vec::new(), iol_bridges: Vec::new(), engine }
    }

    /// The bridges, newest first.
    #[must_use]
    pub fn bridges(&self) -> &[Bridge] {
        &self.bridges
    }

    /// The bridge called `name`.
    pub fn bridge(&mut self, name: &str) -> Option<&mut Bridge> {
        self.bridges.iter_mut().find(|bridge| bridge.name() == name)
    }

    /// Makes a bridge; `None` where there is one of that name.
    pub fn create_bridge(&mut self, name: &str) -> Option<&mut Bridge> {
        if self.bridge(name).is_some() {
            return None;
        }
        self.bridges.insert(0, Bridge::new(name, &self.console));
        self.bridges.first_mut()
    }

    /// Ends a bridge; returns whether there was one of that name.
    pub fn delete_bridge(&mut self, name: &str) -> bool {
        let before = self.bridges.len();
        self.bridges.retain(|bridge| bridge.name() != name);
        self.bridges.len() < before
    }

    /// Starts the bridge called `name`; `None` where there is none.
    pub fn start_bridge(&mut self, name: &str) -> Option<Result<(), NotStarted>> {
        let bridge = self.bridges.iter().find(|bridge| bridge.name() == name)?;
        let is_taken = self.has_taken_tunnel(bridge.is_running(), bridge.nios().into_iter().flatten());
        let bridge = self.bridges.iter_mut().find(|bridge| bridge.name() == name)?;
        Some(if is_taken { Err(NotStarted::TunnelTaken) } else { bridge.start(&self.engine) })
    }

    /// Whether one of the NIOs of a bridge that does not run yet is a tunnel that a running bridge has: it may have been
    /// opened while that one did not run.
    fn has_taken_tunnel<'a>(&self, runs: bool, nios: impl Iterator<Item = &'a Identity>) -> bool {
        let mut tunnels = nios.filter_map(|nio| nio.tunnel).filter(|tunnel| tunnel.local_port != 0);
        !runs && tunnels.any(|tunnel| self.runs_tunnel(tunnel))
    }

    /// Whether a running bridge has this tunnel.
    #[must_use]
    pub fn runs_tunnel(&self, tunnel: Tunnel) -> bool {
        let bridges = self.bridges.iter().filter(|bridge| bridge.is_running());
        let iol_bridges = self.iol_bridges.iter().filter(|bridge| bridge.is_running());
        let nios = bridges.flat_map(Bridge::nios).flatten().chain(iol_bridges.flat_map(IolBridge::tunnels));
        nios.into_iter().any(|nio| nio.tunnel == Some(tunnel))
    }

    /// The IOL bridges, newest first.
    #[must_use]
    pub fn iol_bridges(&self) -> &[IolBridge] {
        &self.iol_bridges
    }

    /// The IOL bridge called `name`.
    pub fn iol_bridge(&mut self, name: &str) -> Option<&mut IolBridge> {
        self.iol_bridges.iter_mut().find(|bridge| bridge.name() == name)
    }

    /// Makes an IOL bridge, of a name that none has.
    ///
    /// # Errors
    /// Where the id cannot be had.
    pub fn create_iol_bridge(&mut self, name: &str, id: u16) -> Result<(), StationError> {
        // A process does not see its own locks on files.
        if self.iol_bridges.iter().any(|bridge| bridge.id() == id) {
            let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
            return Err(StationError::Taken(pid, id));
        }
        self.iol_bridges.insert(0, IolBridge::new(name, Station::open(id)?, &self.console));
        Ok(())
    }

    /// Ends an IOL bridge; returns whether there was one of that name.
    pub fn delete_iol_bridge(&mut self, name: &str) -> bool {
        let before = self.iol_bridges.len();
        self.iol_bridges.retain(|bridge| bridge.name() != name);
        self.iol_bridges.len() < before
    }

    /// Starts the IOL bridge called `name`; `None` where there is none.
    pub fn start_iol_bridge(&mut self, name: &str) -> Option<std::io::Result<()>> {
        let bridge = self.iol_bridges.iter().find(|bridge| bridge.name() == name)?;
        let is_taken = self.has_taken_tunnel(bridge.is_running(), bridge.tunnels());
        let bridge = self.iol_bridges.iter_mut().find(|bridge| bridge.name() == name)?;
        Some(if is_taken { Err(std::io::ErrorKind::AddrInUse.into()) } else { bridge.start(&self.engine) })
    }

    /// Puts a tunnel at a port of the IOL bridge called `name`; `None` where there is none.
    pub fn connect_iol(&mut self, name: &str, port: Port, instance: u16, nio: Nio) -> Option<std::io::Result<()>> {
        let bridge = self.iol_bridges.iter_mut().find(|bridge| bridge.name() == name)?;
        Some(bridge.connect(&self.engine, port, instance, nio))
    }

    /// Ends all bridges.
    pub fn reset(&mut self) {
        // A capture to a slow disk takes its time to end; all of them together take no longer than one.
        let captures = self.bridges.iter().filter_map(Bridge::capture);
        let captures = captures.chain(self.iol_bridges.iter().flat_map(IolBridge::captures));
        std::thread::scope(|scope| captures.for_each(|capture| drop(scope.spawn(|| capture.stop()))));
        self.bridges.clear();
        self.iol_bridges.clear();
    }
}
