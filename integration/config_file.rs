//! Bridges of an INI file.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::lab::capture_file::{frames_so_far, link_type_of};
use crate::lab::{
    Daemon, EndsThreads, Folder, Hypervisor, Namespace, Tunnel, WireTap, has_interface, is_free, wait_until,
};

/// How long to wait for a frame before it is sent anew.
const MOMENT: Duration = Duration::from_millis(50);

/// A place where frames go in and come out.
trait End {
    fn send(&mut self, frame: &[u8]);
    fn next(&mut self) -> Option<Vec<u8>>;
}

impl End for Tunnel {
    fn send(&mut self, frame: &[u8]) {
        Tunnel::send(self, frame);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.receive_within(MOMENT)
    }
}

impl End for WireTap {
    fn send(&mut self, frame: &[u8]) {
        self.send_plain(frame);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        WireTap::next(self, MOMENT).map(|heard| heard.frame)
    }
}

impl End for UnixDatagram {
    fn send(&mut self, frame: &[u8]) {
        // The other socket may not be there yet.
        let path = self.local_addr().expect("its address").as_pathname().expect("its path").with_file_name("ours");
        let _ = self.send_to(frame, path);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.set_read_timeout(Some(MOMENT)).expect("a timeout");
        let mut buffer = [0; 2000];
        let len = self.recv(&mut buffer).ok()?;
        Some(buffer[..len].to_vec())
    }
}

/// Sends a frame until it comes out: the bridge may still be about to start.
fn check_one_way(from: &mut dyn End, to: &mut dyn End, number: u16) {
    let mark = WireTap::mark(number);
    wait_until("a frame passes", || {
        from.send(&mark);
        std::iter::from_fn(|| to.next()).any(|frame| frame == mark)
    });
}

fn check_passes(one: &mut dyn End, other: &mut dyn End, number: u16) {
    check_one_way(one, other, number);
    check_one_way(other, one, number + 1);
}

/// The keys of an end that is a UDP tunnel, and its far end.
fn tunnel(namespace: &Namespace, side: &str, local: u16) -> (String, Tunnel) {
    let remote = local + 10_000;
    (format!("{side}_udp = {local}:127.0.0.1:{remote}\n"), Tunnel::new(namespace, remote, local))
}

/// A section with two UDP tunnels, and their far ends.
fn two_tunnels(namespace: &Namespace, name: &str, local: u16) -> (String, [Tunnel; 2]) {
    let (source, one) = tunnel(namespace, "source", local);
    let (destination, other) = tunnel(namespace, "destination", local + 1);
    (format!("[{name}]\n{source}{destination}"), [one, other])
}

/// A folder with a file `lab.ini`.
fn folder(content: &str) -> Folder {
    let folder = Folder::new();
    write(folder.path(), content);
    folder
}

fn write(folder: &Path, content: &str) {
    std::fs::write(folder.join("lab.ini"), content).expect("written");
}

fn start_with(namespace: &Namespace, folder: Folder, options: &str) -> Daemon {
    Daemon::start(namespace, folder, Daemon::command(), options)
}

fn start(namespace: &Namespace, content: &str) -> Daemon {
    start_with(namespace, folder(content), "-f lab.ini")
}

#[test]
fn every_kind_of_end_works_though_one_bridge_fails() {
    let [outside, namespace] = [(); 2].map(|()| Namespace::new());
    for number in 0..2 {
        outside.veth(&format!("wan{number}"), &namespace, &format!("nic{number}"));
    }
    let folder = Folder::new();
    let at = folder.path().display().to_string();
    let mut content = String::new();
    let mut tunnels = Vec::new();
    for (local, source) in (10_000..).zip([
        "udp = 11000:127.0.0.1:21000".to_owned(),
        format!("unix = {at}/ours:{at}/theirs"),
        "linux_raw = nosuchif".to_owned(),
        "linux_raw = nic0".to_owned(),
        "ethernet = nic1".to_owned(),
        "tap = rb%d".to_owned(),
    ]) {
        let (destination, end) = tunnel(&namespace, "destination", local);
        content.push_str(&format!("[Bridge {local}]\nsource_{source}\n{destination}"));
        tunnels.push(end);
    }
    write(folder.path(), &content);
    let mut program = start_with(&namespace, folder, "-f lab.ini");
    wait_until("the TAP is there", || has_interface(&namespace, "rb0"));
    namespace.ip("link set rb0 up");

    let mut far = Tunnel::new(&namespace, 21_000, 11_000);
    let mut socket = UnixDatagram::bind(program.path("theirs")).expect("a socket");
    let [mut raw, mut ethernet] = ["wan0", "wan1"].map(|name| WireTap::new(&outside, name));
    let mut tap = WireTap::new(&namespace, "rb0");
    let [udp, unix, failed, through_raw, through_ethernet, through_tap] =
        tunnels.try_into().unwrap_or_else(|_| panic!("six of them"));
    for (number, one, mut other) in [
        (1, &mut far as &mut dyn End, udp),
        (3, &mut socket, unix),
        (5, &mut raw, through_raw),
        (7, &mut ethernet, through_ethernet),
        (9, &mut tap, through_tap),
    ] {
        check_passes(one, &mut other, number);
    }
    drop(failed);
    assert!(is_free(&namespace, 10_002), "of a bridge that failed nothing stays open");

    for line in [
        "Parsing bridge 10000",
        "Creating UDP tunnel 11000:127.0.0.1:21000",
        "Creating UDP tunnel 10000:127.0.0.1:20000",
        &format!("Creating UNIX domain socket {at}/ours:{at}/theirs"),
        "Opening Linux RAW device nosuchif",
        "Opening Linux RAW device nic0",
        "Opening Ethernet device nic1",
        "Opening TAP device rb%d",
    ] {
        program.until_told(line);
    }
    let complaint = "bridge 'bridge 10002': unable to create Linux RAW NIO nosuchif (";
    wait_until(complaint, || program.log().lines().any(|line| line.starts_with(complaint)));

    program.signal(Signal::SIGTERM);
    assert_eq!(program.end(), Some(0));
    assert!(!has_interface(&namespace, "rb0"));
    assert!(!program.path("ours").exists());
}

#[test]
fn a_linux_raw_device_may_be_the_destination() {
    let [outside, namespace] = [(); 2].map(|()| Namespace::new());
    outside.veth("wan0", &namespace, "nic0");
    let (source, mut end) = tunnel(&namespace, "source", 10_000);
    let mut wire = WireTap::new(&outside, "wan0");
    let mut program = start(&namespace, &format!("[a]\n{source}destination_linux_raw = nic0\n"));
    check_passes(&mut wire, &mut end, 1);
    program.signal(Signal::SIGINT);
    assert_eq!(program.end(), Some(0));
}

#[test]
fn a_capture_records_what_passes() {
    let namespace = Namespace::new();
    for (protocol, link_type) in [("", 1), ("pcap_protocol = FRELAY\n", 107)] {
        let (section, [mut one, mut other]) = two_tunnels(&namespace, "a", 10_000);
        let program = start(&namespace, &format!("{section}pcap_file = \"the capture.pcap\"\n{protocol}"));
        let name = if protocol.is_empty() { "EN10MB" } else { "FRELAY" };
        program.until_told(&format!("Starting packet capture to the capture.pcap with protocol {name}"));
        check_passes(&mut one, &mut other, 1);
        let file = program.path("the capture.pcap");
        wait_until("both frames are in the file", || frames_so_far(&file).contains(&WireTap::mark(2)));
        assert_eq!(link_type_of(&file), link_type);
        // Either may have been sent more than once.
        let (first, second) = (WireTap::mark(1), WireTap::mark(2));
        let frames = frames_so_far(&file);
        assert!(frames.contains(&first) && frames.iter().all(|frame| [&first, &second].contains(&frame)));
    }
}

#[test]
fn a_filter_decides_what_an_ethernet_device_receives() {
    for side in ["source", "destination"] {
        let [outside, namespace] = [(); 2].map(|()| Namespace::new());
        outside.veth("wan0", &namespace, "nic0");
        let other_side = if side == "source" { "destination" } else { "source" };
        let (other, mut end) = tunnel(&namespace, other_side, 10_000);
        let filter = "ether[14:2] = 7";
        let program = start(&namespace, &format!("[a]\n{side}_ethernet = nic0\n{other}pcap_filter = \"{filter}\"\n"));
        let mut wire = WireTap::new(&outside, "wan0");
        check_one_way(&mut wire, &mut end, 7);
        wire.send(&[0; 10], &WireTap::mark(8));
        wire.send(&[0; 10], &WireTap::mark(7));
        let next = wait_for_mark(&mut end);
        assert_eq!(next, WireTap::mark(7), "the one before was not wanted");
        // What goes out is not filtered.
        check_one_way(&mut end, &mut wire, 9);
        program.until_told(&format!("Applying PCAP filter '{filter}'"));
    }
}

/// The next frame, however long it takes.
fn wait_for_mark(end: &mut dyn End) -> Vec<u8> {
    let mut next = None;
    wait_until("a frame comes", || {
        next = end.next();
        next.is_some()
    });
    next.expect("a frame")
}

#[test]
fn a_bridge_runs_without_the_capture_or_the_filter_that_it_cannot_have() {
    let [outside, namespace] = [(); 2].map(|()| Namespace::new());
    outside.veth("wan0", &namespace, "nic0");
    let (destination, mut end) = tunnel(&namespace, "destination", 10_000);
    let (second, [mut one, mut other]) = two_tunnels(&namespace, "b", 10_001);
    let extras = "pcap_file = /nowhere/file\npcap_protocol = NONE\npcap_filter = no filter\n";
    let content = format!("[a]\nsource_ethernet = nic0\n{destination}{extras}{second}{extras}");
    let program = start(&namespace, &content);
    let mut wire = WireTap::new(&outside, "wan0");
    check_passes(&mut wire, &mut end, 1);
    check_passes(&mut one, &mut other, 3);
    program.until_told("unknown link type NONE, assuming Ethernet.");
    for complaint in ["unable to open capture file /nowhere/file (", "Cannot compile filter 'no filter': "] {
        wait_until(complaint, || program.log().lines().any(|line| line.starts_with(complaint)));
    }
}

#[test]
fn without_any_bridge_the_program_idles() {
    let namespace = Namespace::new();
    for content in ["", "# nothing\n", "[a]\n", "[a]\nsource_udp = 1:2\n[b]\nsource_linux_raw = nosuchif\n"] {
        let mut program = start(&namespace, content);
        if content.contains("[a]") {
            wait_until("it complains", || {
                program.log().contains("source NIO not found") || program.log().contains("invalid")
            });
        }
        assert!(program.is_running());
        // It can still be given some.
        let (section, [mut one, mut other]) = two_tunnels(&namespace, "late", 10_000);
        write(program.folder(), &section);
        program.signal(Signal::SIGHUP);
        check_passes(&mut one, &mut other, 1);
        program.signal(Signal::SIGTERM);
        assert_eq!(program.end(), Some(0));
    }
}

#[test]
fn reloading_puts_a_changed_file_into_force_under_traffic() {
    let namespace = Namespace::new();
    let (first, [mut one, mut other]) = two_tunnels(&namespace, "first", 10_000);
    let mut program = start(&namespace, &first);
    check_passes(&mut one, &mut other, 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndsThreads(&done);
        scope.spawn(|| {
            while !done.load(Relaxed) {
                one.send(&[0; 100]);
                other.send(&[0; 100]);
                std::thread::yield_now();
            }
        });
        for round in 1..=3u16 {
            let local = 10_000 + 10 * round;
            let (section, [mut one, mut other]) = two_tunnels(&namespace, "a", local);
            // The far ends of the first bridge are there all the time.
            let first = if round == 1 { "" } else { &first };
            write(program.folder(), &format!("{section}{first}"));
            program.signal(Signal::SIGHUP);
            check_passes(&mut one, &mut other, 2 * round);
            if round > 1 {
                assert!(is_free(&namespace, local - 10) && is_free(&namespace, local - 9), "old ports are free");
            }
        }
    });
    wait_until("all reloads are told", || program.log().matches("Reloading configuration\n").count() == 3);
    program.signal(Signal::SIGTERM);
    assert_eq!(program.end(), Some(0));
    assert!(is_free(&namespace, 10_000) && is_free(&namespace, 10_030));
}

#[test]
fn a_file_that_is_broken_at_a_reload_changes_nothing() {
    let namespace = Namespace::new();
    let (section, [mut one, mut other]) = two_tunnels(&namespace, "a", 10_000);
    let mut program = start(&namespace, &section);
    check_passes(&mut one, &mut other, 1);
    let broken = [
        (Some("[a\n"), "iniparser: syntax error in lab.ini on line 1"),
        (Some("[a]\nsource_udp = 1:127.0.0.1:2\n"), "bridge 'a': destination NIO not found"),
        (None, "iniparser: cannot open lab.ini"),
    ];
    for (round, (content, complaint)) in (1..).zip(broken) {
        match content {
            Some(content) => write(program.folder(), content),
            None => std::fs::remove_file(program.path("lab.ini")).expect("removed"),
        }
        program.signal(Signal::SIGHUP);
        program.until_told(complaint);
        let kept = "the old configuration is kept\n";
        wait_until("it says so", || program.log().matches(kept).count() == round);
        check_passes(&mut one, &mut other, 2);
    }
    let (section, [mut one, mut other]) = two_tunnels(&namespace, "a", 10_010);
    write(program.folder(), &section);
    program.signal(Signal::SIGHUP);
    check_passes(&mut one, &mut other, 4);
    assert!(is_free(&namespace, 10_000));
    program.signal(Signal::SIGTERM);
    assert_eq!(program.end(), Some(0));
}

#[test]
fn frames_are_told_where_that_is_asked_for() {
    let namespace = Namespace::new();
    let (section, [mut one, mut other]) = two_tunnels(&namespace, "Lan", 10_000);
    let program = start_with(&namespace, folder(&section), "-d1 -flab.ini");
    check_passes(&mut one, &mut other, 1);
    program.until_told("Received 60 bytes on bridge 'lan' (source NIO)");
    program.until_told("Received 60 bytes on bridge 'lan' (destination NIO)");
}

#[test]
fn without_a_word_the_usual_file_is_run() {
    let namespace = Namespace::new();
    let (section, [mut one, mut other]) = two_tunnels(&namespace, "a", 10_000);
    let folder = folder("");
    std::fs::write(folder.path().join("ubridge.ini"), section).expect("written");
    let _program = start_with(&namespace, folder, "");
    check_passes(&mut one, &mut other, 1);
}

#[test]
fn a_file_does_not_count_beside_a_control_port() {
    let namespace = Namespace::new();
    let folder = folder(&two_tunnels(&namespace, "a", 10_000).0);
    let file = folder.path().join("lab.ini");
    for words in [format!("-f {}", file.display()), "-f nosuchfile.ini".to_owned()] {
        let hypervisor = Hypervisor::start_with(&namespace, &words);
        assert_eq!(hypervisor.client().ask("bridge list"), ["100-OK"]);
        assert!(!hypervisor.log().contains("Parsing") && !hypervisor.log().contains("iniparser"));
    }
}
