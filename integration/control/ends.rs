//! How connections and the program end: every reply is sent, and no connection is reset.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGTERM};

use super::{conversation, expect_in_step, expect_replies, script};
use crate::lab::{Client, Hypervisor, Namespace, has_interface, wait_until};

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

/// The end of a capture waits for its reader, here for one that does not read.
#[test]
fn no_connection_is_reset_when_bridges_take_long_to_end() {
    let namespace = Namespace::new();
    let mut hypervisor = Hypervisor::start(&namespace);
    let fifo = hypervisor.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let _reader = open_fifo(&fifo);
    let mut client = hypervisor.client();
    for command in ["create b", "add_nio_udp b 20001 127.0.0.1 30001", "add_nio_udp b 20002 127.0.0.1 30002"] {
        client.tell(&format!("bridge {command}"));
    }
    client.tell(&format!("bridge start_capture b {}", fifo.display()));
    client.tell("bridge start b");
    let sender = namespace.run(|| UdpSocket::bind("127.0.0.1:30001")).expect("a port");
    sender.connect(SocketAddr::from(([127, 0, 0, 1], 20001))).expect("connected");
    wait_until("the FIFO is full", || {
        (0..64).for_each(|_| drop(sender.send(&[7; 1400])));
        client.stats("b", "Source")[0] > 200
    });

    let mut busy = busy_clients(&hypervisor);
    client.send(b"hypervisor stop\n");
    assert_eq!(client.reply(), ["100-OK"]);
    assert_eq!(client.rest(), "");
    busy.iter_mut().for_each(|client| drop(client.rest()));
    assert_eq!(hypervisor.end(), Some(0));
}

/// Opens a FIFO for reading, which nobody has open for writing.
fn open_fifo(path: &Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).expect("the FIFO")
}

#[test]
fn whoever_has_just_connected_is_not_reset() {
    let namespace = Namespace::new();
    for _ in 0..5 {
        let mut hypervisor = Hypervisor::start(&namespace);
        let mut client = hypervisor.client();
        client.tell("hypervisor version");
        // The server finds these connections and the command together.
        hypervisor.signal(Signal::SIGSTOP);
        let mut late: Vec<Client> = (0..20).map(|_| hypervisor.client()).collect();
        client.send(b"hypervisor stop\n");
        late.extend((0..20).map(|_| hypervisor.client()));
        hypervisor.signal(Signal::SIGCONT);
        assert_eq!(client.rest(), "100-OK\r\n");
        late.iter_mut().for_each(|client| assert_eq!(client.rest(), ""));
        assert_eq!(hypervisor.end(), Some(0));
    }
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
