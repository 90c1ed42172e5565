//! The two formats of capture files, each a header and then frames, one after the other.

use std::path::Path;
use std::time::SystemTime;

use super::field::SNAPLEN;
use super::{Interface, LinkType, classic, pcapng};

/// What a file's name ends in that is to be a pcapng file, in capitals or not.
const PCAPNG_SUFFIX: &[u8] = b".pcapng";

/// The format of a file, and the kind of its frames.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    /// Which every reader knows. It says nothing of interfaces.
    Classic(LinkType),
    /// Its frames have an interface and a direction.
    Pcapng(LinkType),
}

/// The frames in some bytes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) frames: u64,
    /// Up to the end of the last one.
    pub(super) bytes: usize,
}

impl Format {
    /// The one that a file's name asks for.
    pub(super) fn of(path: &Path, link_type: LinkType) -> Self {
        let name = path.as_os_str().as_encoded_bytes().to_ascii_lowercase();
        if name.ends_with(PCAPNG_SUFFIX) { Self::Pcapng(link_type) } else { Self::Classic(link_type) }
    }

    /// What a file begins with.
    pub(super) fn header(self) -> Vec<u8> {
        match self {
            Self::Classic(link_type) => classic::header(link_type),
            Self::Pcapng(_) => pcapng::header(),
        }
    }

    /// What comes before the first frame of one of these interfaces.
    pub(super) fn interfaces(self, interfaces: &[Interface]) -> Vec<u8> {
        match self {
            Self::Classic(_) => Vec::new(),
            Self::Pcapng(link_type) => interfaces.iter().flat_map(|one| pcapng::interface(one, link_type)).collect(),
        }
    }

    /// Length of the record of `frame`.
    pub(super) fn record_len(self, frame: &[u8]) -> usize {
        match self {
            Self::Classic(_) => classic::record_len(kept(frame)),
            Self::Pcapng(_) => pcapng::record_len(kept(frame)),
        }
    }

    /// Appends the record of `frame`, which entered from the interface of that number.
    pub(super) fn put_record(self, to: &mut Vec<u8>, frame: &[u8], arrival: SystemTime, interface: u32) {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        match self {
            Self::Classic(_) => classic::put_record(to, kept(frame), len, arrival),
            Self::Pcapng(_) => pcapng::put_record(to, kept(frame), len, arrival, interface),
        }
    }

    /// How much of `bytes`, which begin with a whole record or block and may end anywhere, is whole.
    pub(super) fn whole(self, bytes: &[u8]) -> Whole {
        let next = match self {
            Self::Classic(_) => classic::next,
            Self::Pcapng(_) => pcapng::next,
        };
        let mut whole = Whole::default();
        while let Some((is_frame, len)) = next(&bytes[whole.bytes..]) {
            let end = whole.bytes.saturating_add(len);
            if end > bytes.len() {
                break;
            }
            whole = Whole { frames: whole.frames + u64::from(is_frame), bytes: end };
        }
        whole
    }
}

fn kept(frame: &[u8]) -> &[u8] {
    &frame[..frame.len().min(SNAPLEN.into())]
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    const FORMATS: [Format; 2] = [Format::Classic(LinkType::ETHERNET), Format::Pcapng(LinkType::ETHERNET)];

    #[test]
    fn the_end_of_the_name_decides() {
        let is_pcapng = |name: &str| matches!(Format::of(Path::new(name), LinkType::ETHERNET), Format::Pcapng(_));
        assert!(["a.pcapng", "/tmp/.pcapng", "a.b.PcapNG"].into_iter().all(is_pcapng));
        assert!(!["a.pcap", "pcapng", "a.pcapng/b", "a.pcapng.", "-", ""].into_iter().any(is_pcapng));
    }

    proptest! {
        #[test]
        fn what_is_whole_ends_with_the_last_record_that_fits(
            lens in proptest::collection::vec(0usize..200, 0..20),
            cut in 0usize..4000,
        ) {
            for format in FORMATS {
                let mut records = Vec::new();
                let mut ends = vec![0];
                for len in &lens {
                    let frame = vec![0xff; *len];
                    put(format, &mut records, &frame);
                    ends.push(records.len());
                }
                let cut = cut.min(records.len());
                let count = ends.iter().rposition(|&end| end <= cut).unwrap();
                let expected = Whole { frames: count as u64, bytes: ends[count] };
                prop_assert_eq!(format.whole(&records[..cut]), expected);
            }
        }
    }

    fn put(format: Format, records: &mut Vec<u8>, frame: &[u8]) {
        let before = records.len();
        format.put_record(records, frame, UNIX_EPOCH, 1);
        assert_eq!(records.len() - before, format.record_len(frame));
    }

    #[test]
    fn interfaces_are_whole_and_no_frames() {
        for format in FORMATS {
            let interface = Interface { name: "tap:tap0".to_owned(), description: "source NIO".to_owned() };
            let mut bytes = format.interfaces(&[interface.clone(), interface]);
            let whole = Whole { frames: 0, bytes: bytes.len() };
            assert_eq!(format.whole(&bytes), whole);
            put(format, &mut bytes, &[7; 65_597]);
            assert_eq!(format.whole(&bytes), Whole { frames: 1, bytes: bytes.len() });
            bytes.pop();
            assert_eq!(format.whole(&bytes), whole);
        }
    }
}
