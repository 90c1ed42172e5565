//! The command line.
#![forbid(unsafe_code)]

mod bridge;
mod offload;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Output;

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
    let (Ok(stdout), Ok(stderr)) = (Output::to(std::io::stdout()), Output::to(std::io::stderr())) else {
        // No thread can be started, so there is nobody to tell.
        return ExitCode::FAILURE;
    };
    let log = stderr.clone();
    tracing_subscriber::fmt().with_writer(move || log.clone()).with_target(false).with_ansi(false).init();
    let done = match arguments.command {
        Command::Bridge(arguments) => bridge::run(&arguments, &stdout),
    };
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr.say(&format!("rubridge: {error:#}"));
            ExitCode::FAILURE
        }
    };
    stdout.finish();
    stderr.finish();
    code
}
