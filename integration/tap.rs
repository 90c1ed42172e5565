//! The `tap` NIO: what it leaves behind, and what it finds.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::FileTypeExt;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use tun_tap::{Iface, Mode as TapMode};

use crate::lab::frames::{Random, Recipe};
use crate::lab::{Namespace, Rubridge, WireTap, stay_on_one_cpu};

/// A wire into a bridge between `linux_raw:nic0` and a TAP, whose other side is in a namespace of its own.
struct Lab {
    wire: WireTap,
    _outside: Namespace,
    bridge: Namespace,
    guest: Namespace,
}

fn lab() -> Lab {
    stay_on_one_cpu();
    let [outside, bridge, guest] = [(); 3].map(|()| Namespace::new());
    outside.veth("wan0", &bridge, "nic0");
    Lab { wire: WireTap::new(&outside, "wan0"), _outside: outside, bridge, guest }
}

impl Lab {
    fn start(&self, tap: &str, options: &str) -> Rubridge {
        Rubridge::start(&self.bridge, &format!("linux_raw:nic0 tap:{tap} {options}"))
    }

    /// Sends a super-frame in and checks that it reaches the TAP's interface.
    fn check_passes(&self, namespace: &Namespace, tap: &str, number: u16) {
        namespace.ip(&format!("link set {tap} up"));
        let mut heard = WireTap::new(namespace, tap);
        let recipe = Recipe { payload: Random(3).bytes(9000), ..Recipe::default() };
        let built = recipe.begun();
        self.wire.send(&built.virtio(1, 1000), &built.bytes);
        self.wire.send_plain(&WireTap::mark(number));
        let frames = heard.until_mark(number);
        assert_eq!(frames.len(), 1, "{tap}");
        assert_eq!(frames[0].frame, built.bytes, "{tap}");
    }
}

#[test]
fn a_tap_moved_and_renamed_goes_on() {
    let mut lab = lab();
    let program = lab.start("rb%d", "");
    assert!(program.plan.contains("tap:rb0"), "the kernel's name is shown: {}", program.plan);
    lab.bridge.move_to("rb0", &lab.guest);
    lab.guest.ip("link set rb0 name eth7");
    lab.check_passes(&lab.guest, "eth7", 1);
    // And out of it, the other way.
    let mut random = Random(8);
    let inside = WireTap::new(&lab.guest, "eth7");
    let built = Recipe { payload: random.bytes(9000), ..Recipe::default() }.begun();
    inside.send(&built.virtio(1, 1000), &built.bytes);
    inside.send_plain(&WireTap::mark(2));
    let heard = lab.wire.until_mark(2);
    assert_eq!(heard.iter().map(|heard| &heard.frame).collect::<Vec<_>>(), [&built.bytes]);
    let totals = program.stop(Signal::SIGTERM);
    assert_eq!(totals.number("tap:rb0", "super-frames {} whole"), 1);
    assert_eq!(totals.number("linux_raw:nic0", "super-frames {} whole"), 1);
}

#[test]
fn taps_made_by_others_work_whatever_their_flags() {
    let lab = lab();
    for (number, flags) in (0..).zip(["", "vnet_hdr", "multi_queue", "multi_queue vnet_hdr"]) {
        lab.bridge.ip(&format!("tuntap add dev made{number} mode tap {flags}"));
        let program = lab.start(&format!("made{number}"), "");
        lab.check_passes(&lab.bridge, &format!("made{number}"), number);
        drop(program);
    }
}

#[test]
fn no_offload_is_left_on_behind_us() {
    let lab = lab();
    lab.bridge.ip("tuntap add dev kept mode tap");
    let program = lab.start("kept", "");
    assert!(lab.bridge.feature("kept", "tcp-segmentation-offload"), "the TAP hands super-frames over");
    assert!(lab.bridge.feature("kept", "tx-udp-segmentation"));
    program.stop(Signal::SIGINT);
    for feature in ["tcp-segmentation-offload", "tx-udp-segmentation", "tx-checksum-ip-generic"] {
        assert!(!lab.bridge.feature("kept", feature), "{feature} is off again");
    }
    // One that was killed could not clean up; the next plain opener must not suffer for it.
    let program = lab.start("kept", "");
    program.signal(Signal::SIGKILL);
    drop(program);
    let plain = lab.start("kept", "--offload off");
    assert!(!lab.bridge.feature("kept", "tcp-segmentation-offload"));
    plain.stop(Signal::SIGINT);
    // As an independent opener sees it: what the host sends is finished.
    let tap = lab.bridge.run(|| Iface::without_packet_info("kept", TapMode::Tap).expect("opened by another program"));
    lab.bridge.ip("link set kept up");
    lab.bridge.ip("addr add 10.9.0.1/24 dev kept");
    lab.bridge.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:77 dev kept");
    lab.bridge.run(|| {
        let socket = UdpSocket::bind("10.9.0.1:40000").expect("bound");
        socket.send_to(&[1; 301], "10.9.0.2:9").expect("sent");
    });
    let mut buffer = vec![0; 70_000];
    let frame = loop {
        let len = tap.recv(&mut buffer).expect("a frame");
        if buffer[12..14] == [0x08, 0x00] && buffer[23] == 17 {
            break &buffer[..len];
        }
    };
    assert_eq!(frame.len(), 14 + 20 + 8 + 301, "no stray header");
    let pseudo = [&frame[26..34], &[0, 17], &frame[38..40]].concat();
    assert_eq!(crate::lab::frames::sum(&[&pseudo, &frame[34..]].concat()), 0xffff, "its checksum is finished");
}

#[test]
fn offloads_left_out_by_name_are_not_asked_of_the_tap() {
    let lab = lab();
    let _program = lab.start("less", "--offload no-tso6,no-uso");
    assert!(lab.bridge.feature("less", "tx-tcp-segmentation"));
    assert!(lab.bridge.feature("less", "tx-checksum-ip-generic"));
    assert!(!lab.bridge.feature("less", "tx-tcp6-segmentation"));
    assert!(!lab.bridge.feature("less", "tx-udp-segmentation"));
}

#[test]
fn super_frames_are_cut_for_a_tap_that_is_not_to_get_them() {
    let lab = lab();
    let program = lab.start("cuts", "--offload no-csum");
    lab.bridge.ip("link set cuts up");
    let mut heard = WireTap::new(&lab.bridge, "cuts");
    let recipe = Recipe { payload: Random(3).bytes(9001), ..Recipe::default() };
    let built = recipe.begun();
    lab.wire.send(&built.virtio(1, 1000), &built.bytes);
    lab.wire.send_plain(&WireTap::mark(1));
    let frames = heard.until_mark(1);
    assert_eq!(frames.len(), 10);
    assert!(frames.iter().all(|heard| heard.header[1] == 0 && heard.frame.len() <= 1054));
    let totals = program.stop(Signal::SIGINT);
    assert_eq!(totals.number("linux_raw:nic0", "{} cut"), 1);
    assert!(totals.number("linux_raw:nic0", "out {} frames") >= 11, "{totals:?}");
}

#[test]
fn a_tap_that_is_down_costs_its_frames_only() {
    let lab = lab();
    let mut program = lab.start("down0", "--stats 1");
    lab.wire.send_plain(&WireTap::mark(1));
    program.until_dropped("tap:down0");
    lab.check_passes(&lab.bridge, "down0", 2);
    let totals = program.stop(Signal::SIGINT);
    assert!(totals.number("linux_raw:nic0", "dropped link_down {}") >= 1, "{totals:?}");
}

#[test]
fn the_character_device_of_a_macvtap_works() {
    let lab = lab();
    let (host, far) = (Namespace::new(), &lab.guest);
    host.veth("base0", far, "far0");
    host.ip("link add link base0 name mv0 type macvtap mode passthru");
    host.ip("link set mv0 up");
    // Such devices appear in the machine's /dev, numbered across all namespaces, if anywhere.
    let sysfs = host.run(|| device_numbers("mv0"));
    let path = std::env::temp_dir().join(format!("rubridge-test-tap-{}", std::process::id()));
    mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, makedev(sysfs.0, sysfs.1)).expect("a device node");
    assert!(fs::metadata(&path).expect("there").file_type().is_char_device());
    host.veth("wan1", &lab.bridge, "unused");
    let program = Rubridge::start(&host, &format!("tap:{} linux_raw:wan1", path.display()));
    fs::remove_file(&path).expect("removed");
    let mut wire = WireTap::new(&lab.bridge, "unused");
    let recipe = Recipe { payload: Random(3).bytes(9000), ..Recipe::default() };
    let built = recipe.begun();
    let inside = WireTap::new(far, "far0");
    inside.send(&built.virtio(1, 1000), &built.bytes);
    inside.send_plain(&WireTap::mark(5));
    let heard = wire.until_mark(5);
    assert_eq!(heard.iter().map(|heard| &heard.frame).collect::<Vec<_>>(), [&built.bytes]);
    drop(program);
}

/// Device numbers of a macvtap's character device.
fn device_numbers(interface: &str) -> (u64, u64) {
    mount_own_sysfs();
    let mut entries = fs::read_dir(format!("/sys/class/net/{interface}")).expect("the interface in sysfs").flatten();
    let tap = entries.find(|entry| entry.file_name().to_string_lossy().starts_with("tap")).expect("its tap device");
    let text = fs::read_to_string(tap.path().join("dev")).expect("its numbers");
    let (major, minor) = text.trim().split_once(':').expect("major:minor");
    (major.parse().expect("a number"), minor.parse().expect("a number"))
}

#[test]
fn a_tap_that_is_deleted_does_not_end_the_program() {
    let lab = lab();
    let mut program = lab.start("gone0", "--stats 1");
    lab.bridge.ip("link del gone0");
    lab.wire.send_plain(&WireTap::mark(1));
    program.until_dropped("tap:gone0");
    let totals = program.stop(Signal::SIGINT);
    assert!(totals.number("linux_raw:nic0", "dropped device_gone {}") >= 1, "{totals:?}");
}

#[test]
fn a_tap_with_several_queues_that_another_program_holds_is_in_use() {
    let lab = lab();
    lab.bridge.ip("tuntap add dev shared mode tap multi_queue");
    let holder = lab.start("shared", "");
    let spawn = || Rubridge::command("bridge linux_raw:nic0 tap:shared").output();
    // As any program that is started in a namespace by `ip netns exec`, it sees that namespace's sysfs.
    let output = lab.bridge.run(|| {
        mount_own_sysfs();
        spawn()
    });
    let output = output.expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("tap:shared: in use by another program"), "{text}");
    lab.check_passes(&lab.bridge, "shared", 1);
    drop(holder);
}

/// Gives this thread a sysfs of its namespace, in a mount namespace of its own.
fn mount_own_sysfs() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    mount(Some("none"), "/sys", Some("sysfs"), MsFlags::empty(), none).expect("sysfs");
}
