//! A bridge as it is commanded: two places for NIOs, filters, a capture, running or not.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::passage::Passage;
use crate::capture::{Capture, LinkType};
use crate::engine::counters::{Counters, SharedCounters, WireSize};
use crate::engine::link::Equipment;
use crate::engine::stages::Stages;
use crate::engine::{Engine, Link};
use crate::filter::{Side, Sided};
use crate::nio::{Ends, Identity, Nio};
use crate::output::Console;

/// A bridge. Dropping it stops it and closes everything that it has.
#[derive(Debug)]
pub struct Bridge {
    /// Its name, as it was given.
    name: String,
    // First of all it stops, then its NIOs are closed, then its capture.
    link: Option<Link>,
    /// As in [`Side::BOTH`], the order in which NIOs fill them.
    places: [Option<Place>; 2],
    /// From source to destination, and back.
    counters: [SharedCounters; 2],
    passage: Passage,
    console: Console,
}

/// A NIO in its place.
#[derive(Debug)]
struct Place {
    identity: Identity,
    /// `None` while the link has them.
    ends: Option<Ends>,
    /// What was counted before it came, or before its counts were reset.
    before: Traffic,
}

/// What went through a NIO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Received from it.
    pub received: WireSize,
    /// Sent to it.
    pub sent: WireSize,
}

/// Why a bridge does not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// It runs already.
    #[error("it is running already")]
    Running,
    /// It has fewer than two NIOs.
    #[error("it needs two NIOs")]
    NiosMissing,
    /// A running bridge has one of its tunnels.
    #[error("a running bridge has the same tunnel")]
    TunnelTaken,
    /// The engine refused.
    #[error(transparent)]
    Refused(#[from] io::Error),
}

impl Bridge {
    /// A bridge without anything.
    #[must_use]
    pub fn new(name: &str, console: &Console) -> Self {
        Self {
            name: name.to_owned(),
            link: None,
            places: [None, None],
            counters: Default::default(),
            passage: Passage::default(),
            console: console.clone(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether frames go through it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.link.is_some()
    }

    /// Its source and its destination.
    #[must_use]
    pub fn nios(&self) -> [Option<&Identity>; 2] {
        self.places.each_ref().map(|place| place.as_ref().map(|place| &place.identity))
    }

    /// How many NIOs it has.
    #[must_use]
    pub fn nio_count(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Puts a NIO into the first free place; gives it back where there is none.
    ///
    /// # Errors
    /// The NIO, where both places are taken.
    pub fn add(&mut self, nio: Nio) -> Result<(), Nio> {
        let Some(side) = self.places.iter().position(Option::is_none) else { return Err(nio) };
        let before = self.counted(side);
        self.places[side] = Some(Place { identity: nio.identity, ends: Some(nio.ends), before });
        Ok(())
    }

    /// Closes the first NIO that `wanted` is true of; returns whether there was one. Only while it does not run.
    pub fn remove(&mut self, wanted: impl Fn(&Identity) -> bool) -> bool {
        let found = self.places.iter_mut().find(|place| place.as_ref().is_some_and(|place| wanted(&place.identity)));
        found.is_some_and(|place| place.take().is_some())
    }

    /// Starts forwarding.
    ///
    /// # Errors
    /// [`NotStarted`]; the bridge is then as it was.
    pub fn start(&mut self, engine: &Engine) -> Result<(), NotStarted> {
        if self.link.is_some() {
            return Err(NotStarted::Running);
        }
        let [Some(source), Some(destination)] = &mut self.places else { return Err(NotStarted::NiosMissing) };
        let (Some(first), Some(second)) = (source.take(), destination.take()) else {
            return Err(NotStarted::NiosMissing);
        };
        let equipment = Equipment { counters: self.counters.each_ref().map(Arc::clone), stages: self.stages() };
        match Link::start(engine, first, second, equipment) {
            Ok(link) => {
                self.link = Some(link);
                Ok(())
            }
            Err(error) => {
                self.take_back(error.ends);
                Err(error.cause.into())
            }
        }
    }

    /// Stops forwarding; NIOs, filters and capture stay. Returns whether it was running.
    pub fn stop(&mut self) -> bool {
        let Some(link) = self.link.take() else { return false };
        let ends = link.stop();
        self.take_back(ends);
        true
    }

    /// Puts the NIOs back into their places; where they are lost, the places are free.
    fn take_back(&mut self, ends: Option<Box<[Ends; 2]>>) {
        let ends = ends.map_or([None, None], |ends| ends.map(Some));
        for (place, ends) in self.places.iter_mut().zip(ends) {
            match (place.as_mut(), ends) {
                (Some(place), Some(ends)) => place.ends = Some(ends),
                _ => *place = None,
            }
        }
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.equip();
    }

    /// What went through the NIO on each side, where there is one.
    #[must_use]
    pub fn traffic(&self) -> [Option<Traffic>; 2] {
        [0, 1].map(|side| {
            let before = self.places[side].as_ref()?.before;
            Some(self.counted(side).since(before))
        })
    }

    /// Starts counting anew.
    pub fn reset_traffic(&mut self) {
        for side in 0..self.places.len() {
            let counted = self.counted(side);
            if let Some(place) = &mut self.places[side] {
                place.before = counted;
            }
        }
    }

    fn counted(&self, side: usize) -> Traffic {
        Traffic::of(&self.counters[side], &self.counters[1 - side])
    }

    /// Its packet filters, in order.
    #[must_use]
    pub fn filters(&self) -> &[Sided] {
        self.passage.filters()
    }

    /// Appends a packet filter; returns whether its name was free.
    pub fn add_filter(&mut self, filter: Sided) -> bool {
        let added = self.passage.add_filter(filter);
        self.equip_if(added)
    }

    /// Removes a packet filter; returns whether there was one of that name.
    pub fn remove_filter(&mut self, name: &str) -> bool {
        let removed = self.passage.remove_filter(name);
        self.equip_if(removed)
    }

    /// Removes all packet filters.
    pub fn reset_filters(&mut self) {
        self.passage.reset_filters();
        self.equip();
    }

    /// Whether a capture is running.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.passage.capture().is_some()
    }

    /// Starts recording frames to a file. Not while another capture is running.
    ///
    /// # Errors
    /// The file's.
    pub fn start_capture(&mut self, path: &Path, link_type: LinkType) -> io::Result<()> {
        self.passage.record_to(Capture::start(path, link_type, &self.console)?);
        self.equip();
        Ok(())
    }

    /// Ends the capture; the file is complete then. Returns whether there was one.
    pub fn stop_capture(&mut self) -> bool {
        let Some(capture) = self.passage.take_capture() else { return false };
        self.equip();
        capture.stop();
        true
    }

    /// Its capture, if one is running.
    pub(super) fn captures(&self) -> impl Iterator<Item = &Arc<Capture>> {
        self.passage.capture().into_iter()
    }

    /// Has the running link pass frames through what there is now.
    fn equip(&self) {
        if let Some(link) = &self.link {
            link.set_stages(self.stages());
        }
    }

    fn equip_if(&self, changed: bool) -> bool {
        if changed {
            self.equip();
        }
        changed
    }

    fn stages(&self) -> [Arc<Stages>; 2] {
        let here = format!(" on bridge '{}'", self.name);
        Side::BOTH
            .map(|side| self.passage.stages(side, &self.console, format!("{here} ({} NIO)", side.name()), here.clone()))
    }
}

impl Place {
    fn take(&mut self) -> Option<Nio> {
        Some(Nio { identity: self.identity.clone(), ends: self.ends.take()? })
    }
}

impl Traffic {
    /// Of a NIO that `inward` starts at and `outward` ends at.
    #[must_use]
    pub fn of(inward: &Counters, outward: &Counters) -> Self {
        Self {
            received: WireSize { frames: inward.frames_in.get(), bytes: inward.bytes_in.get() },
            sent: WireSize { frames: outward.frames_out.get(), bytes: outward.bytes_out.get() },
        }
    }

    /// What came on top of `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let difference = |now: WireSize, before: WireSize| WireSize {
            frames: now.frames.wrapping_sub(before.frames),
            bytes: now.bytes.wrapping_sub(before.bytes),
        };
        Self { received: difference(self.received, before.received), sent: difference(self.sent, before.sent) }
    }
}
