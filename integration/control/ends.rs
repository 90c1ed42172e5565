//! How connections and the program end: every reply is sent, and no connection is reset.

use std::path::Path;

use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGTERM};

use super::{conversation, expect_in_step, expect_replies, script};
use crate::lab::{Client, Hypervisor, Namespace, has_interface};

#[test]
fn close_ends_one_connection_in_order() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut other = hypervisor.client();
    for behind in [0, 1, 1000, 4000] {
        let mut client = hypervisor.client();
        let conversation = conversation();
        client.send(&script(&conversation, "\n"));
        client.send(format!("hypervisor close\n{}", "bridge create behind\n".repeat(behind)).as_bytes());
        expect_replies(&mut client, &conversation);
        assert_eq!(client.rest(), "100-OK\r\n", "{behind} commands behind it");
        assert_eq!(other.ask("bridge list"), ["100-OK"], "none of which was obeyed");
        expect_in_step(&mut other, "another connection");
    }
}

/// Clients with commands under way, whose replies are more than anybody takes who does not read.
fn busy_clients(hypervisor: &Hypervisor<'_>) -> Vec<Client> {
    let mut client = hypervisor.client();
    for number in 0..50 {
        client.tell(&format!("bridge create {number:0>400}"));
    }
    let busy = || {
        let mut client = hypervisor.client();
        client.send("bridge list\n".repeat(2000).as_bytes());
        client
    };
    (0..5).map(|_| busy()).collect()
}

/// A bridge with a TAP and a UNIX socket, and an IOL bridge.
fn build(client: &mut Client, hypervisor: &Hypervisor<'_>, id: u16) {
    client.tell("bridge create b");
    client.tell("bridge add_nio_tap b rbtap0");
    client.tell(&format!("bridge add_nio_unix b {} remote", hypervisor.path("local").display()));
    client.tell("bridge start b");
    client.tell(&format!("iol_bridge create i {id}"));
    client.tell("iol_bridge start i");
}

fn expect_nothing_left(namespace: &Namespace, hypervisor: &Hypervisor<'_>, id: u16) {
    assert!(!has_interface(namespace, "rbtap0"));
    assert!(!hypervisor.path("local").exists());
    for path in [format!("/tmp/netio0/{id}"), format!("/tmp/netio0/{id}.lck")] {
        assert!(!Path::new(&path).exists(), "{path}");
    }
}

/// Ends a hypervisor that has clients of all kinds.
fn end_with_clients(id: u16, end: impl FnOnce(&Hypervisor<'_>, &mut Client)) {
    let namespace = Namespace::new();
    let mut hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    build(&mut client, &hypervisor, id);
    let mut idle = hypervisor.client();
    let mut half = hypervisor.client();
    half.send(b"bridge create half");
    let mut busy = busy_clients(&hypervisor);
    end(&hypervisor, &mut client);
    for client in [&mut client, &mut idle, &mut half] {
        assert_eq!(client.rest(), "");
    }
    busy.iter_mut().for_each(|client| drop(client.rest()));
    assert_eq!(hypervisor.end(), Some(0));
    expect_nothing_left(&namespace, &hypervisor, id);
    let log = hypervisor.log();
    assert!(log.ends_with("Hypervisor: stopped.\n"), "{log}");
}

#[test]
fn stop_ends_everything_in_order() {
    end_with_clients(730, |_, client| {
        client.send(format!("hypervisor stop\n{}", "bridge create behind\n".repeat(1000)).as_bytes());
        assert_eq!(client.reply(), ["100-OK"]);
    });
}

#[test]
fn sigterm_ends_everything_in_order() {
    end_with_clients(731, |hypervisor, _| hypervisor.signal(SIGTERM));
}

#[test]
fn sigint_ends_everything_in_order() {
    end_with_clients(732, |hypervisor, _| hypervisor.signal(SIGINT));
}

#[test]
fn sighup_changes_nothing() {
    let namespace = Namespace::new();
    let mut hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    client.tell("bridge create b");
    for _ in 0..20 {
        hypervisor.signal(SIGHUP);
        assert_eq!(client.ask("bridge list"), ["101 b (NIOs = 0)", "100-OK"]);
    }
    assert!(hypervisor.is_running());
    client.tell("hypervisor stop");
    assert_eq!(hypervisor.end(), Some(0));
}
