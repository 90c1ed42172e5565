//! The command line.
#![forbid(unsafe_code)]

mod bridge;
mod offload;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A userspace bridge that leaves every offload on: super-frames pass whole where the other side can take
/// them, and are cut as the kernel would where it cannot.
#[derive(Debug, Parser)]
#[command(name = "rubridge", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bridge(bridge::Arguments),
}

/// Runs the program and says how it ended: 0 well, 1 with an error on stderr, 2 for a wrong command line.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let done = match arguments.command {
        Command::Bridge(arguments) => bridge::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rubridge: {error:#}");
            ExitCode::FAILURE
        }
    }
}
