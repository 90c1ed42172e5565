//! The value of `--offload`.

use crate::nio::Mode;
use crate::wire::offload::Features;

/// Reads `auto`, `off`, or a list of what to leave out.
pub(super) fn parse(text: &str) -> Result<Mode, String> {
    let mut features = Features::ALL;
    match text {
        "auto" => return Ok(Mode::Offloads(features)),
        "off" => return Ok(Mode::Plain),
        _ => {}
    }
    for word in text.split(',') {
        let feature = match word.trim() {
            "no-csum" => &mut features.checksum,
            "no-tso4" => &mut features.tso4,
            "no-tso6" => &mut features.tso6,
            "no-ecn" => &mut features.ecn,
            "no-uso" => &mut features.uso,
            "no-merge" => &mut features.merge,
            "no-runs" => &mut features.runs,
            other => {
                return Err(format!(
                    "'{other}' is none of auto, off, no-csum, no-tso4, no-tso6, no-ecn, no-uso, no-merge, no-runs"
                ));
            }
        };
        *feature = false;
    }
    // A super-frame's checksums are unfinished, so without them nothing passes whole.
    Ok(Mode::Offloads(if features.checksum { features } else { Features { runs: features.runs, ..Features::NONE } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_left_out_by_name() {
        assert_eq!(parse("auto"), Ok(Mode::Offloads(Features::ALL)));
        assert_eq!(parse("off"), Ok(Mode::Plain));
        let some = Features { tso6: false, uso: false, ..Features::ALL };
        assert_eq!(parse("no-tso6, no-uso"), Ok(Mode::Offloads(some)));
        let finished = Features { runs: true, ..Features::NONE };
        assert_eq!(parse("no-csum"), Ok(Mode::Offloads(finished)));
        assert_eq!(parse("no-runs,no-csum"), Ok(Mode::Offloads(Features::NONE)));
        assert!(parse("tso4").unwrap_err().contains("no-tso4"));
        assert!(parse("").is_err());
    }
}
