//! Capture files, read by hand.

use std::path::Path;

/// What is in a capture file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PcapFile {
    pub(crate) link_type: u32,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl PcapFile {
    /// Reads a file, which may still grow but has only whole records.
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("a capture file");
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(number(0), 0xa1b2_c3d4, "{}", path.display());
        let mut frames = Vec::new();
        let mut at = 24;
        while at < bytes.len() {
            let [kept, len] = [8, 12].map(|field| usize::try_from(number(at + field)).expect("a length"));
            assert_eq!(kept, len, "frames are kept whole");
            frames.push(bytes[at + 16..at + 16 + len].to_vec());
            at += 16 + len;
        }
        Self { link_type: number(20), frames }
    }
}
