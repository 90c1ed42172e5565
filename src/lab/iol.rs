//! A bridge between an IOL instance and UDP tunnels, one at each of its ports.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::bridge::Traffic;
use super::passage::Passage;
use crate::capture::{Capture, LinkType};
use crate::engine::Engine;
use crate::engine::counters::SharedCounters;
use crate::engine::hub::Hub;
use crate::engine::link::Equipment;
use crate::engine::stages::Stages;
use crate::filter::{Side, Sided};
use crate::nio::iol::{Port, Station};
use crate::nio::{Egress, Ends, Identity, Impatient, Nio};
use crate::output::Console;

/// An IOL bridge. Dropping it stops it and closes everything that it has.
#[derive(Debug)]
pub struct IolBridge {
    name: String,
    // First of all it stops, then its tunnels and captures are closed, then its own socket.
    hub: Option<Hub>,
    ports: BTreeMap<Port, PortState>,
    station: Station,
    console: Console,
}

/// What is at a port.
#[derive(Debug, Default)]
struct PortState {
    tunnel: Option<Tunnel>,
    passage: Passage,
}

#[derive(Debug)]
struct Tunnel {
    identity: Identity,
    /// The instance that frames go to.
    instance: u16,
    /// `None` while the hub has them.
    ends: Option<Ends>,
    /// From the tunnel, and to it.
    counters: [SharedCounters; 2],
    before: Traffic,
}

impl IolBridge {
    /// A bridge without tunnels.
    #[must_use]
    pub fn new(name: &str, station: Station, console: &Console) -> Self {
        Self { name: name.to_owned(), hub: None, ports: BTreeMap::new(), station, console: console.clone() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id among the IOL instances.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.station.id()
    }

    /// Whether frames go through it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.hub.is_some()
    }

    /// The tunnel at a port.
    #[must_use]
    pub fn tunnel(&self, port: Port) -> Option<&Identity> {
        Some(&self.ports.get(&port)?.tunnel.as_ref()?.identity)
    }

    /// Its tunnels.
    pub fn tunnels(&self) -> impl Iterator<Item = &Identity> {
        self.ports.values().filter_map(|port| Some(&port.tunnel.as_ref()?.identity))
    }

    /// Starts forwarding; while it runs already, nothing is done.
    ///
    /// # Errors
    /// Where its sockets cannot be watched; it does not run then.
    pub fn start(&mut self, engine: &Engine) -> io::Result<()> {
        if self.hub.is_some() {
            return Ok(());
        }
        self.hub = Some(Hub::start(engine, &format!("iol:{}", self.id()), self.station.ingress()?)?);
        let ports: Vec<Port> = self.ports.keys().copied().collect();
        let started = ports.into_iter().try_for_each(|port| {
            let tunnel = self.ports.get(&port).and_then(|state| state.tunnel.as_ref());
            let shared = tunnel.map(|tunnel| self.station.egress(tunnel.instance, port)).transpose()?;
            self.attach(engine, port, shared)
        });
        match &self.hub {
            Some(hub) if started.is_ok() => hub.open(),
            _ => drop(self.stop()),
        }
        started
    }

    /// Stops forwarding; returns whether it was running.
    pub fn stop(&mut self) -> bool {
        let Some(hub) = self.hub.take() else { return false };
        let mut tunnels = hub.stop();
        for (port, state) in &mut self.ports {
            let Some(tunnel) = &mut state.tunnel else { continue };
            tunnel.ends = tunnels.remove(port).or_else(|| tunnel.ends.take());
            if tunnel.ends.is_none() {
                // It is lost with a worker.
                state.tunnel = None;
            }
        }
        true
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        let ports: Vec<Port> = self.ports.keys().copied().collect();
        ports.into_iter().for_each(|port| self.equip(port));
    }

    /// Puts a tunnel at a port, for frames from and to an instance. What was there before is closed, its capture
    /// and filters too; those of a port that had no tunnel stay.
    ///
    /// # Errors
    /// Where the bridge runs and the tunnel cannot be watched; without a descriptor for it, what was there stays.
    pub fn connect(&mut self, engine: &Engine, port: Port, instance: u16, nio: Nio) -> io::Result<()> {
        let shared = self.hub.is_some().then(|| self.station.egress(instance, port)).transpose()?;
        if self.ports.get(&port).is_some_and(|state| state.tunnel.is_some()) {
            self.disconnect(port);
        }
        let Ends { ingress, egress } = nio.ends;
        let ends = Some(Ends { ingress, egress: Box::new(Impatient(egress)) });
        let (counters, before) = Default::default();
        let tunnel = Tunnel { identity: nio.identity, instance, ends, counters, before };
        self.ports.entry(port).or_default().tunnel = Some(tunnel);
        self.attach(engine, port, shared)
    }

    /// Removes everything from a port.
    pub fn disconnect(&mut self, port: Port) {
        if let Some(hub) = &mut self.hub {
            hub.disconnect(port);
        }
        self.ports.remove(&port);
    }

    /// What went through each tunnel.
    pub fn traffic(&self) -> impl Iterator<Item = (Port, Traffic)> + '_ {
        self.ports.iter().filter_map(|(&port, state)| {
            let tunnel = state.tunnel.as_ref()?;
            Some((port, tunnel.counted().since(tunnel.before)))
        })
    }

    /// Starts counting anew.
    pub fn reset_traffic(&mut self) {
        for tunnel in self.ports.values_mut().filter_map(|state| state.tunnel.as_mut()) {
            tunnel.before = tunnel.counted();
        }
    }

    /// Appends a packet filter at a port; returns whether its name was free.
    pub fn add_filter(&mut self, port: Port, filter: Sided) -> bool {
        let added = self.ports.entry(port).or_default().passage.add_filter(filter);
        self.equip_if(added, port)
    }

    /// Removes a packet filter from a port; returns whether there was one of that name.
    pub fn remove_filter(&mut self, port: Port, name: &str) -> bool {
        let removed = self.ports.get_mut(&port).is_some_and(|state| state.passage.remove_filter(name));
        self.equip_if(removed, port)
    }

    /// Removes all packet filters from a port.
    pub fn reset_filters(&mut self, port: Port) {
        if let Some(state) = self.ports.get_mut(&port) {
            state.passage.reset_filters();
            self.equip(port);
        }
    }

    /// Whether a capture is running at a port.
    #[must_use]
    pub fn is_capturing(&self, port: Port) -> bool {
        self.ports.get(&port).is_some_and(|state| state.passage.capture().is_some())
    }

    /// Starts recording a port's frames to a file. Not while another capture is running there.
    ///
    /// # Errors
    /// The file's.
    pub fn start_capture(&mut self, port: Port, path: &Path, link_type: LinkType) -> io::Result<()> {
        let capture = Capture::start(path, link_type, &self.console)?;
        self.ports.entry(port).or_default().passage.record_to(capture);
        self.equip(port);
        Ok(())
    }

    /// Ends the capture at a port; the file is complete then. Returns whether there was one.
    pub fn stop_capture(&mut self, port: Port) -> bool {
        let Some(capture) = self.ports.get_mut(&port).and_then(|state| state.passage.take_capture()) else {
            return false;
        };
        self.equip(port);
        capture.stop();
        true
    }

    /// The captures that are running at its ports.
    pub(super) fn captures(&self) -> impl Iterator<Item = &Arc<Capture>> {
        self.ports.values().filter_map(|state| state.passage.capture())
    }

    /// Has a running hub forward what is at a port, a tunnel to `shared`.
    fn attach(&mut self, engine: &Engine, port: Port, shared: Option<Box<dyn Egress>>) -> io::Result<()> {
        let stages = self.stages(port);
        let (Some(hub), Some(state)) = (&mut self.hub, self.ports.get_mut(&port)) else { return Ok(()) };
        let joined = state.tunnel.as_mut().zip(shared);
        let Some((ends, shared, tunnel)) = joined.and_then(|(tunnel, to)| Some((tunnel.ends.take()?, to, tunnel)))
        else {
            let [_, to] = stages;
            hub.end_at(port, to);
            return Ok(());
        };
        let counters = tunnel.counters.each_ref().map(Arc::clone);
        let name = tunnel.identity.to_string();
        let connected = hub.connect(engine, port, (&name, ends), shared, Equipment { counters, stages });
        if connected.is_err() {
            state.tunnel = None;
        }
        connected
    }

    /// Has a running hub pass a port's frames through what there is now.
    fn equip(&mut self, port: Port) {
        let stages = self.stages(port);
        let (Some(hub), Some(state)) = (&self.hub, self.ports.get(&port)) else { return };
        if state.tunnel.is_some() {
            hub.set_stages(port, stages);
        } else {
            let [_, to] = stages;
            hub.end_at(port, to);
        }
    }

    fn equip_if(&mut self, changed: bool, port: Port) -> bool {
        if changed {
            self.equip(port);
        }
        changed
    }

    /// Of frames from the tunnel, and of those to it.
    fn stages(&self, port: Port) -> [Arc<Stages>; 2] {
        let nothing = Passage::default();
        let passage = self.ports.get(&port).map_or(&nothing, |state| &state.passage);
        [(Side::Destination, "destination NIO"), (Side::Source, "IOL instance")].map(|(side, from)| {
            let place = format!(" from {from} on IOL bridge '{}'", self.name);
            passage.stages(side, &self.console, place.clone(), place)
        })
    }
}

impl Tunnel {
    fn counted(&self) -> Traffic {
        Traffic::of(&self.counters[0], &self.counters[1])
    }
}
