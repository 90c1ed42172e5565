//! Commands in every order, against models that say what each is answered, and commands that make no sense.

mod bad_input;
mod bridges;
mod descriptors;
mod ends;
mod iol_bridges;

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::lab::frames::Random;
use crate::lab::{Client, Hypervisor, Namespace, wait_until};

/// The local ports of the tunnels, and those of their peers.
const LOCAL_PORTS: [u16; 2] = [20001, 20002];
const REMOTE_PORTS: [u16; 2] = [30001, 30002];

/// What the program is to answer.
trait Model: Default {
    /// The state without bridges.
    fn answer(&mut self, command: &str) -> Vec<String>;
}

fn ok() -> Vec<String> {
    vec!["100-OK".to_owned()]
}

/// What is tried in every order.
struct Trial {
    /// From which states, by the commands that lead to them.
    starts: &'static [&'static [&'static str]],
    commands: &'static [&'static str],
    /// What tells the state.
    looks: &'static [&'static str],
    /// Files that are there while bridges are.
    paths: &'static [&'static str],
}

impl Trial {
    /// Every sequence of `length` commands, from every start.
    fn every_order<M: Model>(&self, length: u32, traffic: bool) {
        let count = self.commands.len();
        let sequence = |number: usize| (0..length).map(move |place| self.commands[number / count.pow(place) % count]);
        let all = (0..count.pow(length)).map(sequence);
        let all: Vec<Vec<&str>> = all.map(Iterator::collect).collect();
        let sequences = self.starts.iter().flat_map(|start| all.iter().map(|rest| [start, &rest[..]].concat()));
        self.run::<M>(sequences, traffic);
    }

    /// Long sequences by chance.
    fn random_orders<M: Model>(&self, traffic: bool) {
        let mut random = Random(7);
        let mut sequence = || {
            let start = random.one_of(self.starts).iter().copied();
            let rest = (0..40).map(|_| random.one_of(self.commands));
            start.chain(rest).collect::<Vec<_>>()
        };
        let sequences: Vec<_> = (0..60).map(|_| sequence()).collect();
        self.run::<M>(sequences.into_iter(), traffic);
    }

    fn run<'s, M: Model>(&self, sequences: impl Iterator<Item = Vec<&'s str>> + Send, traffic: bool) {
        let namespace = Namespace::new();
        let hypervisor = Hypervisor::start(&namespace);
        let mut client = hypervisor.client();
        client.tell("hypervisor version");
        let idle = Idle::of(&hypervisor);
        let done = AtomicBool::new(!traffic);
        namespace.run(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| namespace.run(|| send_until(&done, self.paths)));
                let _done = SetAtEnd(&done);
                for sequence in sequences {
                    check::<M>(&mut client, hypervisor.id(), &[&sequence[..], self.looks].concat());
                    self.expect_nothing_left(&sequence);
                    idle.expect_descriptors(&hypervisor, &sequence);
                }
            });
        });
        idle.expect(&hypervisor);
    }

    fn expect_nothing_left(&self, sequence: &[&str]) {
        // To bind them would do, but for other tests, whose processes inherit a descriptor until they run.
        let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").expect("the sockets of the namespace");
        for port in LOCAL_PORTS {
            let bound = sockets.lines().any(|line| is_local(line, port));
            assert!(!bound, "port {port} is not free after {sequence:?}: {sockets}");
        }
        for path in self.paths {
            assert!(!Path::new(path).exists(), "{path} is left after {sequence:?}");
        }
    }
}

/// Whether a line of `/proc/net/udp` tells of a socket with that local port.
fn is_local(line: &str, port: u16) -> bool {
    line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
}

/// Sends all commands at once, then a reset, and compares the replies with those of the model, which does not know
/// the program's id.
fn check<M: Model>(client: &mut Client, pid: i32, commands: &[&str]) {
    let mut model = M::default();
    client.send(format!("{}\nhypervisor reset\n", commands.join("\n")).as_bytes());
    for (number, command) in commands.iter().enumerate() {
        let answer: Vec<String> = model.answer(command).iter().map(|l| l.replace("<pid>", &pid.to_string())).collect();
        assert_eq!(client.reply(), answer, "the last of {:?}", &commands[..=number]);
    }
    assert_eq!(client.reply(), ["100-OK"]);
}

/// What a program without bridges has, apart from clients.
struct Idle {
    descriptors: usize,
    threads: usize,
}

impl Idle {
    /// Of one that has been asked by one client.
    fn of(hypervisor: &Hypervisor<'_>) -> Self {
        let connections = || {
            let tcp = std::fs::read_to_string(format!("/proc/{}/net/tcp", hypervisor.id())).expect("it runs");
            let mut words = tcp.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            words.by_ref().filter(|words| matches!(words[3], "01" | "08") && words[1].ends_with(":10CB")).count()
        };
        wait_until("the connection that found it is closed", || connections() == 1);
        let mut idle = Self { descriptors: 0, threads: 0 };
        wait_until("it rests", || {
            let before = std::mem::replace(&mut idle.descriptors, hypervisor.count("fd"));
            before == idle.descriptors
        });
        idle.threads = hypervisor.count("task");
        idle
    }

    fn expect_descriptors(&self, hypervisor: &Hypervisor<'_>, after: &[&str]) {
        assert_eq!(hypervisor.count("fd"), self.descriptors, "descriptors after {after:?}");
    }

    fn expect(&self, hypervisor: &Hypervisor<'_>) {
        wait_until("descriptors are as they were", || hypervisor.count("fd") == self.descriptors);
        wait_until("threads are as they were", || hypervisor.count("task") == self.threads);
    }
}

/// Says that something is done, however it ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends frames to the tunnels, and to the sockets of IOL bridges, whether they are there or not.
fn send_until(done: &AtomicBool, paths: &[&str]) {
    let tunnels = REMOTE_PORTS.map(|port| UdpSocket::bind(("127.0.0.1", port)).expect("a port"));
    let instance = UnixDatagram::unbound().expect("a socket");
    instance.set_nonblocking(true).expect("no waiting");
    while !done.load(Relaxed) {
        for _ in 0..20 {
            for (tunnel, port) in tunnels.iter().zip(LOCAL_PORTS) {
                let _ = tunnel.send_to(&[5; 100], ("127.0.0.1", port));
            }
            for path in paths {
                let _ = instance.send_to(&[0, 1, 0, 2, 0, 0, 1, 0, 9, 9, 9], path);
            }
        }
        // Others use the CPUs too.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
