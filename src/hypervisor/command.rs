//! What modules and commands are made of.

use super::reply::Reply;
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
    pub(super) run: fn(&mut Lab, &[&str]) -> Answer,
}

/// The reply to a command, as an error where it failed.
pub(super) type Answer = Result<Reply, Reply>;

impl Module {
    /// The command called `name`.
    pub(super) fn command(&self, name: &str) -> Option<&'static Command> {
        self.commands.iter().find(|command| command.name == name)
    }
}
