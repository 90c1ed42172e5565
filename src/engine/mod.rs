//! The forwarding engine: workers, each owning whole directions of bridges.
#![forbid(unsafe_code)]

pub mod counters;
mod direction;
mod faults;
pub mod hub;
mod inference;
mod inlet;
mod linger;
pub mod link;
mod outlet;
pub mod plan;
mod run;
pub mod stages;
mod worker;

use std::io;
use std::sync::Arc;

pub use link::{DirectionInfo, Link};

use counters::SharedCounters;
use direction::Direction;
use inference::Inference;
use inlet::Inlet;
use outlet::Outlet;
use worker::{Running, Task, Turn, Worker};

use crate::nio::{Egress, Ingress, Metadata};

/// Forwards what an ingress holds on the caller's thread, and returns what was counted: for tests and measurements that
/// want the whole way of a frame without a worker. An egress that blocks for ever blocks the caller.
#[must_use]
pub fn forward_all(ingress: Box<dyn Ingress>, egress: Box<dyn Egress>) -> SharedCounters {
    let counters = SharedCounters::default();
    let [inference, _] = Inference::of([(ingress.metadata(), egress.mtu()), (Metadata::Told, None)]);
    let outlet = Outlet::new(String::new(), egress, Arc::clone(&counters), Arc::default());
    let mut direction = Direction::new(Inlet::new(String::new(), ingress, inference), outlet);
    while direction.turn() != Turn::Drained {}
    counters
}

/// The workers that run everything; they end with the last that they run.
#[derive(Debug)]
pub struct Engine {
    workers: Vec<Arc<Worker>>,
}

impl Engine {
    /// Two, since one of a bridge's directions must not hold up the other; more where there are CPUs for them.
    const WORKERS: (usize, usize) = (2, 4);

    /// Starts the workers.
    ///
    /// # Errors
    /// Where threads cannot be started.
    pub fn start() -> io::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (least, most) = Self::WORKERS;
        let workers = (0..cpus.clamp(least, most)).map(|number| Worker::start(number).map(Arc::new));
        Ok(Self { workers: workers.collect::<io::Result<_>>()? })
    }

    /// Runs a task on the worker that has the fewest.
    fn run<T: Task>(&self, task: T) -> Result<Running<T>, (io::Error, Option<T>)> {
        self.run_on(|_| true, task)
    }

    /// The same, but not where `other` runs, unless there is nowhere else.
    fn run_apart<T: Task, O>(&self, other: &Running<O>, task: T) -> Result<Running<T>, (io::Error, Option<T>)> {
        let is_apart = |worker: &Arc<Worker>| !Arc::ptr_eq(worker, other.worker());
        let alone = !self.workers.iter().any(|worker| worker.is_alive() && is_apart(worker));
        self.run_on(|worker| alone || is_apart(worker), task)
    }

    fn run_on<T: Task>(
        &self,
        suits: impl Fn(&Arc<Worker>) -> bool,
        task: T,
    ) -> Result<Running<T>, (io::Error, Option<T>)> {
        let workers = self.workers.iter().filter(|worker| worker.is_alive() && suits(worker));
        // Each running task holds on to its worker.
        match workers.min_by_key(|worker| Arc::strong_count(worker)) {
            Some(worker) => worker.run(task),
            None => Err((io::ErrorKind::NotConnected.into(), Some(task))),
        }
    }
}
