//! Capture files, as a reader finds them.

use std::path::Path;

/// Length of a file's header, and of a record's.
pub(crate) const HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

/// The frames that can be read so far, while the file is still being written; its header must be there.
pub(crate) fn frames_so_far(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("the file is there");
    let (_, mut rest) = bytes.split_at_checked(HEADER_LEN).expect("its header is there");
    let mut frames = Vec::new();
    while let Some(len) = rest.get(8..12).and_then(|field| field.first_chunk()) {
        let len = usize::try_from(u32::from_ne_bytes(*len)).expect("a length");
        let Some(frame) = rest.get(RECORD_HEADER_LEN..RECORD_HEADER_LEN + len) else { break };
        frames.push(frame.to_vec());
        rest = &rest[RECORD_HEADER_LEN + len..];
    }
    frames
}

/// The frames of a file that is complete, as libpcap reads them: each whole, and later than the one before.
pub(crate) fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let mut file = pcap::Capture::from_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut frames = Vec::new();
    loop {
        match file.next_packet() {
            Ok(packet) => {
                assert_eq!(packet.header.caplen, packet.header.len);
                frames.push(packet.data.to_vec());
            }
            Err(pcap::Error::NoMorePackets) => return frames,
            Err(error) => panic!("{} is damaged: {error}", path.display()),
        }
    }
}

/// The number of a complete file's link type.
pub(crate) fn link_type_of(path: &Path) -> u32 {
    let bytes = std::fs::read(path).expect("the file is there");
    u32::from_ne_bytes(*bytes[20..].first_chunk().expect("a whole header"))
}
