//! The modules of commands, and the way from a command line to the function that answers it.

mod brctl;
mod bridge;
mod docker;
mod general;
mod iol_bridge;
mod kernel;
mod shared;

use super::command::{Answer, Module};
use super::reply::{Code, Reply};
use crate::lab::Lab;

/// Every module, in the order in which they are registered; they are listed the other way round.
const MODULES: &[&Module] = &[&general::MODULE, &bridge::MODULE, &docker::MODULE, &iol_bridge::MODULE, &brctl::MODULE];

/// Finds the module called `name`.
fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().copied().find(|module| module.name == name)
}

/// Carries out the command that the words of a line make.
pub(super) fn execute(lab: &mut Lab, words: &[&str]) -> Answer {
    let &[module_name, name, ref arguments @ ..] = words else {
        return Reply::failed(Code::ParseError, "At least a module and a command must be specified");
    };
    let Some(module) = module(module_name) else {
        return Reply::failed(Code::UnknownModule, format!("Unknown module '{module_name}'"));
    };
    let Some(command) = module.command(name) else {
        return Reply::failed(Code::UnknownCommand, format!("Unknown command '{name}'"));
    };
    let ((min, max), count) = (command.arguments, arguments.len());
    if !(min..=max).contains(&count) {
        let text = format!("Bad number of parameters ({count} with min/max={min}/{max})");
        return Reply::failed(Code::ParameterCount, text);
    }
    (command.run)(lab, arguments)
}

/// What a line of plain words is answered.
#[cfg(test)]
pub(super) fn answer_to(line: &str) -> String {
    use crate::engine::Engine;
    use crate::nio::Mode;
    use crate::output::{Console, Output};

    let nowhere = || Output::to(std::io::sink()).unwrap();
    let console = Console { stdout: nowhere(), stderr: nowhere(), debug: 0 };
    let mut lab = Lab::new(console, Mode::Plain, Engine::start().unwrap());
    let (Ok(reply) | Err(reply)) = execute(&mut lab, &line.split_whitespace().collect::<Vec<_>>());
    reply.encode()
}
