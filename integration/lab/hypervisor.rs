//! The program in hypervisor mode, and clients of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::Command;

use super::{Daemon, Folder, Namespace, PATIENCE, wait_until};

/// Every namespace has all ports to itself.
pub(crate) const PORT: u16 = 4299;

/// A running `rubridge -H`.
pub(crate) struct Hypervisor<'a> {
    namespace: &'a Namespace,
    address: SocketAddr,
    daemon: Daemon,
}

/// A connection to it.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl<'a> Hypervisor<'a> {
    pub(crate) fn start(namespace: &'a Namespace) -> Self {
        Self::start_with(namespace, "")
    }

    /// Starts it with more options, and waits until it listens.
    pub(crate) fn start_with(namespace: &'a Namespace, options: &str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Self::run(namespace, Daemon::command(), &format!("-H {address} {options}"), address)
    }

    /// Starts it with `arguments`, by which it listens on `address`, and waits until it does.
    pub(crate) fn listening(namespace: &'a Namespace, arguments: &str, address: SocketAddr) -> Self {
        Self::run(namespace, Daemon::command(), arguments, address)
    }

    /// Starts it by `command`, with some privileges or as another file, and waits until it listens.
    pub(crate) fn by(namespace: &'a Namespace, command: Command) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Self::run(namespace, command, &format!("-H {address}"), address)
    }

    /// Starts it so that it may have so many descriptors, and waits until it listens.
    pub(crate) fn limited(namespace: &'a Namespace, descriptors: usize) -> Self {
        // Of util-linux; it becomes the program that it runs.
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={descriptors}")).arg(Daemon::command().get_program());
        Self::by(namespace, command)
    }

    fn run(namespace: &'a Namespace, command: Command, arguments: &str, address: SocketAddr) -> Self {
        let daemon = Daemon::start(namespace, Folder::new(), command, arguments);
        let hypervisor = Self { namespace, address, daemon };
        wait_until("it listens", || namespace.run(|| TcpStream::connect(address)).is_ok());
        hypervisor
    }

    /// A new connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.namespace, self.address)
    }
}

impl Deref for Hypervisor<'_> {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl DerefMut for Hypervisor<'_> {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.daemon
    }
}

impl Client {
    pub(crate) fn connect(namespace: &Namespace, address: SocketAddr) -> Self {
        Self::over(namespace.run(|| TcpStream::connect(address)).expect("a connection"))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Self { stream, reader }
    }

    /// Sends a line and returns the lines of the reply, without their ends.
    pub(crate) fn ask(&mut self, command: &str) -> Vec<String> {
        self.send(format!("{command}\n").as_bytes());
        self.reply()
    }

    /// Sends a line that must succeed.
    pub(crate) fn tell(&mut self, command: &str) -> Vec<String> {
        let reply = self.ask(command);
        assert!(reply.last().is_some_and(|line| line.starts_with("100-")), "{command}: {reply:?}");
        reply
    }

    /// Sends lines that must succeed.
    pub(crate) fn tell_all(&mut self, commands: &[&str]) {
        for command in commands {
            self.tell(command);
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    /// The next reply; empty where the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).expect("a reply in time, and no reset") == 0 {
                return lines;
            }
            let line = line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no CR LF: {line:?}"));
            lines.push(line.to_owned());
            if line.as_bytes().get(3) == Some(&b'-') {
                return lines;
            }
        }
    }

    /// What still comes until the server closes the connection, in order: it must not reset it.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).expect("the end of the connection, and no reset");
        String::from_utf8(rest).expect("UTF-8")
    }

    /// Frames and bytes received and sent by the NIO whose line starts with `title`.
    pub(crate) fn stats(&mut self, bridge: &str, title: &str) -> [u64; 4] {
        let reply = self.tell(&format!("bridge get_stats {bridge}"));
        let line = reply.iter().find(|line| line.contains(title)).expect("the NIO's line");
        let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        numbers.skip(1).collect::<Vec<_>>().try_into().expect("four numbers")
    }

    /// Waits until the NIO whose line starts with `title` has received so many frames.
    pub(crate) fn wait_for_frames(&mut self, bridge: &str, title: &str, frames: u64) {
        wait_until("all frames are received", || self.stats(bridge, title)[0] == frames);
    }
}

/// Whether an interface is in the namespace.
pub(crate) fn has_interface(namespace: &Namespace, name: &str) -> bool {
    namespace.command("ip", "-o link show").lines().any(|line| {
        let second = line.split_whitespace().nth(1).unwrap_or_default();
        second.trim_end_matches(':').split('@').next() == Some(name)
    })
}
