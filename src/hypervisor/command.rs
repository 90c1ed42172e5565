//! Modules, their commands, and the way from a command line to the function that answers it.

use super::reply::{Code, Reply};
use crate::lab::Lab;

/// A module of commands.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: &'static str,
    pub(super) commands: &'static [Command],
}

/// A command of a module.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    /// The least and the most words that may follow the command.
    pub(super) arguments: (usize, usize),
    /// Carries it out; there are as many arguments as `arguments` says.
    pub(super) run: fn(&mut Lab, &[&str]) -> Reply,
}

impl Module {
    fn command(&self, name: &str) -> Option<&'static Command> {
        self.commands.iter().find(|command| command.name == name)
    }
}

/// Finds the module called `name`.
pub(super) fn module(name: &str) -> Option<&'static Module> {
    super::MODULES.iter().find(|module| module.name == name)
}

/// Carries out the command that the words of a line make.
pub(super) fn execute(lab: &mut Lab, words: &[&str]) -> Reply {
    let &[module_name, name, ref arguments @ ..] = words else {
        return Reply::new(Code::ParseError, "At least a module and a command must be specified");
    };
    let Some(module) = module(module_name) else {
        return Reply::new(Code::UnknownModule, format!("Unknown module '{module_name}'"));
    };
    let Some(command) = module.command(name) else {
        return Reply::new(Code::UnknownCommand, format!("Unknown command '{name}'"));
    };
    let ((min, max), count) = (command.arguments, arguments.len());
    if !(min..=max).contains(&count) {
        let text = format!("Bad number of parameters ({count} with min/max={min}/{max})");
        return Reply::new(Code::ParameterCount, text);
    }
    (command.run)(lab, arguments)
}

/// What a line of plain words is answered.
#[cfg(test)]
pub(super) fn answer_to(line: &str) -> String {
    use crate::output::{Console, Output};

    let nowhere = || Output::to(std::io::sink()).unwrap();
    let mut lab = Lab { console: Console { stdout: nowhere(), stderr: nowhere() } };
    execute(&mut lab, &line.split_whitespace().collect::<Vec<_>>()).encode()
}
