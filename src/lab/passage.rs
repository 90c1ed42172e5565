//! What frames pass at a bridge, or at a port of one: packet filters, and a capture.

use std::sync::Arc;

use crate::capture::Capture;
use crate::engine::stages::{Stages, Trace};
use crate::filter::{Side, Sided};
use crate::output::Console;

/// Packet filters, in order, and at most one capture. Whoever changes it has running links pass the new one.
#[derive(Debug, Default)]
pub(super) struct Passage {
    filters: Vec<Sided>,
    capture: Option<Arc<Capture>>,
}

impl Passage {
    pub(super) fn filters(&self) -> &[Sided] {
        &self.filters
    }

    /// Appends a packet filter; returns whether its name was free.
    pub(super) fn add_filter(&mut self, filter: Sided) -> bool {
        let free = self.filters.iter().all(|other| other.name() != filter.name());
        if free {
            self.filters.push(filter);
        }
        free
    }

    /// Removes a packet filter; returns whether there was one of that name.
    pub(super) fn remove_filter(&mut self, name: &str) -> bool {
        let before = self.filters.len();
        self.filters.retain(|filter| filter.name() != name);
        self.filters.len() < before
    }

    /// Removes all packet filters.
    pub(super) fn reset_filters(&mut self) {
        self.filters.clear();
    }

    /// The capture, if one is running.
    pub(super) fn capture(&self) -> Option<&Arc<Capture>> {
        self.capture.as_ref()
    }

    /// Records frames from now on. Not while another capture is running.
    pub(super) fn record_to(&mut self, capture: Capture) {
        self.capture = Some(Arc::new(capture));
    }

    /// Takes the capture out; it is to be stopped once no frames pass it any more.
    pub(super) fn take_capture(&mut self) -> Option<Arc<Capture>> {
        self.capture.take()
    }

    /// What frames from `side` pass, each of which is told in these words where `console` wants that.
    pub(super) fn stages(&self, side: Side, console: &Console, received: String, dropped: String) -> Arc<Stages> {
        let (output, level) = (console.stdout.clone(), console.debug);
        let trace = (level > 0).then(|| Trace { output, level, received, dropped });
        let filters = self.filters.iter().filter_map(|filter| filter.filter_for(side)).collect();
        Arc::new(Stages { filters, capture: self.capture.clone(), trace })
    }
}
