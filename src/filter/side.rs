//! Where frames come from, for filters that are about one direction.

use super::FilterError;

/// What a last argument begins with that limits a filter to one direction.
const PREFIX: &str = "dir=";

/// One of the two ends that frames enter a bridge from.
///
/// At a port of an IOL bridge, the instance is the source, and the tunnel is the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first NIO of a bridge.
    Source,
    /// The second one.
    Destination,
}

impl Side {
    /// Both, the source first.
    pub const BOTH: [Self; 2] = [Self::Source, Self::Destination];

    /// Its name in commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }

    /// Takes a trailing `dir=<side>` off the arguments of a filter of any type: none of them takes an argument of its
    /// own that begins so, and no expression of `bpf` can.
    pub(super) fn split_off<'a, 'b>(arguments: &'a [&'b str]) -> Result<(&'a [&'b str], Option<Self>), FilterError> {
        let Some((last, others)) = arguments.split_last() else { return Ok((arguments, None)) };
        let Some(name) = last.strip_prefix(PREFIX) else { return Ok((arguments, None)) };
        match Self::BOTH.into_iter().find(|side| side.name() == name) {
            Some(side) => Ok((others, Some(side))),
            None => Err(FilterError::Side((*last).to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_argument_is_a_side() {
        for (arguments, rest, side) in [
            (&["5", "dir=source"][..], 1, Some(Side::Source)),
            (&["5", "dir=destination"], 1, Some(Side::Destination)),
            (&["dir=source"], 0, Some(Side::Source)),
            (&["dir=source", "5"], 2, None),
            (&["wlan dir tods"], 1, None),
            (&["5"], 1, None),
            (&[], 0, None),
        ] {
            assert_eq!(Side::split_off(arguments), Ok((&arguments[..rest], side)), "{arguments:?}");
        }
        assert_eq!(Side::split_off(&["dir=source", "dir=destination"]).unwrap().0, ["dir=source"]);
        for wrong in ["dir=", "dir=Source", "dir=both", "dir=source "] {
            let error = Side::split_off(&["5", wrong]).unwrap_err();
            assert_eq!(error, FilterError::Side(wrong.to_owned()));
        }
    }
}
