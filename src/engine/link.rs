//! Two NIOs with frames going both ways between them.

use std::io;
use std::sync::Arc;

use super::Engine;
use super::counters::SharedCounters;
use super::direction::Direction;
use super::inference::Inference;
use super::inlet::Inlet;
use super::outlet::Outlet;
use super::stages::Stages;
use super::worker::Running;
use crate::nio::{Egress, Ends, Ingress, Nio};
use crate::wire::offload::Features;

/// Two NIOs that frames go between; dropping it stops that and closes them.
#[derive(Debug)]
pub struct Link {
    /// From the first NIO to the second, then back.
    directions: [DirectionInfo; 2],
    running: [Running<Direction>; 2],
}

/// One direction, seen from outside.
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
    pub counters: SharedCounters,
}

/// What each direction has, from the first NIO to the second first.
#[derive(Debug, Default)]
pub struct Equipment {
    /// Where what goes through is counted, on top of what they show already.
    pub counters: [SharedCounters; 2],
    /// What frames pass.
    pub stages: [Arc<Stages>; 2],
}

/// A link that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("frames cannot be forwarded: {cause}")]
pub struct StartError {
    /// Why.
    #[source]
    pub cause: io::Error,
    /// The NIOs, unless they are lost with a worker.
    pub ends: Option<Box<[Ends; 2]>>,
}

type Halves = (Box<dyn Ingress>, Box<dyn Egress>);

impl Link {
    /// Starts forwarding between `first` and `second`, with a worker for each way where there are two
    /// (docs/decisions/0004-a-worker-each-way.md).
    ///
    /// # Errors
    /// Where a descriptor cannot be watched.
    pub fn start(engine: &Engine, first: Nio, second: Nio, equipment: Equipment) -> Result<Self, StartError> {
        let ((first_name, mut first), (second_name, mut second)) = (first.into_parts(), second.into_parts());
        first.ingress.resume();
        second.ingress.resume();
        let [there_counters, back_counters] = equipment.counters;
        let directions = [
            DirectionInfo::new(&first_name, &second_name, &*second.egress, there_counters),
            DirectionInfo::new(&second_name, &first_name, &*first.egress, back_counters),
        ];
        let [there_stages, back_stages] = equipment.stages;
        let [there_inference, back_inference] = Inference::of([
            (first.ingress.metadata(), directions[0].mtu),
            (second.ingress.metadata(), directions[1].mtu),
        ]);
        let there = directions[0].build((first.ingress, second.egress), there_inference, there_stages);
        let back = directions[1].build((second.ingress, first.egress), back_inference, back_stages);

        let there = match engine.run(there) {
            Ok(there) => there,
            Err((cause, there)) => {
                return Err(StartError {
                    cause,
                    ends: there.map(|there| assemble(there.into_ends(), back.into_ends())),
                });
            }
        };
        match engine.run_apart(&there, back) {
            Ok(back) => Ok(Self { directions, running: [there, back] }),
            Err((cause, back)) => {
                let ends = there.stop().zip(back).map(|(there, back)| assemble(there.into_ends(), back.into_ends()));
                Err(StartError { cause, ends })
            }
        }
    }

    /// Both directions, from the first NIO to the second first.
    #[must_use]
    pub fn directions(&self) -> &[DirectionInfo; 2] {
        &self.directions
    }

    /// Replaces the stages of both directions, under traffic: the next frame passes the new ones.
    pub fn set_stages(&self, stages: [Arc<Stages>; 2]) {
        for (direction, stages) in self.running.iter().zip(stages) {
            direction.call(move |direction| direction.outlet.set_stages(stages));
        }
    }

    /// Stops forwarding, and gives back the NIOs, first and second; `None` where a worker has died with them.
    #[must_use]
    pub fn stop(self) -> Option<Box<[Ends; 2]>> {
        let [there, back] = self.running;
        let (there, back) = (there.stop(), back.stop());
        Some(assemble(there?.into_ends(), back?.into_ends()))
    }
}

/// Puts the halves of the NIOs together again.
fn assemble(there: Halves, back: Halves) -> Box<[Ends; 2]> {
    let mut ends = [Ends { ingress: there.0, egress: back.1 }, Ends { ingress: back.0, egress: there.1 }];
    for end in &mut ends {
        end.ingress.pause();
    }
    Box::new(ends)
}

impl DirectionInfo {
    fn new(from: &str, to: &str, egress: &dyn Egress, counters: SharedCounters) -> Self {
        Self { from: from.to_owned(), to: to.to_owned(), features: egress.features(), mtu: egress.mtu(), counters }
    }

    fn build(&self, (ingress, egress): Halves, inference: Option<Inference>, stages: Arc<Stages>) -> Direction {
        let inlet = Inlet::new(self.from.clone(), ingress, inference);
        Direction::new(inlet, Outlet::new(self.to.clone(), egress, Arc::clone(&self.counters), stages))
    }
}
