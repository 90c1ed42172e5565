//! The module `hypervisor`: about the program and the connection.

use super::{MODULES, module};
use crate::hypervisor::UBRIDGE_VERSION;
use crate::hypervisor::command::{Answer, Command, Module};
use crate::hypervisor::reply::{After, Code, Reply};

pub(in crate::hypervisor) const MODULE: Module = Module {
    name: "hypervisor",
    commands: &[
        Command { name: "version", arguments: (0, 0), run: |_, _| Ok(Reply::ok(UBRIDGE_VERSION)) },
        Command { name: "module_list", arguments: (0, 0), run: |_, _| module_list() },
        Command { name: "cmd_list", arguments: (1, 1), run: |_, arguments| command_list(arguments[0]) },
        Command {
            name: "reset",
            arguments: (0, 0),
            run: |lab, _| {
                lab.reset();
                Ok(Reply::done())
            },
        },
        Command { name: "close", arguments: (0, 0), run: |_, _| Ok(Reply::done().then(After::Close)) },
        Command { name: "stop", arguments: (0, 0), run: |_, _| Ok(Reply::done().then(After::Stop)) },
    ],
};

fn module_list() -> Answer {
    Ok(Reply::done().with_lines(MODULES.iter().rev().map(|module| module.name.to_owned())))
}

fn command_list(name: &str) -> Answer {
    let Some(module) = module(name) else {
        return Reply::failed(Code::UnknownModule, format!("unknown module '{name}'"));
    };
    let line = |command: &Command| {
        let (min, max) = command.arguments;
        format!("{} (min/max args: {min}/{max})", command.name)
    };
    Ok(Reply::done().with_lines(module.commands.iter().rev().map(line)))
}
