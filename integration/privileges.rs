//! What works with which privileges, and what an idle program costs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::lab::{Client, Folder, Hypervisor, Namespace, Tunnel, WireTap, has_interface, wait_until, with_own_tmp};

/// A user and a group without any rights.
const NOBODY: u32 = 65534;

/// A copy of the program that everybody may run.
struct Copy {
    _folder: Folder,
    path: PathBuf,
}

impl Copy {
    fn new() -> Self {
        let folder = Folder::new();
        let path = folder.path().join("ubridge");
        fs::copy(env!("CARGO_BIN_EXE_rubridge"), &path).expect("a copy");
        let copy = Self { path, _folder: folder };
        copy.set_mode(0o755);
        copy
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode)).expect("its mode");
    }

    /// The command that runs it as nobody, with more options for setpriv.
    fn as_nobody(&self, options: &str) -> Command {
        // Of util-linux; it becomes the program that it runs.
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        command.args(options.split_whitespace()).arg(&self.path);
        command
    }
}

/// Runs `task` where anybody may open the device of TAPs, as on most machines.
fn with_open_tun(task: impl FnOnce() + Send) {
    with_own_tmp(|| {
        mount(Some("tmpfs"), "/dev/net", Some("tmpfs"), MsFlags::empty(), Some("mode=755")).expect("a folder");
        let rights = Mode::from_bits_truncate(0o666);
        mknod("/dev/net/tun", SFlag::S_IFCHR, rights, makedev(10, 200)).expect("the device");
        fs::set_permissions("/dev/net/tun", fs::Permissions::from_mode(0o666)).expect("its mode");
        task();
    });
}

/// A bridge between UDP tunnels, which anybody may have.
fn check_tunnels(namespace: &Namespace, client: &mut Client) {
    let [one, other] = [(20_000, 10_000), (20_001, 10_001)].map(|(ours, theirs)| Tunnel::new(namespace, ours, theirs));
    for command in [
        "bridge create tunnels",
        "bridge add_nio_udp tunnels 10000 127.0.0.1 20000",
        "bridge add_nio_udp tunnels 10001 127.0.0.1 20001",
        "bridge start tunnels",
    ] {
        client.tell(command);
    }
    one.send(b"there");
    assert_eq!(other.next(), b"there");
    other.send(b"back");
    assert_eq!(one.next(), b"back");
    client.tell("bridge delete tunnels");
}

/// Bridges of every kind of device, and what else takes privileges.
fn check_devices(outside: &Namespace, namespace: &Namespace, client: &mut Client) {
    let mut wire = WireTap::new(outside, "wan0");
    namespace.ip("link add rbbr0 type bridge");
    for (number, kind) in (1..).zip(["linux_raw", "ethernet"]) {
        for command in [
            "bridge create b".to_owned(),
            format!("bridge add_nio_{kind} b nic0"),
            "bridge add_nio_tap b rb0".to_owned(),
            "bridge start b".to_owned(),
            "docker set_mac_addr rb0 02:00:00:00:00:01".to_owned(),
            "brctl addif rbbr0 rb0".to_owned(),
        ] {
            client.tell(&command);
        }
        let tap = WireTap::new(namespace, "rb0");
        tap.send_plain(&WireTap::mark(number));
        wire.until_mark(number);
        client.tell("bridge delete b");
        assert!(!has_interface(namespace, "rb0"));
    }
    client.tell("docker create_veth rbh0 rbg0");
    client.tell("docker delete_veth rbh0");
}

/// A namespace with an interface that somebody outside hears.
fn two_namespaces() -> [Namespace; 2] {
    let namespaces = [(); 2].map(|()| Namespace::new());
    namespaces[0].veth("wan0", &namespaces[1], "nic0");
    namespaces
}

#[test]
fn without_privileges_tunnels_work_and_devices_are_refused() {
    with_open_tun(|| {
        let [_outside, namespace] = two_namespaces();
        let copy = Copy::new();
        let mut hypervisor = Hypervisor::by(&namespace, copy.as_nobody(""));
        let mut client = hypervisor.client();
        check_tunnels(&namespace, &mut client);
        client.tell("bridge create b");
        for (command, kind, told) in [
            ("add_nio_tap b rb0", "TAP", "create_nio_tap: unable to open TAP device rb0 ("),
            ("add_nio_linux_raw b nic0", "Linux raw", "create_nio_linux_raw: unable to open nic0 ("),
            ("add_nio_ethernet b nic0", "Ethernet", "create_nio_ethernet: unable to open nic0 ("),
        ] {
            let refused = format!("206-unable to create NIO {kind} for bridge 'b'");
            assert_eq!(client.ask(&format!("bridge {command}")), [refused]);
            wait_until("it is told, and with it the cure", || {
                hypervisor.log().lines().any(|line| line.starts_with(told) && line.contains("CAP_NET_"))
            });
        }
        let refused = client.ask("brctl addif nic0 nic0");
        assert_eq!(refused, ["206-Could not add interface nic0 to nic0: Operation not permitted"]);
        check_tunnels(&namespace, &mut client);
        client.tell("hypervisor stop");
        assert_eq!(hypervisor.end(), Some(0));
    });
}

#[test]
fn two_capabilities_are_enough() {
    with_open_tun(|| {
        let by_setpriv = "--inh-caps=+net_admin,+net_raw --ambient-caps=+net_admin,+net_raw";
        let by_file = "setcap cap_net_admin,cap_net_raw=ep";
        for way in [by_setpriv, by_file] {
            let [outside, namespace] = two_namespaces();
            let copy = Copy::new();
            let mut options = way;
            if let Some(("setcap", capabilities)) = way.split_once(' ') {
                options = "";
                // Of libcap2-bin, as users do it.
                let status = Command::new("setcap").arg(capabilities).arg(&copy.path).status();
                assert!(status.expect("setcap, of libcap2-bin").success());
            }
            let hypervisor = Hypervisor::by(&namespace, copy.as_nobody(options));
            let mut client = hypervisor.client();
            check_tunnels(&namespace, &mut client);
            check_devices(&outside, &namespace, &mut client);
        }
    });
}

#[test]
fn a_setuid_program_serves_its_user() {
    with_own_tmp(|| {
        let [outside, namespace] = two_namespaces();
        let copy = Copy::new();
        chown(&copy.path, Some(0), Some(0)).expect("root's");
        copy.set_mode(0o4755);
        let mut hypervisor = Hypervisor::by(&namespace, copy.as_nobody(""));
        let mut client = hypervisor.client();
        check_tunnels(&namespace, &mut client);
        check_devices(&outside, &namespace, &mut client);
        client.tell("iol_bridge create b 913");
        let folder = format!("/tmp/netio{NOBODY}");
        for path in [folder.clone(), format!("{folder}/913"), format!("{folder}/913.lck")] {
            assert_eq!(fs::metadata(&path).expect("it is there").uid(), NOBODY, "{path}");
        }
        assert_eq!(fs::metadata(&folder).expect("the folder").mode() & 0o7777, 0o700);
        assert!(!fs::exists("/tmp/netio0").expect("readable"));
        client.tell("hypervisor stop");
        assert_eq!(hypervisor.end(), Some(0));
        assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 0);
    });
}

#[test]
fn a_user_without_privileges_has_iol_bridges() {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        let copy = Copy::new();
        let hypervisor = Hypervisor::by(&namespace, copy.as_nobody(""));
        hypervisor.client().tell("iol_bridge create b 913");
        assert_eq!(fs::metadata(format!("/tmp/netio{NOBODY}/913")).expect("a socket").uid(), NOBODY);
    });
}

/// The time that a process has had a CPU for, in ticks of 10 ms.
fn cpu_time(id: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("behind its name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [user, system] = [fields[11], fields[12]].map(|field| field.parse::<u64>().expect("a number"));
    user + system
}

#[test]
fn idle_bridges_use_no_cpu() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    for number in 0..20 {
        let port = 10_000 + 2 * number;
        client.tell(&format!("bridge create b{number}"));
        client.tell(&format!("bridge add_nio_udp b{number} {port} 127.0.0.1 {}", port + 10_000));
        client.tell(&format!("bridge add_nio_tap b{number} rb{number}"));
        client.tell(&format!("bridge add_packet_filter b{number} slow delay 10"));
        client.tell(&format!("bridge start b{number}"));
    }
    // Idleness shows only over time. A worker that spins would have a CPU for most of it.
    let (start, before) = (Instant::now(), cpu_time(hypervisor.id()));
    wait_until("some time is over", || start.elapsed() > Duration::from_secs(2));
    let used = cpu_time(hypervisor.id()) - before;
    assert!(used <= 10, "{used} ticks in {:?}", start.elapsed());
}
