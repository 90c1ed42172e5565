//! The bridges that this process has, whoever asked for them.
#![forbid(unsafe_code)]

mod bridge;
pub mod configured;

pub use bridge::{Bridge, NotStarted, Traffic};

use crate::engine::Engine;
use crate::nio::Mode;
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
    // Last, so that it outlives what runs on it.
    engine: Engine,
}

impl Lab {
    /// A lab without bridges, whose NIOs are opened in `mode`.
    #[must_use]
    pub fn new(console: Console, mode: Mode, engine: Engine) -> Self {
        Self { console, mode, bridges: Vec::new(), engine }
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
        let bridge = self.bridges.iter_mut().find(|bridge| bridge.name() == name)?;
        Some(bridge.start(&self.engine))
    }

    /// Whether a running bridge has a NIO that reads and writes the very same as one described so: the newer of two
    /// sockets with the same ports and peer would take all that the older one is to receive.
    #[must_use]
    pub fn is_in_use(&self, kind: &str, description: &str) -> bool {
        let running = self.bridges.iter().filter(|bridge| bridge.is_running());
        running.flat_map(|bridge| bridge.nios()).flatten().any(|nio| nio.kind == kind && nio.description == description)
    }

    /// Ends all bridges.
    pub fn reset(&mut self) {
        self.bridges.clear();
    }
}
