//! Packet filters: what an imperfect line does to single frames, as they are on the wire.
//!
//! The frames of both directions of a bridge pass the same filters, on two threads, so a filter judges
//! through a shared reference and keeps what it counts in atomics.
#![forbid(unsafe_code)]

mod bpf;
mod corrupt;
mod delay;
mod frequency_drop;
mod packet_loss;
mod random;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::number::whole;

pub use bpf::Bpf;
pub use corrupt::Corrupt;
pub use delay::Delay;
pub use frequency_drop::FrequencyDrop;
pub use packet_loss::PacketLoss;
pub use random::Random;

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on to the filters behind.
    Pass,
    /// It is lost.
    Drop,
    /// Hold it for this long before the filters behind. Zero is possible, and no [`Verdict::Pass`]: the frame
    /// must still not overtake those that are held.
    Hold(Duration),
}

/// A packet filter.
pub trait Filter: Send + Sync + Debug {
    /// Judges one frame, from its link-layer header on, of any length. It may change bytes, but no filter
    /// changes a frame's length.
    fn judge(&self, frame: &mut [u8]) -> Verdict;
}

/// A filter under the name by which it can be removed.
#[derive(Debug, Clone)]
pub struct Named {
    /// The name, unique on its bridge or port.
    pub name: String,
    /// The filter, with what it has counted so far.
    pub filter: Arc<dyn Filter>,
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

/// Makes a filter of the type `kind`.
///
/// | type | arguments |
/// | --- | --- |
/// | `frequency_drop` | `n`: see [`FrequencyDrop`] |
/// | `packet_loss` | percent, 0 to 100: see [`PacketLoss`] |
/// | `delay` | latency in ms, 1 or more, and perhaps jitter in ms, 0 or more: see [`Delay`] |
/// | `corrupt` | percent, 0 to 100: see [`Corrupt`] |
/// | `bpf` | an expression, and perhaps a link type: see [`Bpf`] |
///
/// It may take up to two seconds where a `bpf` expression is long or names hosts that must be looked up.
///
/// # Errors
/// Where there is no such type, or it does not take these arguments.
pub fn parse(kind: &str, arguments: &[&str]) -> Result<Arc<dyn Filter>, FilterError> {
    let wrong = |usage| FilterError::Arguments { usage, given: arguments.join(" ") };
    Ok(match kind {
        "frequency_drop" => Arc::new(FrequencyDrop::parse(arguments).ok_or_else(|| wrong(FrequencyDrop::USAGE))?),
        "packet_loss" => Arc::new(PacketLoss::parse(arguments).ok_or_else(|| wrong(PacketLoss::USAGE))?),
        "delay" => Arc::new(Delay::parse(arguments).ok_or_else(|| wrong(Delay::USAGE))?),
        "corrupt" => Arc::new(Corrupt::parse(arguments).ok_or_else(|| wrong(Corrupt::USAGE))?),
        "bpf" => match *arguments {
            [expression] => Arc::new(Bpf::compile(expression, None)?),
            [expression, link_type] => Arc::new(Bpf::compile(expression, Some(link_type))?),
            _ => return Err(wrong(Bpf::USAGE)),
        },
        _ => return Err(FilterError::UnknownType(kind.to_owned())),
    })
}

fn percent(text: &str) -> Option<u32> {
    whole(text).filter(|&percent| percent <= 100)
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

    proptest! {
        #[test]
        fn no_filter_minds_any_frame(mut frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            let filters: [(&str, &[&str]); 5] = [
                ("frequency_drop", &["2"]),
                ("packet_loss", &["50"]),
                ("delay", &["10", "20"]),
                ("corrupt", &["100"]),
                ("bpf", &["tcp port 80 or (vlan and icmp6)"]),
            ];
            for (kind, arguments) in filters {
                parse(kind, arguments).unwrap().judge(&mut frame);
            }
        }
    }
}
