//! Capture files, read by hand.

use std::path::Path;

const PAGE: usize = 4096;

/// What is in a capture file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PcapFile {
    pub(crate) link_type: u32,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl PcapFile {
    /// Reads a file, which may still be written to.
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("a capture file");
        assert_eq!(number(&bytes[..4]), 0xa1b2_c3d4, "{}", path.display());
        let mut frames = Vec::new();
        let mut at = 24;
        while at < bytes.len() {
            let record = bytes.get(at..at + 16).and_then(|header| {
                let [kept, len] = [&header[8..12], &header[12..]].map(length);
                assert_eq!(kept, len, "frames are kept whole");
                bytes.get(at + 16..at + 16 + len)
            });
            let Some(frame) = record else {
                // The kernel shows what it writes page by page (generic_perform_write in mm/filemap.c).
                assert_eq!(bytes.len() % PAGE, 0, "a record is not whole");
                break;
            };
            frames.push(frame.to_vec());
            at += 16 + frame.len();
        }
        Self { link_type: number(&bytes[20..24]), frames }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
}

fn length(bytes: &[u8]) -> usize {
    usize::try_from(number(bytes)).expect("a length")
}
