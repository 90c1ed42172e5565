//! Tunnels that share one socket at their other end, which tells them apart by ports.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use super::Engine;
use super::counters::{DropReason, SharedCounters, WireSize};
use super::direction::{Direction, FRAMES_PER_TURN};
use super::inlet::{Found, Inlet};
use super::link::Equipment;
use super::outlet::Outlet;
use super::stages::Stages;
use super::worker::{Running, Task, Turn};
use crate::nio::iol::{Port, take_port};
use crate::nio::{Egress, Ends, Frame, Ingress, Nowhere};

/// Forwards between a shared socket and tunnels, one at each port. Dropping it stops that.
#[derive(Debug)]
pub struct Hub {
    // From the tunnels.
    tunnels: BTreeMap<Port, Running<Direction>>,
    // To the tunnels.
    distributor: Running<Distributor>,
}

/// Hands the frames of the shared socket out to the tunnels.
#[derive(Debug)]
struct Distributor {
    inlet: Inlet,
    frame: Frame,
    /// Until all tunnels are there, frames wait.
    is_open: bool,
    outlets: BTreeMap<Port, Outlet>,
    /// Frames for ports that lead nowhere.
    stray: SharedCounters,
}

impl Hub {
    /// Starts with no tunnel; frames of the shared socket wait until [`Hub::open`].
    ///
    /// # Errors
    /// Where the socket cannot be watched.
    pub fn start(engine: &Engine, name: &str, shared: Box<dyn Ingress>) -> io::Result<Self> {
        let distributor = Distributor {
            inlet: Inlet::new(name.to_owned(), shared, None),
            frame: Frame::default(),
            is_open: false,
            outlets: BTreeMap::new(),
            stray: Arc::default(),
        };
        let distributor = engine.run(distributor).map_err(|(error, _)| error)?;
        Ok(Self { tunnels: BTreeMap::new(), distributor })
    }

    /// Begins to hand out the frames of the shared socket, first those that came before.
    pub fn open(&self) {
        self.distributor.call(|distributor| distributor.is_open = true);
    }

    /// Forwards between the tunnel called `name` and `shared`, the way to the same port of the socket's peer.
    /// The tunnel must not keep frames waiting ([`crate::nio::Impatient`]): that would hold up the others.
    ///
    /// # Errors
    /// Where the tunnel cannot be watched; it is closed then.
    pub fn connect(
        &mut self,
        engine: &Engine,
        port: Port,
        (name, tunnel): (&str, Ends),
        shared: Box<dyn Egress>,
        equipment: Equipment,
    ) -> io::Result<()> {
        let Equipment { counters: [from_tunnel, to_tunnel], stages: [from_stages, to_stages] } = equipment;
        let inlet = Inlet::new(name.to_owned(), tunnel.ingress, None);
        let outlet = Outlet::new(format!("iol port {port}"), shared, from_tunnel, from_stages);
        let running = engine.run(Direction::new(inlet, outlet)).map_err(|(error, _)| error)?;
        self.tunnels.insert(port, running);
        let outlet = Outlet::new(name.to_owned(), tunnel.egress, to_tunnel, to_stages);
        self.distributor.call(move |distributor| drop(distributor.outlets.insert(port, outlet)));
        Ok(())
    }

    /// Has frames for `port` pass `stages`, and end there.
    pub fn end_at(&self, port: Port, stages: Arc<Stages>) {
        let outlet = Outlet::new("nowhere".to_owned(), Box::new(Nowhere), Arc::default(), stages);
        self.distributor.call(move |distributor| drop(distributor.outlets.insert(port, outlet)));
    }

    /// Closes what is at a port.
    pub fn disconnect(&mut self, port: Port) {
        self.tunnels.remove(&port);
        self.distributor.call(move |distributor| drop(distributor.outlets.remove(&port)));
    }

    /// Replaces the stages of a tunnel: those of frames from it, and of those to it.
    pub fn set_stages(&self, port: Port, [from, to]: [Arc<Stages>; 2]) {
        if let Some(tunnel) = self.tunnels.get(&port) {
            tunnel.call(move |tunnel| tunnel.outlet.set_stages(from));
        }
        self.distributor.call(move |distributor| {
            if let Some(outlet) = distributor.outlets.get_mut(&port) {
                outlet.set_stages(to);
            }
        });
    }

    /// Stops forwarding, and gives back the tunnels.
    #[must_use]
    pub fn stop(self) -> BTreeMap<Port, Ends> {
        let mut outlets = self.distributor.stop().map(|distributor| distributor.outlets).unwrap_or_default();
        let tunnels = self.tunnels.into_iter().filter_map(|(port, tunnel)| {
            let (ingress, _) = tunnel.stop()?.into_ends();
            Some((port, Ends { ingress, egress: outlets.remove(&port)?.into_egress() }))
        });
        tunnels.collect()
    }
}

impl Distributor {
    fn distribute(&mut self) -> Turn {
        if !self.is_open {
            return Turn::Drained;
        }
        for _ in 0..FRAMES_PER_TURN {
            match self.inlet.receive(&mut self.frame, &self.stray) {
                Found::Frame => {}
                Found::Failure => continue,
                Found::End => return Turn::Drained,
            }
            match take_port(&mut self.frame).and_then(|port| self.outlets.get_mut(&port)) {
                Some(outlet) => {
                    outlet.take(&mut self.frame);
                    send(outlet, &mut self.frame);
                }
                None => self.stray.lost(DropReason::NoPeer, WireSize::one(self.frame.bytes())),
            }
        }
        Turn::Unfinished
    }
}

/// Sends all that an outlet has to send, also what it would send together with more to come: none of them waits.
fn send(outlet: &mut Outlet, frame: &mut Frame) {
    while outlet.finish(frame) == Some(Turn::Unfinished) {}
}

impl Task for Distributor {
    fn ingress_fd(&self) -> RawFd {
        self.inlet.fd()
    }

    /// It is never blocked.
    fn egress_fd(&self) -> RawFd {
        self.inlet.fd()
    }

    fn turn(&mut self) -> Turn {
        for outlet in self.outlets.values_mut().filter(|outlet| outlet.due().is_some()) {
            send(outlet, &mut self.frame);
        }
        self.distribute()
    }

    fn due(&self) -> Option<Instant> {
        self.outlets.values().filter_map(Outlet::due).min()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
