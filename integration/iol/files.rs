//! Sockets and locks in `/tmp/netio<user>`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use nix::sys::signal::Signal;

use super::{BRIDGE, path};
use crate::lab::{Client, Hypervisor, Namespace, wait_until, with_own_tmp};

const FOLDER: &str = "/tmp/netio0";

fn lock_path(id: u16) -> PathBuf {
    Path::new(FOLDER).join(format!("{id}.lck"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn create(id: u16) -> String {
    format!("iol_bridge create b{id} {id}")
}

/// The names in the folder.
fn names() -> Vec<String> {
    let entries = fs::read_dir(FOLDER).expect("the folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("a name").file_name().into_string().expect("UTF-8")).collect();
    names.sort_unstable();
    names
}

fn with_hypervisor(task: impl FnOnce(&mut Hypervisor<'_>) + Send) {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        task(&mut Hypervisor::start(&namespace));
    });
}

#[test]
fn the_folder_is_made_for_the_user_alone() {
    with_hypervisor(|hypervisor| {
        assert!(!Path::new(FOLDER).exists());
        hypervisor.client().tell(&create(BRIDGE));
        assert_eq!(mode(Path::new(FOLDER)), 0o700);
        let file = fs::symlink_metadata(path(BRIDGE)).expect("a socket");
        assert!(file.file_type().is_socket());
        assert_eq!(mode(&lock_path(BRIDGE)), 0o600);
        assert_eq!(fs::read_to_string(lock_path(BRIDGE)).expect("a lock"), format!("{}\n", hypervisor.id()));
        hypervisor.client().tell(&format!("iol_bridge delete b{BRIDGE}"));
        assert_eq!(names(), [""; 0]);
    });
}

#[test]
fn a_folder_that_is_none_is_refused() {
    with_hypervisor(|hypervisor| {
        for make in [|| fs::write(FOLDER, "a file"), || std::os::unix::fs::symlink("/tmp", FOLDER)] {
            make().expect("made");
            let failed =
                format!("206-could not create IOL bridge 'b{BRIDGE}': could not get lock on {FOLDER}/{BRIDGE}.lck");
            assert_eq!(hypervisor.client().ask(&create(BRIDGE)), [failed]);
            fs::remove_file(FOLDER).expect("it is left as it was");
        }
        assert!(!fs::exists(format!("/tmp/{BRIDGE}.lck")).expect("readable"));
    });
}

#[test]
fn what_a_crash_left_behind_is_taken_over() {
    with_hypervisor(|hypervisor| {
        fs::create_dir(FOLDER).expect("a folder");
        for content in ["1\n", "", "123456789 and more\n"] {
            fs::write(lock_path(BRIDGE), content).expect("a lock");
            drop(UnixDatagram::bind(path(BRIDGE)).expect("a socket"));
            hypervisor.client().tell(&create(BRIDGE));
            assert_eq!(fs::read_to_string(lock_path(BRIDGE)).expect("a lock"), format!("{}\n", hypervisor.id()));
            let sender = UnixDatagram::unbound().expect("a socket");
            sender.send_to(b"123456789", path(BRIDGE)).expect("somebody is there again");
            hypervisor.client().tell(&format!("iol_bridge delete b{BRIDGE}"));
            assert_eq!(names(), [""; 0]);
        }
    });
}

#[test]
fn after_a_kill_the_id_can_be_had_again() {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        let mut killed = Hypervisor::start(&namespace);
        killed.client().tell(&create(BRIDGE));
        killed.signal(Signal::SIGKILL);
        killed.end();
        assert_eq!(names(), [BRIDGE.to_string(), format!("{BRIDGE}.lck")]);
        let next = Hypervisor::start(&namespace);
        next.client().tell(&create(BRIDGE));
    });
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    with_hypervisor(|hypervisor| {
        fs::create_dir(FOLDER).expect("a folder");
        fs::write(path(BRIDGE), "precious").expect("a file");
        let failed = format!("206-could not create IOL bridge 'b{BRIDGE}': cannot create UNIX domain socket");
        assert_eq!(hypervisor.client().ask(&create(BRIDGE)), [failed]);
        assert_eq!(fs::read_to_string(path(BRIDGE)).expect("it is there"), "precious");
        assert_eq!(names(), [BRIDGE.to_string()]);
    });
}

#[test]
fn an_id_belongs_to_one_bridge() {
    with_own_tmp(|| {
        let [one, two] = [(); 2].map(|()| Namespace::new());
        let [one, two] = [&one, &two].map(Hypervisor::start);
        let taken = |name: &str| {
            format!("206-could not create IOL bridge '{name}': PID {} already has a lock on ID {BRIDGE}", one.id())
        };
        one.client().tell(&create(BRIDGE));
        // In another process, and in the same one.
        for _ in 0..2 {
            assert_eq!(two.client().ask(&create(BRIDGE)), [taken(&format!("b{BRIDGE}"))]);
            assert_eq!(one.client().ask(&format!("iol_bridge create c {BRIDGE}")), [taken("c")]);
        }
        assert_eq!(fs::read_to_string(lock_path(BRIDGE)).expect("a lock"), format!("{}\n", one.id()));
        one.client().tell(&create(BRIDGE + 1));
        one.client().tell(&format!("iol_bridge delete b{BRIDGE}"));
        two.client().tell(&create(BRIDGE));
        assert_eq!(names().len(), 4);
    });
}

/// Tries to take the id; returns whether it was to be had, and then to have for this process alone.
fn take_and_give_up(client: &mut Client, pid: i32, owners: &AtomicUsize) -> bool {
    if client.ask(&create(BRIDGE)) != [format!("100-IOL bridge 'b{BRIDGE}' created")] {
        return false;
    }
    assert_eq!(owners.fetch_add(1, Relaxed), 0, "the other one has it");
    assert_eq!(fs::read_to_string(lock_path(BRIDGE)).expect("the lock"), format!("{pid}\n"));
    assert!(path(BRIDGE).exists());
    owners.fetch_sub(1, Relaxed);
    client.tell(&format!("iol_bridge delete b{BRIDGE}"));
    true
}

#[test]
fn an_id_that_is_given_up_is_not_had_twice() {
    with_own_tmp(|| {
        let namespaces = [(); 2].map(|()| Namespace::new());
        let hypervisors = namespaces.each_ref().map(Hypervisor::start);
        let owners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for hypervisor in &hypervisors {
                let (mut client, owners) = (hypervisor.client(), &owners);
                scope.spawn(move || {
                    let mut had = 0;
                    wait_until("it has had the id often", || {
                        had += (0..50).filter(|_| take_and_give_up(&mut client, hypervisor.id(), owners)).count();
                        had >= 150
                    });
                });
            }
        });
    });
}

#[test]
fn at_the_end_nothing_is_left() {
    for by_signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
        with_hypervisor(|hypervisor| {
            let mut client = hypervisor.client();
            for id in [BRIDGE, BRIDGE + 1] {
                client.tell(&create(id));
                client.tell(&format!("iol_bridge add_nio_udp b{id} 1 1 3 {id} 127.0.0.1 9"));
            }
            client.tell(&format!("iol_bridge start b{BRIDGE}"));
            match by_signal {
                Some(signal) => hypervisor.signal(signal),
                None => drop(client.tell("hypervisor stop")),
            }
            assert_eq!(hypervisor.end(), Some(0));
            assert_eq!(names(), [""; 0]);
        });
    }
}
