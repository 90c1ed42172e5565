//! The program as a process with a log, in a folder of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Folder, Namespace, wait_until};

const LOG: &str = "ubridge.log";

/// A running program, killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    folder: Folder,
}

impl Daemon {
    /// The command that runs the program.
    pub(crate) fn command() -> Command {
        Command::new(env!("CARGO_BIN_EXE_rubridge"))
    }

    /// Starts the program by `command` with the words of `arguments` in `folder`, where its log is too.
    pub(crate) fn start(namespace: &Namespace, folder: Folder, mut command: Command, arguments: &str) -> Self {
        let log = File::create(folder.path().join(LOG)).expect("a log file");
        command.args(arguments.split_whitespace()).current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = namespace.run(|| command.spawn()).expect("the program starts");
        let daemon = Self { child, folder };
        wait_until("it catches signals", || daemon.catches(Signal::SIGTERM));
        daemon
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Whether it catches a signal, or has ended already.
    fn catches(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("its status");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).expect("a mask");
        caught & (1 << (signal as i32 - 1)) != 0 || status.contains("State:\tZ")
    }

    /// Its memory, in KiB.
    pub(crate) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Entries of a folder of its /proc folder: `fd`, `task`.
    pub(crate) fn count(&self, what: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{what}", self.id())).expect("it runs").count()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it has printed so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path(LOG)).expect("the log")
    }

    /// Waits until it has printed this; it prints in the background.
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{text} is logged"), || self.log().contains(text));
    }

    /// Waits until it has printed `line`.
    pub(crate) fn until_told(&self, line: &str) {
        wait_until(line, || self.log().lines().any(|told| told == line));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id()), signal).expect("it runs");
    }

    /// Waits until it has ended, and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("it has ended", || {
            status = self.child.try_wait().expect("its status");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("its log:\n{}", std::fs::read_to_string(self.path(LOG)).unwrap_or_default());
        }
    }
}
