//! The forwarding engine: workers, each owning whole directions of bridges.
#![forbid(unsafe_code)]

pub mod counters;
mod direction;
mod faults;
mod linger;
pub mod plan;
mod worker;

use std::io;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::nio::Nio;
use crate::wire::offload::Features;
use counters::Counters;
use direction::Direction;
use worker::Worker;

/// A running bridge between two NIOs; dropping it stops it and closes them.
#[derive(Debug)]
pub struct Bridge {
    /// From the first NIO to the second, then back.
    directions: [DirectionInfo; 2],
    // The workers own what forwards.
    workers: [Worker; 2],
}

/// One direction of a bridge, seen from outside.
#[derive(Debug, Clone)]
pub struct DirectionInfo {
    /// The NIO that is read from.
    pub from: String,
    /// The NIO that is written to.
    pub to: String,
    /// What passes as it is; the rest is done in software.
    pub features: Features,
    /// The largest packet that the egress takes, in bytes; `None` where it takes any.
    pub mtu: Option<u32>,
    /// What went through.
    pub counters: Arc<CachePadded<Counters>>,
}

impl Bridge {
    /// Starts forwarding between `first` and `second`, with a worker for each way
    /// (docs/decisions/0004-a-worker-each-way.md).
    ///
    /// # Errors
    /// Where a thread cannot be started or a descriptor cannot be watched.
    pub fn start(mut first: Nio, mut second: Nio) -> io::Result<Self> {
        first.ingress.set_offloads(second.egress.features());
        second.ingress.set_offloads(first.egress.features());
        let workers = [Worker::start(0)?, Worker::start(1)?];
        let (there, back) = (DirectionInfo::new(&first, &second), DirectionInfo::new(&second, &first));
        let (first_name, second_name) = (first.name, second.name);
        let halves = [
            ((first_name.clone(), first.ingress), (second_name.clone(), second.egress)),
            ((second_name, second.ingress), (first_name, first.egress)),
        ];
        for (((ingress, egress), info), worker) in halves.into_iter().zip([&there, &back]).zip(&workers) {
            worker.add(Direction::new(ingress, egress, Arc::clone(&info.counters)))?;
        }
        Ok(Self { directions: [there, back], workers })
    }

    /// Both directions, from the first NIO to the second first.
    #[must_use]
    pub fn directions(&self) -> &[DirectionInfo; 2] {
        &self.directions
    }

    /// Stops forwarding, closes the NIOs, and returns both directions with their final counts.
    #[must_use]
    pub fn stop(self) -> [DirectionInfo; 2] {
        drop(self.workers);
        self.directions
    }
}

impl DirectionInfo {
    fn new(from: &Nio, to: &Nio) -> Self {
        Self {
            from: from.name.clone(),
            to: to.name.clone(),
            features: to.egress.features(),
            mtu: to.egress.mtu(),
            counters: Arc::default(),
        }
    }
}
