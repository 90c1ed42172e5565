//! Where the server listens, and whom it lets in.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use super::VERSION;
use crate::lab::{Client, Hypervisor, Namespace, PORT, Rubridge, wait_until};

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().expect("an address"), PORT)
}

/// Another connection, besides the one of loopback, gets an answer.
fn is_served(namespace: &Namespace, address: &str) -> bool {
    let mut client = Client::connect(namespace, at(address));
    // One who is turned away may find its connection reset when it sends.
    let sent = std::io::Write::write_all(&mut client.stream, b"hypervisor version\n");
    let mut first = [0; VERSION.len()];
    sent.is_ok() && std::io::Read::read_exact(&mut client.stream, &mut first).is_ok() && first == *VERSION.as_bytes()
}

#[test]
fn every_form_of_an_address_is_listened_on() {
    let namespace = Namespace::new();
    namespace.ip("link add rbown0 up type veth peer name rbown1");
    namespace.ip("link set rbown1 up");
    namespace.wait_for_link("rbown0");
    namespace.ip("address add 10.99.0.1/24 dev rbown0");
    namespace.ip("address add fd99::1/64 dev rbown0 nodad");
    let addresses = ["127.0.0.1", "::1", "10.99.0.1", "fd99::1"];
    for (bind, served) in [
        ("127.0.0.1:4299", &["127.0.0.1"][..]),
        ("4299", &["127.0.0.1", "10.99.0.1"]),
        (":4299", &["127.0.0.1", "10.99.0.1"]),
        ("0.0.0.0:4299", &["127.0.0.1", "10.99.0.1"]),
        (":::4299", &addresses),
        ("[::]:4299", &addresses),
        ("[::1]:4299", &["::1"]),
        ("::1:4299", &["::1"]),
        ("10.99.0.1:4299", &["10.99.0.1"]),
        ("[fd99::1]:4299", &["fd99::1"]),
    ] {
        let mut hypervisor = Hypervisor::listening(&namespace, &format!("-H {bind}"), at(served[0]));
        for address in addresses {
            if served.contains(&address) {
                assert!(is_served(&namespace, address), "{address} of {bind}");
            } else {
                let refused = namespace.run(|| std::net::TcpStream::connect(at(address)));
                assert_eq!(
                    refused.map_err(|e| e.kind()).err(),
                    Some(ErrorKind::ConnectionRefused),
                    "{address} of {bind}"
                );
            }
        }
        hypervisor.client().tell("hypervisor stop");
        assert_eq!(hypervisor.end(), Some(0));
    }
}

#[test]
fn localhost_is_listened_on() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::listening(&namespace, "-H localhost:4299", at("127.0.0.1"));
    assert_eq!(hypervisor.client().ask("hypervisor version"), [VERSION]);
}

#[test]
fn it_goes_by_the_name_of_ubridge() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let name = std::fs::read_to_string(format!("/proc/{}/comm", hypervisor.id())).expect("it runs");
    assert_eq!(name, "ubridge\n");
}

#[test]
fn a_port_in_use_is_told() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    for bind in ["127.0.0.1:4299", "4299", ":::4299"] {
        let output = namespace.run(|| Rubridge::command(&format!("-H {bind}")).output()).expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{bind}: {complaint}");
        assert!(complaint.lines().any(|line| line == "Hypervisor: unable to create TCP sockets."), "{complaint}");
    }
    assert_eq!(hypervisor.client().ask("hypervisor version"), [VERSION]);
}

/// A host with a hypervisor, and a stranger with a way to it.
fn host_and_stranger() -> [Namespace; 2] {
    let [host, stranger] = [(); 2].map(|()| Namespace::new());
    host.veth("rbh0", &stranger, "rbs0");
    for (namespace, interface, number) in [(&host, "rbh0", 1), (&stranger, "rbs0", 2)] {
        namespace.ip(&format!("address add 10.99.0.{number}/24 dev {interface}"));
        namespace.ip(&format!("address add fd99::{number}/64 dev {interface} nodad"));
    }
    [host, stranger]
}

#[test]
fn only_this_machine_may_connect() {
    let [host, stranger] = host_and_stranger();
    let hypervisor = Hypervisor::listening(&host, "-H :::4299", at("127.0.0.1"));
    for (number, address) in ["10.99.0.1", "fd99::1"].into_iter().enumerate() {
        assert!(is_served(&host, address), "{address}");
        let mut turned_away = Client::connect(&stranger, at(address));
        assert_eq!(turned_away.rest(), "");
        let told = || hypervisor.log().lines().filter(|line| line.contains("a client was turned away")).count();
        wait_until("it is told", || told() == 2 * number + 1);
        assert!(!is_served(&stranger, address), "{address}");
        wait_until("it is told", || told() == 2 * number + 2);
    }
    assert!(hypervisor.log().contains("--allow-remote-control"), "{}", hypervisor.log());
    assert_eq!(hypervisor.client().ask("hypervisor version"), [VERSION]);
}

#[test]
fn other_machines_may_connect_where_that_is_wanted() {
    let [host, stranger] = host_and_stranger();
    for arguments in ["--allow-remote-control -H :::4299", "-H :::4299 --allow-remote-control"] {
        let mut hypervisor = Hypervisor::listening(&host, arguments, at("127.0.0.1"));
        assert!(is_served(&stranger, "10.99.0.1") && is_served(&stranger, "fd99::1"), "{}", hypervisor.log());
        hypervisor.client().tell("hypervisor stop");
        assert_eq!(hypervisor.end(), Some(0));
    }
}

#[test]
fn a_port_that_does_not_exist_is_refused() {
    for bind in ["70000", "127.0.0.1:65536", "-1"] {
        let output = Command::new(env!("CARGO_BIN_EXE_rubridge")).arg("-H").arg(bind).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{bind}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("is not between 1 and 65535"), "{bind}");
    }
}
