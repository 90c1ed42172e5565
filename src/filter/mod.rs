//! Packet filters: what an imperfect line does to single frames, as they are on the wire.
//!
//! The frames of both directions of a bridge pass the same filters, on two threads, so a filter judges
//! through a shared reference and keeps what it counts in atomics.
#![forbid(unsafe_code)]

mod bpf;
mod chance;
mod corrupt;
mod delay;
mod duplicate;
mod frequency_drop;
mod packet_loss;
mod random;
mod rate;
mod reorder;
mod side;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use bpf::Bpf;
pub use chance::Chance;
pub use corrupt::Corrupt;
pub use delay::Delay;
pub use duplicate::Duplicate;
pub use frequency_drop::FrequencyDrop;
pub use packet_loss::PacketLoss;
pub use random::Random;
pub use rate::Rate;
pub use reorder::Reorder;
pub use side::Side;

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on to the filters behind.
    Pass,
    /// It is lost.
    Drop,
    /// It goes on, and a copy of it right behind it.
    Twice,
    /// Hold it for this long before the filters behind. Zero is possible, and no [`Verdict::Pass`]: the frame
    /// must still not overtake those that are held.
    Hold(Duration),
}

/// A packet filter.
pub trait Filter: Send + Sync + Debug {
    /// Judges one frame, from its link-layer header on, of any length. It may change bytes, but no filter
    /// changes a frame's length.
    fn judge(&self, frame: &mut [u8]) -> Verdict;

    /// The frames that it had held back were dropped, as when a bridge stops.
    fn dropped_all(&self) {}
}

/// A filter that frames pass in one direction.
#[derive(Debug, Clone)]
pub struct Named {
    /// Its name, unique on its bridge or port.
    pub name: String,
    /// The filter, with what it has counted so far.
    pub filter: Arc<dyn Filter>,
}

/// A filter for one direction or for both, under the name by which it can be removed.
#[derive(Debug, Clone)]
pub struct Sided {
    name: String,
    /// What frames from each side pass, as in [`Side::BOTH`].
    filters: [Option<Arc<dyn Filter>>; 2],
}

impl Sided {
    /// Makes a filter of the type `kind`. Behind what it takes there may be `dir=source` or `dir=destination`: then only
    /// frames from that side pass it.
    ///
    /// | type | arguments |
    /// | --- | --- |
    /// | `frequency_drop` | `n`: see [`FrequencyDrop`] |
    /// | `packet_loss` | percent, 0 to 100: see [`PacketLoss`] |
    /// | `delay` | latency in ms, 1 or more, and perhaps jitter in ms, 0 or more: see [`Delay`] |
    /// | `corrupt` | percent, 0 to 100: see [`Corrupt`] |
    /// | `bpf` | an expression, and perhaps a link type: see [`Bpf`] |
    /// | `duplicate` | percent, 0 to 100: see [`Duplicate`] |
    /// | `reorder` | percent, 0 to 100, and ms, 1 or more: see [`Reorder`] |
    /// | `rate` | kbit/s, 1 or more, and perhaps the queue in kB, 1 to 32,768: see [`Rate`] |
    ///
    /// It may take up to two seconds where a `bpf` expression is long or names hosts that must be looked up.
    ///
    /// # Errors
    /// Where there is no such type, or it does not take these arguments, or there is no such side.
    pub fn parse(name: &str, kind: &str, arguments: &[&str]) -> Result<Self, FilterError> {
        let (arguments, side) = Side::split_off(arguments)?;
        let [here, there] = parse(kind, arguments)?;
        let filters = match side {
            None => [Some(here), Some(there)],
            Some(Side::Source) => [Some(here), None],
            Some(Side::Destination) => [None, Some(there)],
        };
        Ok(Self { name: name.to_owned(), filters })
    }

    /// Its name, unique on its bridge or port.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What frames from `side` pass, if anything.
    #[must_use]
    pub fn filter_for(&self, side: Side) -> Option<Named> {
        let filter = self.filters[side as usize].clone()?;
        Some(Named { name: self.name.clone(), filter })
    }
}

/// Why there is no filter. Displayed, it is the line for stderr; gns3-server knows some of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no such type.
    #[error("Filter type '{0}' doesn't exist")]
    UnknownType(String),
    /// Too few arguments, too many, or such that make no sense.
    #[error("Filter type {usage}; not '{given}'")]
    Arguments {
        /// The type and what it takes.
        usage: &'static str,
        /// What there was instead.
        given: String,
    },
    /// There is no such side of a bridge.
    #[error("A filter's direction is dir=source or dir=destination; not '{0}'")]
    Side(String),
    /// libpcap knows no link type of this name.
    #[error("Unknown link type {0}")]
    UnknownLinkType(String),
    /// The expression of a `bpf` filter is of no use.
    #[error("Cannot compile filter '{expression}': {message}")]
    Expression {
        /// The expression.
        expression: String,
        /// What libpcap says of it.
        message: String,
    },
}

/// The filter for frames from each side: the same one, which counts both, or one for each where a line has two.
fn parse(kind: &str, arguments: &[&str]) -> Result<[Arc<dyn Filter>; 2], FilterError> {
    let wrong = |usage| FilterError::Arguments { usage, given: arguments.join(" ") };
    let shared: Arc<dyn Filter> = match kind {
        "frequency_drop" => Arc::new(FrequencyDrop::parse(arguments).ok_or_else(|| wrong(FrequencyDrop::USAGE))?),
        "packet_loss" => Arc::new(PacketLoss::parse(arguments).ok_or_else(|| wrong(PacketLoss::USAGE))?),
        "delay" => Arc::new(Delay::parse(arguments).ok_or_else(|| wrong(Delay::USAGE))?),
        "corrupt" => Arc::new(Corrupt::parse(arguments).ok_or_else(|| wrong(Corrupt::USAGE))?),
        "bpf" => match *arguments {
            [expression] => Arc::new(Bpf::compile(expression, None)?),
            [expression, link_type] => Arc::new(Bpf::compile(expression, Some(link_type))?),
            _ => return Err(wrong(Bpf::USAGE)),
        },
        "duplicate" => Arc::new(Duplicate::parse(arguments).ok_or_else(|| wrong(Duplicate::USAGE))?),
        "reorder" => Arc::new(Reorder::parse(arguments).ok_or_else(|| wrong(Reorder::USAGE))?),
        "rate" => {
            let line = || Rate::parse(arguments).ok_or_else(|| wrong(Rate::USAGE));
            return Ok([Arc::new(line()?), Arc::new(line()?)]);
        }
        _ => return Err(FilterError::UnknownType(kind.to_owned())),
    };
    Ok([Arc::clone(&shared), shared])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arguments_are_accepted_in_their_ranges_only() {
        let right: &[(&str, &[&str])] = &[
            ("frequency_drop", &["-1"]),
            ("frequency_drop", &["-2147483648"]),
            ("frequency_drop", &["2147483647"]),
            ("packet_loss", &["0"]),
            ("packet_loss", &["100"]),
            ("corrupt", &["0"]),
            ("corrupt", &["100"]),
            ("delay", &["1"]),
            ("delay", &["1", "0"]),
            ("delay", &["2147483647", "2147483647"]),
            ("bpf", &["icmp"]),
            ("bpf", &["icmp", "en10mb"]),
            ("duplicate", &["0"]),
            ("duplicate", &["100"]),
            ("reorder", &["0", "1"]),
            ("reorder", &["100", "2147483647"]),
            ("rate", &["1"]),
            ("rate", &["4294967295", "32768"]),
        ];
        for (kind, arguments) in right {
            assert!(parse(kind, arguments).is_ok(), "{kind} {arguments:?}");
        }
        let wrong: &[(&str, &[&str])] = &[
            ("frequency_drop", &[]),
            ("frequency_drop", &["1", "2"]),
            ("frequency_drop", &["often"]),
            ("packet_loss", &[]),
            ("packet_loss", &["-1"]),
            ("packet_loss", &["101"]),
            ("packet_loss", &["5%"]),
            ("packet_loss", &["5", "0"]),
            ("corrupt", &[]),
            ("corrupt", &["-1"]),
            ("corrupt", &["101"]),
            ("corrupt", &["1", "1"]),
            ("delay", &[]),
            ("delay", &["0"]),
            ("delay", &["-1"]),
            ("delay", &["1", "-1"]),
            ("delay", &["1", "x"]),
            ("delay", &["1", "1", "1"]),
            ("bpf", &[]),
            ("bpf", &["icmp", "EN10MB", "more"]),
            ("duplicate", &[]),
            ("duplicate", &["101"]),
            ("duplicate", &["1", "1"]),
            ("reorder", &["10"]),
            ("reorder", &["10", "0"]),
            ("reorder", &["101", "10"]),
            ("reorder", &["10", "10", "10"]),
            ("rate", &[]),
            ("rate", &["0"]),
            ("rate", &["1.5"]),
            ("rate", &["1000", "0"]),
            ("rate", &["1000", "32769"]),
            ("rate", &["1000", "1", "1"]),
        ];
        for (kind, arguments) in wrong {
            let error = parse(kind, arguments).expect_err("refused");
            assert!(matches!(error, FilterError::Arguments { .. }), "{kind} {arguments:?}: {error}");
        }
    }

    #[test]
    fn errors_read_as_they_are_expected_to() {
        let error = |kind, arguments: &[&str]| parse(kind, arguments).expect_err("refused").to_string();
        assert_eq!(error("unknown", &["1"]), "Filter type 'unknown' doesn't exist");
        assert_eq!(error("Delay", &["1"]), "Filter type 'Delay' doesn't exist");
        assert_eq!(
            error("delay", &["0", "5"]),
            "Filter type 'delay' takes <latency> [<jitter>] in whole milliseconds, at least 1 and 0; not '0 5'"
        );
        assert_eq!(error("bpf", &["icmp", "DLT_EN10MB"]), "Unknown link type DLT_EN10MB");
    }

    #[test]
    fn every_type_may_be_for_one_side() {
        let sides = |arguments: &[&str], kind| {
            let sided = Sided::parse("f", kind, arguments).unwrap();
            Side::BOTH.map(|side| sided.filter_for(side).is_some())
        };
        assert_eq!(sides(&["50", "10", "dir=source"], "delay"), [true, false]);
        assert_eq!(sides(&["50", "dir=destination"], "packet_loss"), [false, true]);
        assert_eq!(sides(&["icmp", "dir=source"], "bpf"), [true, false]);
        assert_eq!(sides(&["icmp", "EN10MB", "dir=destination"], "bpf"), [false, true]);
        assert_eq!(sides(&["3"], "frequency_drop"), [true, true]);
        for (kind, arguments) in [("bpf", &["dir=source"][..]), ("packet_loss", &["dir=source", "5"]), ("bpf", &[])] {
            let error = Sided::parse("f", kind, arguments).expect_err("refused");
            assert!(matches!(error, FilterError::Arguments { .. }), "{kind} {arguments:?}: {error}");
        }
        let error = Sided::parse("f", "packet_loss", &["5", "dir=left"]).expect_err("refused").to_string();
        assert_eq!(error, "A filter's direction is dir=source or dir=destination; not 'dir=left'");
    }

    proptest! {
        #[test]
        fn no_filter_minds_any_frame(mut frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            let filters: [(&str, &[&str]); 8] = [
                ("frequency_drop", &["2"]),
                ("packet_loss", &["50"]),
                ("delay", &["10", "20"]),
                ("corrupt", &["100"]),
                ("bpf", &["tcp port 80 or (vlan and icmp6)"]),
                ("duplicate", &["50"]),
                ("reorder", &["50", "1"]),
                ("rate", &["1"]),
            ];
            for (kind, arguments) in filters {
                for filter in parse(kind, arguments).unwrap() {
                    filter.judge(&mut frame);
                }
            }
        }
    }
}
