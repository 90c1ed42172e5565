//! The module `iol_bridge`: bridges between IOL instances and tunnels, with filters and captures at each port.

use std::path::Path;

use super::shared::{capture_link_type, filter_failed, named_filter, open_udp, stats};
use crate::hypervisor::command::{Answer, Command, Module};
use crate::hypervisor::reply::{Code, Reply};
use crate::lab::{IolBridge, Lab};
use crate::nio::iol::{Port, StationError};
use crate::number;

pub(in crate::hypervisor) const MODULE: Module = Module {
    name: "iol_bridge",
    commands: &[
        Command { name: "create", arguments: (2, 2), run: create },
        Command { name: "delete", arguments: (1, 1), run: delete },
        Command { name: "start", arguments: (1, 1), run: start },
        Command { name: "stop", arguments: (1, 1), run: stop },
        Command { name: "get_stats", arguments: (1, 1), run: get_stats },
        Command { name: "reset_stats", arguments: (1, 1), run: reset_stats },
        Command { name: "rename", arguments: (2, 2), run: rename },
        Command { name: "add_nio_udp", arguments: (7, 7), run: add_nio_udp },
        Command { name: "delete_nio_udp", arguments: (3, 3), run: delete_nio_udp },
        Command { name: "start_capture", arguments: (4, 5), run: start_capture },
        Command { name: "stop_capture", arguments: (3, 3), run: stop_capture },
        Command { name: "add_packet_filter", arguments: (4, 15), run: add_packet_filter },
        Command { name: "delete_packet_filter", arguments: (4, 4), run: delete_packet_filter },
        Command { name: "reset_packet_filters", arguments: (3, 3), run: reset_packet_filters },
        Command { name: "list", arguments: (0, 0), run: list },
    ],
};

/// Half of the commands call it an IOL bridge where it does not exist, the others a bridge; clients know either.
fn find<'a>(lab: &'a mut Lab, name: &str) -> Result<&'a mut IolBridge, Reply> {
    lab.iol_bridge(name).ok_or_else(|| Reply::new(Code::NotFound, format!("bridge '{name}' doesn't exist")))
}

fn find_iol<'a>(lab: &'a mut Lab, name: &str) -> Result<&'a mut IolBridge, Reply> {
    lab.iol_bridge(name).ok_or_else(|| missing_iol(name))
}

fn missing_iol(name: &str) -> Reply {
    Reply::new(Code::NotFound, format!("IOL bridge '{name}' doesn't exist"))
}

/// The port of a bridge by two words, each a number from 0 to 15.
fn port(bridge: &str, bay: &str, unit: &str, code: Code) -> Result<Port, Reply> {
    let known = number::whole(bay).zip(number::whole(unit)).and_then(|(bay, unit)| Port::new(bay, unit));
    known.ok_or_else(|| {
        let key = number::whole::<i64>(bay).zip(number::whole::<i64>(unit));
        let key = key.and_then(|(bay, unit)| unit.checked_mul(16)?.checked_add(bay));
        let key = key.map_or_else(|| format!("{bay}/{unit}"), |key| key.to_string());
        Reply::new(code, format!("Port number {key} exceeding 256 on bridge '{bridge}'"))
    })
}

fn create(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, id) = (arguments[0], arguments[1]);
    if lab.iol_bridge(name).is_some() {
        return Reply::failed(Code::CannotCreate, format!("IOL bridge '{name}' already exist"));
    }
    let failed = |reason: &dyn std::fmt::Display| {
        Reply::failed(Code::CannotCreate, format!("could not create IOL bridge '{name}': {reason}"))
    };
    let Some(id) = number::whole(id).filter(|&id| id > 0) else {
        lab.console.stderr.say(&format!("the id of an IOL bridge is a number from 1 to 65535, not '{id}'"));
        return failed(&"cannot create UNIX domain socket");
    };
    match lab.create_iol_bridge(name, id) {
        Ok(()) => Ok(Reply::ok(format!("IOL bridge '{name}' created"))),
        Err(error) => {
            if let StationError::NoLock(_, cause) | StationError::NoSocket(cause) = &error {
                lab.console.stderr.say(&format!("IOL bridge '{name}': {error} ({cause})"));
            }
            failed(&error)
        }
    }
}

fn delete(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if !lab.delete_iol_bridge(name) {
        return Err(missing_iol(name));
    }
    Ok(Reply::ok(format!("IOL bridge '{name}' deleted")))
}

fn start(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if find_iol(lab, name)?.is_running() {
        return Reply::failed(Code::CannotStart, format!("IOL bridge '{name}' is already running"));
    }
    if let Err(error) = lab.start_iol_bridge(name).ok_or_else(|| missing_iol(name))? {
        lab.console.stderr.say(&format!("IOL bridge '{name}' cannot be started: {error}"));
        return Reply::failed(Code::CannotStart, format!("IOL bridge '{name}' could not be started"));
    }
    Ok(Reply::ok(format!("IOL bridge '{name}' started")))
}

fn stop(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if !find_iol(lab, name)?.stop() {
        return Reply::failed(Code::CannotStop, format!("IOL bridge '{name}' is not running"));
    }
    Ok(Reply::ok(format!("IOL bridge '{name}' stopped")))
}

fn get_stats(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let ports = find(lab, arguments[0])?.traffic();
    Ok(Reply::done().with_lines(ports.map(|(port, traffic)| stats(&format!("port {port}:     "), &traffic))))
}

fn reset_stats(lab: &mut Lab, arguments: &[&str]) -> Answer {
    find(lab, arguments[0])?.reset_traffic();
    Ok(Reply::done())
}

fn rename(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (old, new) = (arguments[0], arguments[1]);
    find_iol(lab, old)?;
    if lab.iol_bridge(new).is_some() {
        // It is the other name that exists; clients know this text.
        return Reply::failed(Code::CannotRename, format!("IOL bridge '{old}' already exist"));
    }
    find_iol(lab, old)?.rename(new);
    Ok(Reply::ok(format!("IOL bridge '{old}' renamed to '{new}'")))
}

fn add_nio_udp(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let &[name, instance, bay, unit, local, host, remote] = arguments else { return Err(filter_failed("")) };
    let id = find(lab, name)?.id();
    let port = port(name, bay, unit, Code::CannotCreate)?;
    let failed = || Reply::failed(Code::CannotCreate, format!("unable to create NIO UDP for IOL bridge '{name}'"));
    let Some(instance) = number::whole::<u16>(instance).filter(|&instance| instance > 0) else {
        lab.console.stderr.say(&format!("the id of an IOL instance is a number from 1 to 65535, not '{instance}'"));
        return failed();
    };
    if instance == id {
        let text = format!("IOU ID {instance} cannot be the same as bridge '{name}' ID");
        return Reply::failed(Code::CannotCreate, text);
    }
    let bridge = find(lab, name)?;
    let replaced = bridge.tunnel(port).filter(|_| bridge.is_running()).cloned();
    let connected = open_udp(lab, [local, host, remote], replaced.as_ref()).and_then(|nio| {
        let connected = lab.connect_iol(name, port, instance, nio).unwrap_or(Ok(()));
        connected.map_err(|error| error.to_string())
    });
    if let Err(complaint) = connected {
        lab.console.stderr.say(&complaint);
        return failed();
    }
    Ok(Reply::ok(format!("NIO UDP added to IOL bridge '{name}'")))
}

fn delete_nio_udp(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    let bridge = find(lab, name)?;
    bridge.disconnect(port(name, arguments[1], arguments[2], Code::NotFound)?);
    Ok(Reply::ok(format!("NIO UDP deleted from IOL bridge '{name}'")))
}

fn start_capture(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, file) = (arguments[0], arguments[3]);
    let console = lab.console.clone();
    let bridge = find(lab, name)?;
    let port = port(name, arguments[1], arguments[2], Code::NotFound)?;
    if bridge.is_capturing(port) {
        return Reply::failed(Code::CannotStart, format!("packet capture is already active on port {port}"));
    }
    let link_type = capture_link_type(arguments.get(4).copied(), &console);
    if let Err(error) = bridge.start_capture(port, Path::new(file), link_type) {
        console.stderr.say(&format!("unable to open capture file {file} ({error})"));
        return Reply::failed(Code::CannotStart, format!("packet capture could not be started on bridge '{name}'"));
    }
    Ok(Reply::ok(format!("packet capture started on port {port}")))
}

fn stop_capture(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    let bridge = find(lab, name)?;
    let port = port(name, arguments[1], arguments[2], Code::CannotCreate)?;
    if !bridge.stop_capture(port) {
        return Reply::failed(Code::NotFound, format!("no packet capture active on port {port}"));
    }
    Ok(Reply::ok(format!("packet capture stopped on port {port}")))
}

fn add_packet_filter(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, filter_name) = (arguments[0], arguments[3]);
    let console = lab.console.clone();
    let bridge = find(lab, name)?;
    let port = port(name, arguments[1], arguments[2], Code::CannotCreate)?;
    let filter = named_filter(filter_name, &arguments[4..], &console)?;
    if !bridge.add_filter(port, filter) {
        return Err(filter_failed(filter_name));
    }
    Ok(Reply::ok(format!("Filter '{filter_name}' type '{}' added to bridge '{name}'", arguments[4])))
}

fn delete_packet_filter(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, filter) = (arguments[0], arguments[3]);
    let bridge = find(lab, name)?;
    if !bridge.remove_filter(port(name, arguments[1], arguments[2], Code::CannotCreate)?, filter) {
        return Reply::failed(Code::CannotCreate, format!("Failed to delete filter '{filter}'"));
    }
    Ok(Reply::ok(format!("Filter '{filter}' deleted from bridge '{name}'")))
}

fn reset_packet_filters(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    let bridge = find(lab, name)?;
    bridge.reset_filters(port(name, arguments[1], arguments[2], Code::CannotCreate)?);
    Ok(Reply::done())
}

fn list(lab: &mut Lab, _: &[&str]) -> Answer {
    let line = |bridge: &IolBridge| format!("{} (ports = {})", bridge.name(), bridge.tunnels().count());
    Ok(Reply::done().with_lines(lab.iol_bridges().iter().map(line)))
}
