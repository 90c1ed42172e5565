//! The program under test, as a process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Namespace;

/// A running `rubridge bridge`, killed when dropped.
pub(crate) struct Rubridge {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it said before it began to forward.
    pub(crate) plan: String,
}

impl Rubridge {
    pub(crate) fn command(arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rubridge"));
        command.args(arguments.split_whitespace());
        command
    }

    /// Starts it in a namespace, with the words of `arguments` behind `bridge`, and waits until it forwards.
    pub(crate) fn start(namespace: &Namespace, arguments: &str) -> Self {
        let spawn = || Self::command(&format!("bridge {arguments}")).stdout(Stdio::piped()).spawn();
        let mut child = namespace.run(spawn).expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut plan = String::new();
        while !plan.lines().any(|line| line.starts_with("forwarding")) {
            let read = stdout.read_line(&mut plan).expect("readable");
            assert!(read > 0, "it ended with {:?} before it forwarded: {plan}", child.wait());
        }
        Self { child, stdout, plan }
    }

    /// Waits until it reports, with `--stats`, that it dropped frames on their way to the NIO `to`.
    pub(crate) fn until_dropped(&mut self, to: &str) {
        let mut line = String::new();
        while !line.starts_with(&format!("-> {to}: ")) || line.trim_end().ends_with("dropped 0") {
            line.clear();
            assert!(self.stdout.read_line(&mut line).expect("readable") > 0, "it ended with {:?}", self.child.wait());
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("it runs");
    }

    /// Ends it with `signal`, expects a clean end, and returns what it counted.
    pub(crate) fn stop(mut self, signal: Signal) -> Totals {
        self.signal(signal);
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("readable");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {text}");
        Totals(text)
    }
}

impl Drop for Rubridge {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The totals that the program prints at its end.
#[derive(Debug)]
pub(crate) struct Totals(pub(crate) String);

impl Totals {
    /// The line of the direction that starts at the NIO `from`.
    pub(crate) fn direction(&self, from: &str) -> &str {
        let line = self.0.lines().find(|line| line.starts_with(&format!("{from} -> ")));
        line.unwrap_or_else(|| panic!("no direction from {from}: {}", self.0))
    }

    /// The number before or after the words around it: `number(nic, "super-frames {} whole")`.
    pub(crate) fn number(&self, from: &str, pattern: &str) -> u64 {
        let line = self.direction(from);
        let (before, after) = pattern.split_once("{}").expect("a pattern with {}");
        let found = line.match_indices(before).find_map(|(at, _)| {
            let rest = &line[at + before.len()..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            (digits > 0 && rest[digits..].starts_with(after)).then(|| rest[..digits].parse().ok())?
        });
        found.unwrap_or_else(|| panic!("no {pattern} in {line}"))
    }
}
