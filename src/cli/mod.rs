//! The command line: ubridge's own, which gns3-server uses, and subcommands.
#![forbid(unsafe_code)]

mod bind;
mod bridge;
mod classic;
mod devices;
mod file;
mod hypervisor;
mod offload;
mod report;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::classic::Action;
use crate::hypervisor::UBRIDGE_VERSION;
use crate::output::{Console, Output};

/// A userspace bridge that leaves every offload on: super-frames pass whole where the other side can take
/// them, and are cut as the kernel would where it cannot.
#[derive(Debug, Parser)]
#[command(name = "rubridge", version, after_help = "Without a command it does the work of ubridge: see `rubridge -h`")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bridge(bridge::Arguments),
}

/// Runs the program and says how it ended: 0 well, 1 with an error on stderr, 2 for a wrong command line of a
/// subcommand.
#[must_use]
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_else(|| "ubridge".into());
    let words: Vec<OsString> = words.collect();
    if words.first().is_some_and(|word| is_subcommand(word)) {
        let Command::Bridge(arguments) = Arguments::parse().command;
        return run(0, |console| bridge::run(&arguments, &console.stdout));
    }
    match classic::parse(words.into_iter()) {
        Ok(Action::Version) => print(&format!("ubridge {}\n", version())),
        Ok(Action::Help) => print(classic::USAGE),
        Ok(Action::ListDevices) => list_devices(),
        Ok(Action::Hypervisor(options)) => run(options.debug, |console| hypervisor::run(&options, console)),
        Ok(Action::File(options)) => run(options.debug, |console| file::run(&options, console)),
        Err(error) => {
            complain(&format!("{}: {error}", program.to_string_lossy()));
            ExitCode::FAILURE
        }
    }
}

/// What this program answers to, and what it is.
fn version() -> String {
    format!("version {UBRIDGE_VERSION} (rubridge {})", env!("CARGO_PKG_VERSION"))
}

/// Whether the first word is for clap. Everything else is a command line of ubridge.
fn is_subcommand(word: &OsStr) -> bool {
    ["help", "--help", "--version", "-V"].iter().any(|known| word == *known)
        || word.to_str().is_some_and(|word| Arguments::command().find_subcommand(word).is_some())
}

/// That there is no list is no failure: ubridge's users know it so.
fn list_devices() -> ExitCode {
    match devices::list() {
        Ok(list) => print(&list),
        Err(error) => {
            complain(&format!("PCAP: unable to find device list ({error})"));
            ExitCode::SUCCESS
        }
    }
}

/// Prints all of a text before it returns: the reader waits for it, unlike for lines of a running bridge.
fn print(text: &str) -> ExitCode {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Puts a line on stderr, if there is one.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Does what needs the output streams, and logs.
fn run(debug: u8, action: impl FnOnce(&Console) -> anyhow::Result<()>) -> ExitCode {
    let (Ok(stdout), Ok(stderr)) = (Output::to(std::io::stdout()), Output::to(std::io::stderr())) else {
        // No thread can be started, so there is nobody to tell.
        return ExitCode::FAILURE;
    };
    let log = stderr.clone();
    tracing_subscriber::fmt().with_writer(move || log.clone()).with_target(false).with_ansi(false).init();
    let console = Console { stdout, stderr, debug };
    let code = match action(&console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console.stderr.say(&format!("rubridge: {error:#}"));
            ExitCode::FAILURE
        }
    };
    console.flush();
    code
}
