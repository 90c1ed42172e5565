//! Thousands of commands by chance, from several clients at once, beside a bridge that must not notice.

mod commands;
mod flow;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use self::commands::{Command, IOL_IDS, random_command, that_succeed};
use self::flow::{Flow, disturb};
use crate::lab::frames::Random;
use crate::lab::{Client, Hypervisor, Namespace, WireTap, wait_until, with_own_tmp};

const CLIENTS: usize = 3;
/// Of all clients.
const COMMANDS: usize = 10_000;
/// Memory may grow so much in the second half, in KiB: allocators keep some of what delayed frames once took.
const GROWTH: usize = 24 << 10;

#[test]
fn ten_thousand_commands_leave_a_bridge_and_the_program_alone() {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        for [end, other] in [["rbv0", "rbv1"], ["rbw0", "rbw1"]] {
            namespace.ip(&format!("link add {end} up type veth peer name {other}"));
            namespace.ip(&format!("link set {other} up"));
        }
        namespace.ip("link add rbbr0 type bridge");
        let mut hypervisor = Hypervisor::start(&namespace);
        let mut observer = hypervisor.client();
        let flow = Flow::through("steady", &mut observer, &namespace);

        let wires = ["rbv1", "rbw1"].map(|interface| WireTap::new(&namespace, interface));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| namespace.run(|| flow.send_until(&done)));
            scope.spawn(|| flow.receive_until(&done));
            scope.spawn(|| namespace.run(|| disturb(&done, &wires)));
            let _done = SetAtEnd(&done);
            let mut succeeded = command(&hypervisor, 0);
            let middle = Footprint::of(&hypervisor, &mut observer);
            succeeded.extend(command(&hypervisor, 1));
            let end = Footprint::of(&hypervisor, &mut observer);
            assert_eq!(
                (end.descriptors, end.threads),
                (middle.descriptors, middle.threads),
                "after another {COMMANDS}"
            );
            println!("{} KiB, then {} KiB", middle.memory, end.memory);
            assert!(end.memory < middle.memory + GROWTH, "{} KiB grew to {} KiB", middle.memory, end.memory);
            flow.expect_nearly_all(&mut observer);
            let never: Vec<_> = that_succeed().filter(|template| !succeeded.contains(template)).collect();
            assert!(never.is_empty(), "never succeeded: {never:?}");
        });
        nothing_is_left(&namespace, &hypervisor);
        observer.tell("hypervisor stop");
        assert_eq!(hypervisor.end(), Some(0));
    });
}

/// Has clients send half of the commands; returns the templates of those that succeeded.
fn command(hypervisor: &Hypervisor<'_>, half: u64) -> BTreeSet<&'static str> {
    std::thread::scope(|scope| {
        let clients = (0..CLIENTS as u64).map(|number| {
            let mut client = hypervisor.client();
            let mut random = Random(1000 * half + number);
            scope.spawn(move || {
                let mut succeeded = BTreeSet::new();
                let mut left = COMMANDS / 2 / CLIENTS + 1;
                while left > 0 {
                    let at_once = if random.chance(4) { 1 + random.below(8) } else { 1 };
                    succeeded.extend(exchange(&mut client, &mut random, at_once));
                    left = left.saturating_sub(at_once);
                }
                succeeded
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().expect("every command is answered")).collect()
    })
}

/// Sends commands together; each must have one reply, with a code that it can have. Returns the
/// templates of those that succeeded.
fn exchange(client: &mut Client, random: &mut Random, count: usize) -> Vec<&'static str> {
    let commands: Vec<Command> = (0..count).map(|_| random_command(random)).collect();
    client.send(commands.iter().map(|command| format!("{}\n", command.line)).collect::<String>().as_bytes());
    let mut succeeded = Vec::new();
    for Command { template, line, codes } in commands {
        let reply = client.reply();
        let (last, information) = reply.split_last().unwrap_or_else(|| panic!("{line}: the connection was closed"));
        let code = last.split('-').next().and_then(|code| code.parse().ok());
        assert!(code.is_some_and(|code| codes.contains(&code)), "{line}: {reply:?}");
        if code == Some(100) {
            succeeded.push(template);
        }
        assert!(information.iter().all(|line| line.starts_with("101 ")), "{line}: {reply:?}");
    }
    assert_eq!(client.ask("hypervisor cmd_list in-step"), ["201-unknown module 'in-step'"]);
    succeeded
}

/// What a program takes that has one bridge and one client.
struct Footprint {
    descriptors: usize,
    threads: usize,
    memory: usize,
}

impl Footprint {
    /// Deletes all bridges but the steady one, and measures.
    fn of(hypervisor: &Hypervisor<'_>, client: &mut Client) -> Self {
        for module in ["bridge", "iol_bridge"] {
            let list = client.tell(&format!("{module} list"));
            let names = list.iter().filter_map(|line| Some(line.strip_prefix("101 ")?.rsplit_once(" (")?.0));
            for name in names.filter(|name| *name != "steady") {
                client.tell(&format!("{module} delete \"{name}\""));
            }
        }
        // Clients that have gone, and writers of captures, end by themselves.
        let mut footprint = Self { descriptors: usize::MAX, threads: usize::MAX, memory: 0 };
        let mut unchanged = 0;
        wait_until("it rests", || {
            let now = (hypervisor.count("fd"), hypervisor.count("task"));
            unchanged = if now == (footprint.descriptors, footprint.threads) { unchanged + 1 } else { 0 };
            (footprint.descriptors, footprint.threads) = now;
            unchanged == 40
        });
        footprint.memory = hypervisor.memory();
        footprint
    }
}

/// Besides the interfaces that the clients themselves made as interfaces.
fn nothing_is_left(namespace: &Namespace, hypervisor: &Hypervisor<'_>) {
    let links = namespace.command("ip", "-o link show");
    assert!(!links.contains("rbtap"), "{links}");
    let files = std::fs::read_dir(hypervisor.folder()).expect("its folder").flatten();
    let names: Vec<_> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    assert!(names.iter().all(|name| name.ends_with(".pcap") || name == "ubridge.log"), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with(".pcap")), "no capture was ever started");
    // Another run of these tests may have the ids now; a lock tells whose they are.
    for lock in IOL_IDS.map(|id| format!("/tmp/netio0/{id}.lck")) {
        let owner = std::fs::read_to_string(&lock).unwrap_or_default();
        assert_ne!(owner.trim(), hypervisor.id().to_string(), "{lock}");
    }
    let sockets = std::fs::read_to_string(format!("/proc/{}/net/unix", hypervisor.id())).expect("it runs");
    assert!(!sockets.contains("/tmp/netio0/"), "{sockets}");
}

/// Says that something is done, however it ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
