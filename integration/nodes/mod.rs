//! The commands that gns3-server sends for each type of node, in its order.

mod docker;
mod others;

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use crate::lab::capture_file::frames_so_far;
use crate::lab::{Client, Hypervisor, Namespace, Process, wait_until};

/// Two machines with a wire between them, over which tunnels go.
fn two_hosts() -> [Namespace; 2] {
    let hosts = [(); 2].map(|()| Namespace::new());
    hosts[0].veth("lan0", &hosts[1], "lan0");
    for (number, host) in (1..).zip(&hosts) {
        host.ip(&format!("addr add {} dev lan0", address(number) + "/24"));
    }
    hosts
}

/// The address of a host, counted from 1.
fn address(number: u8) -> String {
    format!("192.0.2.{number}")
}

/// A container, which is a namespace with a process, and the program that serves it.
struct Container<'a> {
    hypervisor: Hypervisor<'a>,
    client: Client,
    namespace: Namespace,
    process: Process,
}

impl<'a> Container<'a> {
    /// A container on a host, with adapters that are not linked.
    fn new(host: &'a Namespace, adapters: u8) -> Self {
        let hypervisor = Hypervisor::start(host);
        let client = hypervisor.client();
        let namespace = Namespace::new();
        let process = Process::inside(&namespace);
        let mut container = Self { hypervisor, client, namespace, process };
        for adapter in 0..adapters {
            container.add_adapter(adapter);
        }
        container
    }

    fn add_adapter(&mut self, adapter: u8) {
        let (bridge, tap, pid) = (format!("bridge{adapter}"), format!("tap-gns3-e{adapter}"), self.process.id());
        for command in [
            format!("bridge create {bridge}"),
            format!("bridge add_nio_tap {bridge} {tap}"),
            format!("docker set_mac_addr {tap} {}", self.mac(adapter)),
            format!("docker move_to_ns {tap} {pid} eth{adapter}"),
        ] {
            self.client.tell(&command);
        }
    }

    fn mac(&self, adapter: u8) -> String {
        let pid = self.process.id().to_be_bytes();
        format!("02:42:{:02x}:{:02x}:{:02x}:{adapter:02x}", pid[1], pid[2], pid[3])
    }

    /// Takes an adapter's interface up, with an address.
    fn configure(&self, adapter: u8, address: &str) {
        self.namespace.ip(&format!("addr add {address}/24 dev eth{adapter}"));
        self.namespace.ip(&format!("link set eth{adapter} up"));
    }

    /// Links an adapter: `tunnel` is its own port, the peer's address and port.
    fn link(&mut self, adapter: u8, tunnel: &str, capture: Option<&Path>) {
        self.client.tell(&format!("bridge add_nio_udp bridge{adapter} {tunnel}"));
        if let Some(file) = capture {
            self.client.tell(&format!("bridge start_capture bridge{adapter} \"{}\"", file.display()));
        }
        self.client.tell(&format!("bridge start bridge{adapter}"));
        self.client.tell(&format!("bridge reset_packet_filters bridge{adapter}"));
    }

    fn unlink(&mut self, adapter: u8, tunnel: &str, is_captured: bool) {
        if is_captured {
            self.client.tell(&format!("bridge stop_capture bridge{adapter}"));
        }
        self.client.tell(&format!("bridge stop bridge{adapter}"));
        self.client.tell(&format!("bridge remove_nio_udp bridge{adapter} {tunnel}"));
    }
}

/// Sends a datagram to an address until it comes back from there.
fn talk(from: &Namespace, to: &Namespace, address: &str, text: &[u8]) {
    const MOMENT: Option<Duration> = Some(Duration::from_millis(50));
    let bind = |namespace: &Namespace, address: &str| {
        let socket = namespace.run(|| UdpSocket::bind(address).expect("an address"));
        socket.set_read_timeout(MOMENT).expect("a timeout");
        socket
    };
    let server = bind(to, &format!("{address}:0"));
    let client = bind(from, "0.0.0.0:0");
    client.connect(server.local_addr().expect("bound")).expect("a route");
    let mut buffer = [0; 2000];
    wait_until("an answer comes", || {
        // There may be no way yet.
        let _ = client.send(text);
        while let Ok((len, peer)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..len], peer);
        }
        client.recv(&mut buffer).is_ok_and(|len| &buffer[..len] == text)
    });
}

/// How many frames of a capture have a text in them.
fn count(file: &Path, text: &[u8]) -> usize {
    let holds = |frame: &&Vec<u8>| frame.windows(text.len()).any(|part| part == text);
    frames_so_far(file).iter().filter(holds).count()
}
