//! Capture files on a disk that is full.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rubridge::capture::{Capture, Interface, LinkType};
use rubridge::output::{Console, Output};

use crate::lab::frames::Random;
use crate::lab::wait_until;

/// Runs `task` in a folder on a disk of `size`, which nobody else sees and which is gone with the thread.
fn on_a_small_disk(size: &str, task: impl FnOnce(&Path) + Send) {
    let run = || {
        assert!(nix::unistd::geteuid().is_root(), "these tests mount a disk of their own: run them as root");
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("mounts are ours alone");
        let folder = Path::new("/mnt");
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some(format!("size={size}").as_str()))
            .expect("a small disk");
        task(folder);
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("the task ends well"));
}

/// The number of frames in a file, which must be whole.
fn count(path: &Path) -> u64 {
    let mut file = pcap::Capture::from_file(path).expect("a capture file");
    (0..)
        .find(|_| match file.next_packet() {
            Ok(packet) => {
                assert_eq!(packet.header.caplen, packet.header.len);
                false
            }
            Err(pcap::Error::NoMorePackets) => true,
            Err(error) => panic!("the file is damaged: {error}"),
        })
        .expect("its end")
}

#[test]
fn on_a_full_disk_a_capture_ends_with_a_whole_frame() {
    for name in ["capture.pcap", "capture.pcapng"] {
        on_a_small_disk("256k", |folder| fill(folder, name));
    }
}

fn fill(folder: &Path, name: &str) {
    let mut random = Random(5);
    for round in 0..10 {
        let path = folder.join(name);
        let console = Console {
            stdout: Output::to(std::io::sink()).expect("a thread"),
            stderr: Output::to(std::io::sink()).expect("a thread"),
            debug: 0,
        };
        let from = Interface { name: "test:0".to_owned(), description: String::new() };
        let capture = Capture::start(&path, LinkType::ETHERNET, vec![from.clone()], &console).expect("it starts");
        let capture = Arc::new(capture);
        let recorder = capture.recorder(from);
        let mut recorded = 0;
        let mut record = |frames: usize| {
            for _ in 0..frames {
                let len = 60 + random.below(1455);
                recorder.record(&random.bytes(len), SystemTime::now());
                recorded += 1;
            }
        };
        record(100);
        wait_until("the disk is full", || {
            record(20 + round);
            capture.dropped() > 0
        });
        record(100);
        capture.stop();
        assert!(capture.dropped() >= 100, "it accepts frames without writing them");
        let written = count(&path);
        assert_eq!(written + capture.dropped(), recorded, "round {round}");
        assert!(fs::metadata(&path).expect("there").len() > 250_000, "the disk was used");
    }
}
