//! Bridges between tunnels.

use super::{Model, Trial, ok};

/// The bridges, newest first.
#[derive(Default)]
struct Bridges(Vec<Bridge>);

struct Bridge {
    name: String,
    /// Source and destination, each by local and remote port.
    nios: [Option<(String, String)>; 2],
    running: bool,
}

impl Bridge {
    fn count(&self) -> usize {
        self.nios.iter().flatten().count()
    }
}

impl Bridges {
    fn find(&mut self, name: &str) -> Option<&mut Bridge> {
        self.0.iter_mut().find(|bridge| bridge.name == name)
    }

    fn about(&mut self, command: &str, name: &str, rest: &[&str]) -> String {
        let in_use = |bridges: &Self, nio: &(String, String)| {
            bridges.0.iter().any(|bridge| bridge.running && bridge.nios.iter().flatten().any(|other| other == nio))
        };
        let used = matches!(rest, [local, _, remote] if in_use(self, &(local.to_string(), remote.to_string())));
        let renamed_exists = matches!(rest, [new] if self.find(new).is_some());
        let Some(bridge) = self.find(name) else { return format!("214-bridge '{name}' doesn't exist") };
        match (command, rest) {
            ("delete", []) => {
                self.0.retain(|bridge| bridge.name != name);
                format!("100-bridge '{name}' deleted")
            }
            ("start", []) if bridge.running => format!("209-bridge '{name}' is already running"),
            ("start", []) if bridge.count() < 2 => format!("209-bridge '{name}' must have 2 NIOs to be started"),
            ("start", []) => {
                bridge.running = true;
                format!("100-bridge '{name}' started")
            }
            ("stop", []) if !bridge.running => format!("210-bridge '{name}' is not running"),
            ("stop", []) => {
                bridge.running = false;
                format!("100-bridge '{name}' stopped")
            }
            ("rename", [_]) if renamed_exists => format!("213-bridge '{name}' already exist"),
            ("rename", [new]) => {
                (*new).clone_into(&mut bridge.name);
                format!("100-bridge '{name}' renamed to '{new}'")
            }
            ("add_nio_udp", _) if bridge.count() == 2 => format!("206-bridge '{name}' has already 2 allocated NIOs"),
            ("add_nio_udp", _) if used => format!("206-unable to create NIO UDP for bridge '{name}'"),
            ("add_nio_udp", [local, _, remote]) => {
                let place = bridge.nios.iter_mut().find(|nio| nio.is_none()).expect("fewer than two");
                *place = Some((local.to_string(), remote.to_string()));
                format!("100-NIO UDP added to bridge '{name}'")
            }
            ("delete_nio_udp" | "remove_nio_udp", _) if bridge.running => format!("214-bridge '{name}' is running"),
            ("delete_nio_udp" | "remove_nio_udp", [local, _, remote]) => {
                let wanted = Some((local.to_string(), remote.to_string()));
                match bridge.nios.iter_mut().find(|nio| **nio == wanted) {
                    Some(nio) => {
                        *nio = None;
                        format!("100-NIO UDP removed from bridge '{name}'")
                    }
                    None => format!("214-UDP nio missing in '{name}'"),
                }
            }
            _ => panic!("the model does not know {command}"),
        }
    }

    fn show(&mut self, name: &str) -> Vec<String> {
        let Some(bridge) = self.find(name) else { return vec![format!("214-bridge '{name}' doesn't exist")] };
        let is = if bridge.running { "is" } else { "is not" };
        let nios = ["Source", "Destination"].iter().zip(&bridge.nios);
        let nios = nios.filter_map(|(side, nio)| {
            let (local, remote) = nio.as_ref()?;
            Some(format!("101 {side} NIO: {local}:127.0.0.1:{remote}"))
        });
        [format!("101 bridge '{name}' {is} running")].into_iter().chain(nios).chain(ok()).collect()
    }
}

impl Model for Bridges {
    fn answer(&mut self, command: &str) -> Vec<String> {
        let words: Vec<&str> = command.split(' ').collect();
        match words[1..] {
            ["reset"] => {
                self.0.clear();
                ok()
            }
            ["list"] => {
                let lines = self.0.iter().map(|bridge| format!("101 {} (NIOs = {})", bridge.name, bridge.count()));
                lines.chain(ok()).collect()
            }
            ["show", name] => self.show(name),
            ["create", name] => {
                if self.find(name).is_some() {
                    return vec![format!("206-bridge '{name}' already exist")];
                }
                self.0.insert(0, Bridge { name: name.to_owned(), nios: [None, None], running: false });
                vec![format!("100-bridge '{name}' created")]
            }
            [command, name, ref rest @ ..] => vec![self.about(command, name, rest)],
            _ => panic!("the model does not know {command}"),
        }
    }
}

const CREATE: &str = "bridge create b";
const FIRST: &str = "bridge add_nio_udp b 20001 127.0.0.1 30001";
const SECOND: &str = "bridge add_nio_udp b 20002 127.0.0.1 30002";
const START: &str = "bridge start b";
const STOP: &str = "bridge stop b";
const RENAME: &str = "bridge rename b c";
const REMOVE: &str = "bridge remove_nio_udp b 20001 127.0.0.1 30001";

pub(super) const TRIAL: Trial = Trial {
    starts: &[
        &[],
        &[CREATE],
        &[CREATE, FIRST],
        &[CREATE, FIRST, SECOND],
        &[CREATE, FIRST, SECOND, START],
        &[CREATE, FIRST, SECOND, START, STOP],
        &[CREATE, FIRST, SECOND, START, STOP, START],
        &[CREATE, FIRST, SECOND, START, STOP, REMOVE],
        &[CREATE, FIRST, SECOND, START, RENAME],
    ],
    commands: &[
        CREATE,
        FIRST,
        SECOND,
        START,
        STOP,
        RENAME,
        "bridge rename c b",
        "bridge delete b",
        REMOVE,
        "hypervisor reset",
    ],
    looks: &["bridge show b", "bridge show c", "bridge list"],
    paths: &[],
};

#[test]
fn bridges_take_commands_in_every_order() {
    TRIAL.every_order::<Bridges>(3, false);
}

#[test]
fn bridges_take_commands_in_every_order_under_traffic() {
    TRIAL.every_order::<Bridges>(2, true);
}

#[test]
fn bridges_take_long_sequences_of_commands() {
    TRIAL.random_orders::<Bridges>(false);
    TRIAL.random_orders::<Bridges>(true);
}
