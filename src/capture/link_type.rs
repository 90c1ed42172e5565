//! What kind of frames a capture file holds.

use pcap::Linktype;

/// A link type, by the number that stands for it in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkType(u16);

/// libpcap knows no link type of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown link type {0}, assuming Ethernet.")]
pub struct UnknownLinkType(pub String);

/// Ethernet.
impl Default for LinkType {
    fn default() -> Self {
        Self::ETHERNET
    }
}

impl LinkType {
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);

    /// The link type that libpcap knows under `name`, in capitals or not, with or without `DLT_`.
    ///
    /// # Errors
    /// Where there is none. The capture is then of [`LinkType::ETHERNET`], and the error is to be told.
    pub fn named(name: &str) -> Result<Self, UnknownLinkType> {
        const PREFIX: &str = "DLT_";
        let has_prefix = name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        let bare = if has_prefix { &name[PREFIX.len()..] } else { name };
        let known = Linktype::from_name(bare).ok().and_then(|known| u16::try_from(known.0).ok());
        known.map(|number| Self(in_file(number))).ok_or_else(|| UnknownLinkType(name.to_owned()))
    }

    /// The number that stands for it in files.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

/// The number in files for one of libpcap's. They differ where systems disagree about libpcap's (pcap/dlt.h); from
/// 104 on they are the same.
fn in_file(number: u16) -> u16 {
    match number {
        // ATM_RFC1483, RAW, SLIP_BSDOS, PPP_BSDOS, ATM_CLIP.
        11 => 100,
        12 => 101,
        15 => 102,
        16 => 103,
        19 => 106,
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::tests::Folder;

    #[test]
    fn what_iou_asks_for_has_its_numbers() {
        let numbers = [("EN10MB", 1), ("FRELAY", 107), ("C_HDLC", 104), ("PPP_SERIAL", 50), ("ATM_RFC1483", 100)];
        for (name, number) in numbers {
            for name in [name.to_owned(), name.to_lowercase(), format!("DLT_{name}"), format!("dlt_{name}")] {
                assert_eq!(LinkType::named(&name), Ok(LinkType(number)), "{name}");
            }
        }
    }

    #[test]
    fn unknown_names_are_told() {
        for name in ["ETHERNET", "", "DLT_", "DLT_DLT_EN10MB", "EN10MB ", "EN10MB\0", "DLTé", "1"] {
            let told = LinkType::named(name).unwrap_err().to_string();
            assert_eq!(told, format!("unknown link type {name}, assuming Ethernet."));
        }
    }

    #[test]
    fn every_number_is_the_one_that_libpcap_writes() {
        let folder = Folder::new();
        let path = folder.path("numbers");
        let mut compared = 0;
        for known in (0..=400).map(Linktype) {
            let Ok(name) = known.get_name() else { continue };
            // Some have a name but are not for files.
            let Ok(mut savefile) = pcap::Capture::dead(known).unwrap().savefile(&path) else { continue };
            savefile.flush().unwrap();
            let written = std::fs::read(&path).unwrap();
            let number = u16::try_from(u32::from_ne_bytes(written[20..24].try_into().unwrap())).unwrap();
            assert_eq!(LinkType::named(&name), Ok(LinkType(number)), "{name}");
            compared += 1;
        }
        assert!(compared > 100, "{compared}");
    }
}
