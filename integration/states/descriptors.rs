//! Commands that run out of descriptors, at each of the descriptors that they need.

use std::collections::BTreeSet;

use crate::lab::{Client, Hypervisor, Namespace, has_interface};

/// A command that opens something, and what it is answered where it cannot.
struct Opening {
    command: &'static str,
    refusal: &'static str,
    /// What is undone with it: an interface or a path must not be left either.
    undo: &'static str,
}

const SETUP: &[&str] = &[
    "bridge create b",
    "iol_bridge create i 720",
    "iol_bridge add_nio_udp i 721 0 0 20001 127.0.0.1 30001",
    "iol_bridge add_nio_udp i 721 1 0 20002 127.0.0.1 30002",
    "iol_bridge add_packet_filter i 0 0 f packet_loss 100",
    "iol_bridge create running 722",
    "iol_bridge add_nio_udp running 721 0 0 20003 127.0.0.1 30003",
    "iol_bridge start running",
];

const OPENINGS: &[Opening] = &[
    Opening {
        command: "bridge add_nio_udp b 20004 127.0.0.1 30004",
        refusal: "206-unable to create NIO UDP for bridge 'b'",
        undo: "bridge remove_nio_udp b 20004 127.0.0.1 30004",
    },
    Opening {
        command: "bridge add_nio_unix b local remote",
        refusal: "206-unable to create NIO UNIX for bridge 'b'",
        undo: "bridge delete b",
    },
    Opening {
        command: "bridge add_nio_tap b rbtap0",
        refusal: "206-unable to create NIO TAP for bridge 'b'",
        undo: "bridge delete b",
    },
    Opening {
        command: "bridge add_nio_linux_raw b lo",
        refusal: "206-unable to create NIO Linux raw for bridge 'b'",
        undo: "bridge delete b",
    },
    Opening {
        command: "bridge add_nio_ethernet b lo",
        refusal: "206-unable to create NIO Ethernet for bridge 'b'",
        undo: "bridge delete b",
    },
    Opening {
        command: "bridge start_capture b c.pcap",
        refusal: "209-packet capture could not be started on bridge 'b'",
        undo: "bridge stop_capture b",
    },
    Opening {
        command: "iol_bridge create j 723",
        refusal: "206-could not create IOL bridge 'j': ",
        undo: "iol_bridge delete j",
    },
    Opening {
        command: "iol_bridge start i",
        refusal: "209-IOL bridge 'i' could not be started",
        undo: "iol_bridge stop i",
    },
    Opening {
        command: "iol_bridge add_nio_udp running 721 0 0 20005 127.0.0.1 30005",
        refusal: "206-unable to create NIO UDP for IOL bridge 'running'",
        undo: "iol_bridge delete running",
    },
    Opening {
        command: "iol_bridge add_nio_udp i 721 0 0 20005 127.0.0.1 30005",
        refusal: "206-unable to create NIO UDP for IOL bridge 'i'",
        undo: "iol_bridge delete i",
    },
    Opening {
        command: "docker create_veth rbv0 rbv1",
        refusal: "206-could not open netlink connection",
        undo: "docker delete_veth rbv0",
    },
];

/// Everything that can be seen of the bridges.
fn look(client: &mut Client) -> Vec<Vec<String>> {
    let looks =
        ["bridge list", "bridge show b", "iol_bridge list", "iol_bridge get_stats i", "iol_bridge get_stats running"];
    looks.map(|command| client.tell(command)).to_vec()
}

/// Limits the descriptors of a program so that it can open just `more`.
fn leave(hypervisor: &Hypervisor<'_>, more: usize) {
    let folder = std::fs::read_dir(format!("/proc/{}/fd", hypervisor.id())).expect("it runs").flatten();
    let numbers = folder.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let taken: BTreeSet<usize> = numbers.collect();
    let limit = (0..).filter(|number| !taken.contains(number)).nth(more).expect("some number");
    limit_to(hypervisor, limit);
}

fn limit_to(hypervisor: &Hypervisor<'_>, limit: usize) {
    let arguments = [format!("--pid={}", hypervisor.id()), format!("--nofile={limit}:")];
    let done = std::process::Command::new("prlimit").args(arguments).status();
    assert!(done.expect("prlimit, of util-linux").success());
}

#[test]
fn what_runs_out_of_descriptors_changes_nothing() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    for Opening { command, refusal, undo } in OPENINGS {
        SETUP.iter().for_each(|command| drop(client.tell(command)));
        let before = look(&mut client);
        let descriptors = hypervisor.count("fd");
        let mut refused = 0;
        loop {
            leave(&hypervisor, refused);
            let reply = client.ask(command);
            if reply.last().is_some_and(|line| line.starts_with("100-")) {
                break;
            }
            assert!(reply.len() == 1 && reply[0].starts_with(refusal), "{command}: {reply:?}");
            assert_eq!(look(&mut client), before, "{command} with {refused} descriptors");
            assert_eq!(hypervisor.count("fd"), descriptors, "{command} with {refused} descriptors");
            assert!(!has_interface(&namespace, "rbtap0") && !has_interface(&namespace, "rbv0"));
            assert!(!hypervisor.path("local").exists() && !std::path::Path::new("/tmp/netio0/723").exists());
            refused += 1;
        }
        assert!(refused > 0, "{command} needs no descriptor");
        limit_to(&hypervisor, 1024);
        client.tell(undo);
        client.tell("hypervisor reset");
    }
}
