//! Network namespaces without a name: they vanish with the last descriptor, however the test ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, setns, unshare};
use nix::unistd::Pid;

use super::wait_until;

/// A network namespace of a test's own.
#[derive(Debug)]
pub(crate) struct Namespace(File);

impl Namespace {
    pub(crate) fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests make network namespaces: run them as root");
        let create = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace");
            File::open("/proc/thread-self/ns/net").expect("the namespace's file")
        };
        let namespace = Self(std::thread::spawn(create).join().expect("the thread"));
        namespace.ip("link set lo up");
        // Without this the first frames of a transfer over IPv6 wait for duplicate address detection.
        namespace.set("ipv6/conf/default/accept_dad", "0");
        namespace
    }

    /// One whose kernel sends no frames of its own accord, as IPv6 does on every interface.
    pub(crate) fn quiet() -> Self {
        let namespace = Self::new();
        namespace.set("ipv6/conf/default/disable_ipv6", "1");
        namespace
    }

    /// Sets one of the namespace's switches, by its path in /proc/sys/net.
    pub(crate) fn set(&self, switch: &str, value: &str) {
        self.run(|| std::fs::write(format!("/proc/sys/net/{switch}"), value).expect("sysctl"));
    }

    /// Runs `task` on a thread inside the namespace; a process that it starts lives there too.
    pub(crate) fn run<T: Send>(&self, task: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("entering the namespace");
            task()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Runs `ip` with the words of `arguments`.
    pub(crate) fn ip(&self, arguments: &str) {
        self.command("ip", arguments);
    }

    /// Switches features of an interface. ethtool complains of what a change brings along with it, so only the
    /// result counts.
    pub(crate) fn ethtool(&self, interface: &str, features: &str) {
        let words: Vec<&str> = features.split_whitespace().collect();
        let output = self.run(|| Command::new("ethtool").args(["-K", interface]).args(&words).output());
        let output = output.expect("ethtool, of the package ethtool");
        assert!(output.status.success(), "ethtool -K {interface} {features}: {output:?}");
    }

    /// What `ethtool -k` says of one feature of an interface.
    pub(crate) fn feature(&self, interface: &str, feature: &str) -> bool {
        let output = self.command("ethtool", &format!("-k {interface}"));
        let line = output.lines().find_map(|line| line.trim().strip_prefix(feature)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no feature {feature}")).starts_with("on")
    }

    /// Runs a program to its successful end, and returns what it printed.
    pub(crate) fn command(&self, program: &str, arguments: &str) -> String {
        let output = self.run(|| Command::new(program).args(arguments.split_whitespace()).output());
        let output = output.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{program} {arguments}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// A path by which other processes can name the namespace.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Makes a veth pair, one end here and the other in `other`, both up and running.
    pub(crate) fn veth(&self, name: &str, other: &Self, other_name: &str) {
        self.ip(&format!("link add {name} type veth peer name {other_name} netns {}", other.path()));
        self.ip(&format!("link set {name} up"));
        other.ip(&format!("link set {other_name} up"));
        self.wait_for_link(name);
        other.wait_for_link(other_name);
    }

    /// Waits until an interface that is up really sends: until its carrier has been noticed, the kernel
    /// silently drops what it is given.
    pub(crate) fn wait_for_link(&self, name: &str) {
        let words = format!("-o link show dev {name}");
        wait_until("the link is up", || self.command("ip", &words).contains("state UP"));
    }

    /// Moves an interface from here to `other`.
    pub(crate) fn move_to(&self, interface: &str, other: &Self) {
        self.ip(&format!("link set {interface} netns {}", other.path()));
    }

    /// The index of an interface.
    pub(crate) fn index(&self, interface: &str) -> u32 {
        self.run(|| nix::net::if_::if_nametoindex(interface).expect("the interface's index"))
    }
}

/// Keeps this thread, and the threads and processes it will start, on one CPU: veth keeps the order of frames
/// only within a CPU. Tests spread over the CPUs.
pub(crate) fn stay_on_one_cpu() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the CPUs");
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)).collect();
    let mut one = CpuSet::new();
    one.set(cpus[NEXT.fetch_add(1, Relaxed) % cpus.len()]).expect("a CPU within the set");
    sched_setaffinity(Pid::from_raw(0), &one).expect("staying on one CPU");
}
