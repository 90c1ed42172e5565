//! Several clients at once, and those that go away, or stop reading, in the middle.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use super::{VERSION, conversation, expect_in_step, expect_replies, script};
use crate::lab::{Client, Hypervisor, Namespace, PORT, wait_until};

/// Has closing a connection reset it, as the end of a process with unread replies does.
fn reset_on_close(client: &Client) {
    SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).expect("no lingering");
}

#[test]
fn clients_share_all_bridges() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let [mut one, mut two] = [(); 2].map(|()| hypervisor.client());
    one.tell("bridge create b");
    one.tell("bridge add_nio_udp b 20001 127.0.0.1 30001");
    assert_eq!(two.ask("bridge list"), ["101 b (NIOs = 1)", "100-OK"]);
    two.tell("bridge add_nio_udp b 20002 127.0.0.1 30002");
    one.tell("bridge start b");
    assert_eq!(two.ask("bridge start b"), ["209-bridge 'b' is already running"]);
    two.tell("bridge delete b");
    assert_eq!(one.ask("bridge stop b"), ["214-bridge 'b' doesn't exist"]);
}

#[test]
fn ten_clients_at_once_get_their_own_replies() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let talk = |number: usize| {
        let mut client = hypervisor.client();
        let mut made = 0;
        for round in 0..100 {
            let own = format!("own-{number}-{round}");
            client.send(format!("bridge create {own}\nbridge create shared-{round}\nbridge show {own}\n").as_bytes());
            assert_eq!(client.reply(), [format!("100-bridge '{own}' created")]);
            let shared = client.reply();
            let is_first = shared == [format!("100-bridge 'shared-{round}' created")];
            assert!(is_first || shared == [format!("206-bridge 'shared-{round}' already exist")], "{shared:?}");
            made += usize::from(is_first);
            assert_eq!(client.reply(), [format!("101 bridge '{own}' is not running"), "100-OK".to_owned()]);
            client.tell(&format!("bridge delete {own}"));
        }
        made
    };
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|number| scope.spawn(move || talk(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("all goes well")).sum::<usize>()
    });
    assert_eq!(made, 100, "each shared bridge was made by one");
    assert_eq!(hypervisor.client().tell("bridge list").len(), 101);
}

/// Renames that build on each other, so that none can be lost, doubled or moved without being noticed.
const RENAMES: usize = 16_000;

fn long_name(number: usize) -> String {
    format!("{number:0>400}")
}

/// A connection whose client can take little before it reads.
fn narrow_connection(namespace: &Namespace) -> TcpStream {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_recv_buffer_size(128 << 10)?;
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).into())?;
        Ok::<_, std::io::Error>(TcpStream::from(socket))
    };
    namespace.run(connect).expect("a connection")
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut other = hypervisor.client();
    other.tell(&format!("bridge create {}", long_name(0)));
    let before = hypervisor.memory();
    let commands =
        (0..RENAMES).map(|number| format!("bridge rename {} {}\n", long_name(number), long_name(number + 1)));
    let commands = commands.collect::<String>();
    let mut stream = narrow_connection(&namespace);
    stream.set_nonblocking(true).expect("no waiting");
    let mut unsent = commands.as_bytes();
    // Whenever the server answers the other client, it has given this one a turn: if nothing moves over many
    // answers, the server waits for this client to read.
    let (mut last, mut unmoved) = (Vec::new(), 0);
    wait_until("the server takes no more", || {
        let rest = unsent.len();
        while let Ok(sent) = stream.write(unsent) {
            unsent = &unsent[sent..];
            assert!(!unsent.is_empty(), "the server has taken everything, the test needs more");
        }
        let now = other.tell("bridge list");
        unmoved = if now == last && rest == unsent.len() { unmoved + 1 } else { 0 };
        last = now;
        unmoved == 50
    });
    let grown = hypervisor.memory().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB are kept for a client that does not read");
    assert_eq!(other.ask("hypervisor version"), [VERSION]);
    assert_eq!(hypervisor.client().ask("hypervisor version"), [VERSION]);

    stream.set_nonblocking(false).expect("waiting");
    let mut sender = stream.try_clone().expect("a second handle");
    let mut client = Client::over(stream);
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write_all(unsent).expect("the server takes the rest"));
        for number in 0..RENAMES {
            let (old, new) = (long_name(number), long_name(number + 1));
            assert_eq!(client.reply(), [format!("100-bridge '{old}' renamed to '{new}'")]);
        }
    });
    expect_in_step(&mut client, "in the end");
}

#[test]
fn a_client_that_never_reads_may_go() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    wait_until("the first connection is closed", || hypervisor.count("fd") == idle_descriptors(&hypervisor));
    let idle = hypervisor.count("fd");
    for reset in [false, true] {
        let stream = narrow_connection(&namespace);
        stream.set_nonblocking(true).expect("no waiting");
        let mut client = Client::over(stream);
        while client.stream.write("hypervisor cmd_list bridge\n".repeat(1000).as_bytes()).is_ok() {}
        if reset {
            reset_on_close(&client);
        } else {
            client.stream.shutdown(Shutdown::Write).expect("closed for writing");
            assert_eq!(hypervisor.client().ask("hypervisor version"), [VERSION]);
        }
        drop(client);
        wait_until("its descriptor is free", || hypervisor.count("fd") == idle);
    }
    assert_eq!(hypervisor.client().ask("hypervisor version"), [VERSION]);
}

/// The descriptors of a hypervisor without clients, by a look at what they are.
fn idle_descriptors(hypervisor: &Hypervisor<'_>) -> usize {
    let folder = format!("/proc/{}", hypervisor.id());
    let names = std::fs::read_dir(format!("{folder}/fd")).expect("it runs").flatten();
    let tcp = std::fs::read_to_string(format!("{folder}/net/tcp")).expect("it runs");
    // A connection that is established or half-closed (01, 08), by the inode in the tenth column.
    let connections = tcp.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(*words.get(3)?, "01" | "08").then(|| format!("socket:[{}]", words[9]))
    });
    let connections: Vec<String> = connections.collect();
    let is_connection = |name: &std::fs::DirEntry| {
        let target = std::fs::read_link(name.path()).unwrap_or_default();
        connections.iter().any(|connection| target.as_os_str() == connection.as_str())
    };
    names.filter(|name| !is_connection(name)).count()
}

#[test]
fn dead_clients_are_reaped() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut observer = hypervisor.client();
    observer.tell("hypervisor version");
    wait_until("only one client is left", || hypervisor.count("fd") == idle_descriptors(&hypervisor) + 1);
    let (descriptors, threads) = (hypervisor.count("fd"), hypervisor.count("task"));
    let ways: [fn(Client); 6] = [
        drop,
        |client| client.stream.shutdown(Shutdown::Both).expect("closed"),
        |mut client| drop(client.ask("hypervisor version")),
        |mut client| client.send(b"bridge create half-a-comm"),
        |mut client| client.send("hypervisor cmd_list bridge\n".repeat(100).as_bytes()),
        |mut client| {
            client.send(b"bridge list\nbridge create \"half");
            reset_on_close(&client);
        },
    ];
    for _ in 0..10 {
        for way in ways {
            way(hypervisor.client());
        }
    }
    wait_until("their descriptors are free", || hypervisor.count("fd") == descriptors);
    assert_eq!(hypervisor.count("task"), threads);
    assert_eq!(observer.ask("bridge list"), ["100-OK"], "half a command is none");
}

#[test]
fn a_half_closed_client_gets_all_its_replies() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    for last in ["", "bridge create without-an-end"] {
        let mut client = hypervisor.client();
        let conversation = conversation();
        client.send(&script(&conversation, "\n"));
        client.send("hypervisor cmd_list bridge\n".repeat(3000).as_bytes());
        client.send(last.as_bytes());
        client.stream.shutdown(Shutdown::Write).expect("closed for writing");
        expect_replies(&mut client, &conversation);
        let mut other = hypervisor.client();
        let listing = other.tell("hypervisor cmd_list bridge");
        for _ in 0..3000 {
            assert_eq!(client.reply(), listing);
        }
        assert_eq!(client.rest(), "");
        assert_eq!(other.ask("bridge list"), ["100-OK"]);
    }
}

#[test]
fn clients_beyond_the_limit_of_descriptors_have_their_turn_later() {
    const DESCRIPTORS: usize = 40;
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::limited(&namespace, DESCRIPTORS);
    let mut first = hypervisor.client();
    first.tell("bridge create b");
    first.tell("iol_bridge create i 739");
    first.tell("iol_bridge add_nio_udp i 740 0 0 20001 127.0.0.1 30001");
    let mut clients: Vec<Client> = (0..60).map(|_| hypervisor.client()).collect();
    clients.iter_mut().for_each(|client| client.send(b"hypervisor version\n"));
    // Those above may have been inherited.
    let numbers = || std::fs::read_dir(format!("/proc/{}/fd", hypervisor.id())).expect("it runs").flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<usize>().ok());
    let taken = || numbers().filter_map(number).filter(|&number| number < DESCRIPTORS).count();
    wait_until("all descriptors are taken", || taken() == DESCRIPTORS);
    let last = &clients.last().expect("many").stream;
    last.set_nonblocking(true).expect("no waiting");
    assert_eq!(last.peek(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock), "not served yet");
    last.set_nonblocking(false).expect("waiting");

    nothing_is_left_half_made(&mut first, &hypervisor);
    for mut client in clients {
        assert_eq!(client.reply(), [VERSION], "served when others leave");
    }
    first.tell("iol_bridge start i");
    assert_eq!(first.ask("iol_bridge list"), ["101 i (ports = 1)", "100-OK"]);
    first.tell("iol_bridge stop i");
    first.tell("bridge add_nio_udp b 20001 127.0.0.1 30001");
    first.tell("hypervisor reset");
}

/// Commands that need descriptors, where there are none.
fn nothing_is_left_half_made(client: &mut Client, hypervisor: &Hypervisor<'_>) {
    let local = hypervisor.path("local");
    for (command, reply) in [
        ("bridge add_nio_udp b 20002 127.0.0.1 30002", "206-unable to create NIO UDP for bridge 'b'"),
        ("bridge add_nio_tap b rbtap0", "206-unable to create NIO TAP for bridge 'b'"),
        ("bridge add_nio_unix b local remote", "206-unable to create NIO UNIX for bridge 'b'"),
        ("bridge add_nio_linux_raw b lo", "206-unable to create NIO Linux raw for bridge 'b'"),
        ("bridge add_nio_ethernet b lo", "206-unable to create NIO Ethernet for bridge 'b'"),
        ("bridge start_capture b c.pcap", "209-packet capture could not be started on bridge 'b'"),
        ("iol_bridge create j 738", "206-could not create IOL bridge 'j': could not get lock on /tmp/netio0/738.lck"),
        ("iol_bridge start i", "209-IOL bridge 'i' could not be started"),
        ("iol_bridge start i", "209-IOL bridge 'i' could not be started"),
        ("iol_bridge stop i", "210-IOL bridge 'i' is not running"),
        ("docker create_veth rbv0 rbv1", "206-could not open netlink connection"),
    ] {
        assert_eq!(client.ask(command), [reply], "{command}");
    }
    assert_eq!(client.ask("bridge show b"), ["101 bridge 'b' is not running", "100-OK"]);
    assert_eq!(client.ask("iol_bridge list"), ["101 i (ports = 1)", "100-OK"]);
    assert!(!local.exists() && !std::path::Path::new("/tmp/netio0/738").exists());
}
