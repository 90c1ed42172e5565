//! Bridges between IOL instances and tunnels.

use std::collections::BTreeMap;

use super::ends::end_in_every_state;
use super::{Model, Trial, ok};
use crate::lab::with_own_tmp;

/// The bridges, newest first.
#[derive(Default)]
struct IolBridges(Vec<IolBridge>);

struct IolBridge {
    name: String,
    running: bool,
    /// Tunnels by unit and bay.
    ports: BTreeMap<(String, String), String>,
}

impl IolBridges {
    fn find(&mut self, name: &str) -> Option<&mut IolBridge> {
        self.0.iter_mut().find(|bridge| bridge.name == name)
    }

    fn create(&mut self, name: &str) -> String {
        if self.find(name).is_some() {
            return format!("206-IOL bridge '{name}' already exist");
        }
        // All have the same id.
        if !self.0.is_empty() {
            return format!("206-could not create IOL bridge '{name}': PID <pid> already has a lock on ID 700");
        }
        self.0.insert(0, IolBridge { name: name.to_owned(), running: false, ports: BTreeMap::new() });
        format!("100-IOL bridge '{name}' created")
    }

    fn about(&mut self, command: &str, name: &str, rest: &[&str]) -> String {
        let renamed_exists = matches!(rest, [new] if self.find(new).is_some());
        let in_use = |local: &&str| {
            self.0.iter().any(|bridge| bridge.running && bridge.ports.values().any(|other| other == local))
        };
        // The tunnel that is replaced may be the very same.
        let replaced = |local: &&str| {
            let bridge = self.0.iter().find(|bridge| bridge.name == name);
            let tunnel = bridge.and_then(|bridge| bridge.ports.get(&(rest[2].to_owned(), rest[1].to_owned())));
            tunnel.is_some_and(|tunnel| tunnel == local)
        };
        let used = rest.get(3).is_some_and(|local| in_use(local) && !replaced(local));
        let Some(bridge) = self.find(name) else {
            let kind = if command.ends_with("nio_udp") { "bridge" } else { "IOL bridge" };
            return format!("214-{kind} '{name}' doesn't exist");
        };
        match (command, rest) {
            ("delete", []) => {
                self.0.retain(|bridge| bridge.name != name);
                format!("100-IOL bridge '{name}' deleted")
            }
            ("start", []) if bridge.running => format!("209-IOL bridge '{name}' is already running"),
            ("start", []) => {
                bridge.running = true;
                format!("100-IOL bridge '{name}' started")
            }
            ("stop", []) if !bridge.running => format!("210-IOL bridge '{name}' is not running"),
            ("stop", []) => {
                bridge.running = false;
                format!("100-IOL bridge '{name}' stopped")
            }
            ("rename", [_]) if renamed_exists => format!("213-IOL bridge '{name}' already exist"),
            ("rename", [new]) => {
                (*new).clone_into(&mut bridge.name);
                format!("100-IOL bridge '{name}' renamed to '{new}'")
            }
            ("add_nio_udp", _) if used => format!("206-unable to create NIO UDP for IOL bridge '{name}'"),
            ("add_nio_udp", [_, bay, unit, local, ..]) => {
                bridge.ports.insert((unit.to_string(), bay.to_string()), local.to_string());
                format!("100-NIO UDP added to IOL bridge '{name}'")
            }
            ("delete_nio_udp", [bay, unit]) => {
                bridge.ports.remove(&(unit.to_string(), bay.to_string()));
                format!("100-NIO UDP deleted from IOL bridge '{name}'")
            }
            _ => panic!("the model does not know {command}"),
        }
    }
}

impl Model for IolBridges {
    fn answer(&mut self, command: &str) -> Vec<String> {
        let words: Vec<&str> = command.split(' ').collect();
        match words[1..] {
            ["reset"] => {
                self.0.clear();
                ok()
            }
            ["list"] => {
                let lines = self.0.iter().map(|bridge| format!("101 {} (ports = {})", bridge.name, bridge.ports.len()));
                lines.chain(ok()).collect()
            }
            ["create", name, _] => vec![self.create(name)],
            [command, name, ref rest @ ..] => vec![self.about(command, name, rest)],
            _ => panic!("the model does not know {command}"),
        }
    }
}

const CREATE: &str = "iol_bridge create b 700";
const FIRST: &str = "iol_bridge add_nio_udp b 701 0 0 20001 127.0.0.1 30001";
const SECOND: &str = "iol_bridge add_nio_udp b 701 1 0 20002 127.0.0.1 30002";
const START: &str = "iol_bridge start b";
const STOP: &str = "iol_bridge stop b";
const RENAME: &str = "iol_bridge rename b c";
const DISCONNECT: &str = "iol_bridge delete_nio_udp b 0 0";

pub(super) const TRIAL: Trial = Trial {
    starts: &[
        &[],
        &[CREATE],
        &[CREATE, FIRST],
        &[CREATE, FIRST, SECOND],
        &[CREATE, START],
        &[CREATE, START, FIRST],
        &[CREATE, FIRST, SECOND, START],
        &[CREATE, FIRST, SECOND, START, STOP],
        &[CREATE, FIRST, SECOND, START, STOP, START, DISCONNECT],
        &[CREATE, FIRST, START, RENAME],
    ],
    commands: &[CREATE, FIRST, START, STOP, RENAME, "iol_bridge delete b", DISCONNECT, "hypervisor reset"],
    looks: &["iol_bridge list"],
    paths: &["/tmp/netio0/700", "/tmp/netio0/700.lck"],
};

/// One after another: they share an id.
#[test]
fn iol_bridges_take_commands_in_every_order() {
    with_own_tmp(|| {
        TRIAL.every_order::<IolBridges>(3, false);
        TRIAL.every_order::<IolBridges>(2, true);
        TRIAL.random_orders::<IolBridges>(false);
        TRIAL.random_orders::<IolBridges>(true);
        end_in_every_state(&TRIAL);
    });
}
