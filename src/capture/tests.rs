use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use super::format::Whole;
use super::*;
use crate::output::Output;

/// A folder of a test's own, gone with it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("rubridge-capture-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A FIFO, and an end of it to read from, which waits for what comes.
    fn fifo(&self) -> (PathBuf, File) {
        let path = self.path("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // The two ends of a FIFO wait for each other.
        let reader = std::thread::spawn({
            let path = path.clone();
            move || File::open(path).unwrap()
        });
        let writer = File::options().write(true).open(&path).unwrap();
        let reader = reader.join().unwrap();
        drop(writer);
        (path, reader)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A console, and what it was told.
fn console() -> (Console, Receiver<Vec<u8>>) {
    struct Lines(Sender<Vec<u8>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (sender, lines) = crossbeam_channel::unbounded();
    let stderr = Output::to(Lines(sender)).unwrap();
    (Console { stdout: Output::to(io::sink()).unwrap(), stderr, debug: 0 }, lines)
}

fn start(path: &Path) -> Capture {
    Capture::start(path, LinkType::ETHERNET, Vec::new(), &console().0).unwrap()
}

/// All frames of a file, as an independent reader sees them, which must find it whole.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut file = pcap::Capture::from_file(path).unwrap();
    let mut frames = Vec::new();
    loop {
        match file.next_packet() {
            Ok(packet) => frames.push(packet.data.to_vec()),
            Err(pcap::Error::NoMorePackets) => return frames,
            Err(error) => panic!("after {} frames: {error}", frames.len()),
        }
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_reader_gets_everything_back() {
    let folder = Folder::new();
    let path = folder.path("a capture.pcap");
    let link_type = LinkType::named("C_HDLC").unwrap();
    let capture = Capture::start(&path, link_type, Vec::new(), &console().0).unwrap();
    let sent: Vec<Vec<u8>> =
        [0usize, 1, 60, 1514, 9014, 65_535, 65_597].map(|len| vec![len.to_le_bytes()[0]; len]).into();
    // Close to the next second, then one a second.
    let stamps = || (1_700_000_000u32..).map(|seconds| UNIX_EPOCH + Duration::new(seconds.into(), 999_998_765));
    for (frame, stamp) in sent.iter().zip(stamps()) {
        capture.record(frame, stamp, 0);
    }
    capture.stop();
    let mut file = pcap::Capture::from_file(&path).unwrap();
    assert_eq!(file.get_datalink(), pcap::Linktype::C_HDLC);
    for (frame, second) in sent.iter().zip(1_700_000_000..) {
        let packet = file.next_packet().unwrap();
        assert_eq!(packet.data, &frame[..frame.len().min(65_535)]);
        assert_eq!(packet.header.len as usize, frame.len());
        assert_eq!((packet.header.ts.tv_sec, packet.header.ts.tv_usec), (second, 999_998));
    }
    assert_eq!(file.next_packet(), Err(pcap::Error::NoMorePackets));
    assert_eq!(capture.dropped(), 0);
}

#[test]
fn the_header_is_there_at_once_and_a_frame_soon() {
    let folder = Folder::new();
    let path = folder.path("-");
    fs::write(&path, [7; 1000]).unwrap();
    let capture = start(&path);
    let header = fs::read(&path).unwrap();
    assert_eq!(header.len(), 24);
    assert_eq!(frames(&path), Vec::<Vec<u8>>::new());
    for count in 1..=3 {
        capture.record(&[1; 60], SystemTime::now(), 0);
        wait_until("a reader sees the frame", || frames(&path).len() == count);
    }
}

#[test]
fn threads_record_together() {
    let folder = Folder::new();
    let path = folder.path("many");
    let capture = start(&path);
    let record = |thread: u8| {
        for number in 0..25_000u32 {
            let len = 60 + (number as usize * 37) % 1500;
            let frame = [&[thread][..], &number.to_ne_bytes(), &vec![thread; len]].concat();
            // As far as the disk keeps up: this is about records, not about limits.
            while capture.shared.waiting_bytes.load(Relaxed) > 4 << 20 {
                std::thread::yield_now();
            }
            capture.record(&frame, SystemTime::now(), 0);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || record(thread)))));
    capture.stop();
    let mut next = [0u32; 4];
    for frame in frames(&path) {
        let (thread, number) = (frame[0], &mut next[usize::from(frame[0])]);
        assert_eq!(frame[1..5], number.to_ne_bytes(), "in order");
        assert!(frame.len() == 65 + (*number as usize * 37) % 1500 && frame[5..].iter().all(|&byte| byte == thread));
        *number += 1;
    }
    assert_eq!(next, [25_000; 4]);
    assert_eq!(capture.dropped(), 0);
    assert_eq!(capture.shared.waiting_bytes.load(Relaxed), 0);
}

#[test]
fn stopping_ends_it_for_good() {
    let folder = Folder::new();
    let path = folder.path("ended");
    let capture = start(&path);
    capture.record(&[1; 60], SystemTime::now(), 0);
    capture.stop();
    assert_eq!(frames(&path).len(), 1);
    capture.record(&[2; 60], SystemTime::now(), 0);
    capture.stop();
    drop(capture);
    assert_eq!(frames(&path).len(), 1);
    let capture = start(&path);
    capture.record(&[3; 60], SystemTime::now(), 0);
    drop(capture);
    assert_eq!(frames(&path), [[3; 60]]);
}

#[test]
fn starting_fails_where_nothing_can_be_written() {
    let folder = Folder::new();
    let fifo = folder.path("nobody reads");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, error) in [
        (folder.path("missing/file"), libc::ENOENT),
        (folder.path(""), libc::EISDIR),
        ("/dev/full".into(), libc::ENOSPC),
        (fifo, libc::ENXIO),
    ] {
        let failed = Capture::start(&path, LinkType::ETHERNET, Vec::new(), &console().0).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(error), "{}", path.display());
    }
}

#[test]
fn a_fifo_gets_all_that_its_reader_takes() {
    let folder = Folder::new();
    let (path, mut reader) = folder.fifo();
    let capture = start(&path);
    let frame = [5; 1000];
    // Many times what a FIFO holds.
    let count = 1000;
    (0..count).for_each(|_| capture.record(&frame, SystemTime::now(), 0));
    let read = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    });
    wait_until("all is written", || capture.shared.waiting_bytes.load(Relaxed) == 0);
    let capture_format = capture.format;
    drop(capture);
    let bytes = read.join().unwrap();
    assert_eq!(bytes.len(), 24 + count * (16 + frame.len()));
    assert_eq!(capture_format.whole(&bytes[24..]), Whole { frames: count as u64, bytes: bytes.len() - 24 });
}

#[test]
fn a_reader_that_stands_still_costs_frames_and_a_second() {
    let folder = Folder::new();
    let (path, mut reader) = folder.fifo();
    let (console, lines) = console();
    let capture = Capture::start(&path, LinkType::ETHERNET, Vec::new(), &console).unwrap();
    // Twice what may wait, in bytes and in frames.
    let frame = vec![5; 32 << 10];
    (0..2048).for_each(|_| capture.record(&frame, SystemTime::now(), 0));
    let large = capture.dropped();
    assert!((900..=1025).contains(&large), "{large}");
    assert!(capture.shared.waiting_bytes.load(Relaxed) <= MAX_WAITING_BYTES);
    capture.stop();
    let told = String::from_utf8(lines.recv().unwrap()).unwrap();
    assert!(told.contains("fifo': not written to its end yet"), "{told}");
    let told = String::from_utf8(lines.recv().unwrap()).unwrap();
    assert!(told.ends_with("frames are missing\n"), "{told}");
    drop(capture);
    // The thread ends, and with it the file.
    reader.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_reader_that_goes_away_costs_frames_only() {
    let folder = Folder::new();
    let (path, reader) = folder.fifo();
    let (console, lines) = console();
    let capture = Capture::start(&path, LinkType::ETHERNET, Vec::new(), &console).unwrap();
    drop(reader);
    capture.record(&[1; 60], SystemTime::now(), 0);
    wait_until("the loss is noticed", || capture.dropped() == 1);
    capture.record(&[1; 60], SystemTime::now(), 0);
    capture.stop();
    assert_eq!(capture.dropped(), 2);
    let told = String::from_utf8(lines.recv().unwrap()).unwrap();
    assert!(told.ends_with("fifo': 2 frames are missing\n"), "{told}");
}

#[test]
fn so_many_small_frames_wait_and_no_more() {
    let folder = Folder::new();
    let (path, _reader) = folder.fifo();
    let capture = start(&path);
    (0..2 * MAX_WAITING).for_each(|_| capture.record(&[1; 60], SystemTime::now(), 0));
    let waiting = 2 * MAX_WAITING - usize::try_from(capture.dropped()).unwrap();
    // Besides, the FIFO and a batch hold some.
    assert!((MAX_WAITING..MAX_WAITING + 6000).contains(&waiting), "{waiting}");
}
