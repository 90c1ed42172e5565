//! The module `bridge`: bridges, their NIOs, filters and captures.

use std::path::Path;

use super::shared::{capture_link_type, filter_failed, named_filter, open_udp, stats};
use crate::hypervisor::command::{Answer, Command, Module};
use crate::hypervisor::reply::{Code, Reply};
use crate::lab::{Bridge, Lab, NotStarted, Traffic};
use crate::nio::udp::Tunnel;
use crate::nio::{self, Cause, Nio};
use crate::number;

pub(in crate::hypervisor) const MODULE: Module = Module {
    name: "bridge",
    commands: &[
        Command { name: "create", arguments: (1, 1), run: create },
        Command { name: "delete", arguments: (1, 1), run: delete },
        Command { name: "start", arguments: (1, 1), run: start },
        Command { name: "stop", arguments: (1, 1), run: stop },
        Command { name: "show", arguments: (1, 1), run: show },
        Command { name: "get_stats", arguments: (1, 1), run: get_stats },
        Command { name: "reset_stats", arguments: (1, 1), run: reset_stats },
        Command { name: "rename", arguments: (2, 2), run: rename },
        Command { name: "add_nio_udp", arguments: (4, 4), run: add_nio_udp },
        Command { name: "remove_nio_udp", arguments: (4, 4), run: delete_nio_udp },
        Command { name: "delete_nio_udp", arguments: (4, 4), run: delete_nio_udp },
        Command { name: "add_nio_unix", arguments: (3, 3), run: add_nio_unix },
        Command { name: "add_nio_tap", arguments: (2, 2), run: add_nio_tap },
        Command { name: "add_nio_ethernet", arguments: (2, 2), run: add_nio_ethernet },
        Command { name: "add_nio_linux_raw", arguments: (2, 2), run: add_nio_linux_raw },
        Command { name: "start_capture", arguments: (2, 3), run: start_capture },
        Command { name: "stop_capture", arguments: (1, 1), run: stop_capture },
        Command { name: "add_packet_filter", arguments: (2, 10), run: add_packet_filter },
        Command { name: "delete_packet_filter", arguments: (2, 2), run: delete_packet_filter },
        Command { name: "reset_packet_filters", arguments: (1, 1), run: reset_packet_filters },
        Command { name: "set_pcap_filter", arguments: (1, 2), run: set_pcap_filter },
        Command { name: "list", arguments: (0, 0), run: list },
    ],
};

fn find<'a>(lab: &'a mut Lab, name: &str) -> Result<&'a mut Bridge, Reply> {
    lab.bridge(name).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Reply {
    Reply::new(Code::NotFound, format!("bridge '{name}' doesn't exist"))
}

fn create(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    match lab.create_bridge(name) {
        Some(_) => Ok(Reply::ok(format!("bridge '{name}' created"))),
        None => Reply::failed(Code::CannotCreate, format!("bridge '{name}' already exist")),
    }
}

fn delete(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if !lab.delete_bridge(name) {
        return Err(missing(name));
    }
    Ok(Reply::ok(format!("bridge '{name}' deleted")))
}

fn start(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    let failed = |text: &str| Reply::failed(Code::CannotStart, format!("bridge '{name}' {text}"));
    match lab.start_bridge(name).ok_or_else(|| missing(name))? {
        Ok(()) => Ok(Reply::ok(format!("bridge '{name}' started"))),
        Err(NotStarted::Running) => failed("is already running"),
        Err(NotStarted::NiosMissing) => failed("must have 2 NIOs to be started"),
        Err(error @ (NotStarted::TunnelTaken | NotStarted::Refused(_))) => {
            lab.console.stderr.say(&format!("bridge '{name}' cannot be started: {error}"));
            failed("could not be started")
        }
    }
}

fn stop(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if !find(lab, name)?.stop() {
        return Reply::failed(Code::CannotStop, format!("bridge '{name}' is not running"));
    }
    Ok(Reply::ok(format!("bridge '{name}' stopped")))
}

/// What the two places of a bridge are called.
const SIDES: [&str; 2] = ["Source", "Destination"];

fn show(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    let bridge = find(lab, name)?;
    let is = if bridge.is_running() { "is" } else { "is not" };
    let filters = (1..).zip(bridge.filters());
    let filters =
        filters.map(|(position, filter)| format!("Filter '{}' configured in position {position}", filter.name()));
    let nios = SIDES.iter().zip(bridge.nios());
    let nios = nios.filter_map(|(side, nio)| Some(format!("{side} NIO: {}", nio?.description)));
    Ok(Reply::done().with_line(format!("bridge '{name}' {is} running")).with_lines(filters).with_lines(nios))
}

fn get_stats(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let traffic = find(lab, arguments[0])?.traffic();
    let nios = SIDES.iter().zip(traffic);
    let line =
        |(side, traffic): (&&str, Option<Traffic>)| Some(stats(&format!("{:<16}", format!("{side} NIO:")), &traffic?));
    Ok(Reply::done().with_lines(nios.filter_map(line)))
}

fn reset_stats(lab: &mut Lab, arguments: &[&str]) -> Answer {
    find(lab, arguments[0])?.reset_traffic();
    Ok(Reply::done())
}

fn rename(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (old, new) = (arguments[0], arguments[1]);
    find(lab, old)?;
    if lab.bridge(new).is_some() {
        // It is the other name that exists; clients know this text.
        return Reply::failed(Code::CannotRename, format!("bridge '{old}' already exist"));
    }
    find(lab, old)?.rename(new);
    Ok(Reply::ok(format!("bridge '{old}' renamed to '{new}'")))
}

/// Opens a NIO and puts it into the first free place of a bridge.
fn add_nio(lab: &mut Lab, bridge: &str, kind: &str, open: impl FnOnce(&Lab) -> Result<Nio, Complaint>) -> Answer {
    // Opening has effects of its own, so the place comes first.
    if find(lab, bridge)?.nio_count() == 2 {
        return full(bridge);
    }
    match open(lab) {
        Ok(nio) => match find(lab, bridge)?.add(nio) {
            Ok(()) => Ok(Reply::ok(format!("NIO {kind} added to bridge '{bridge}'"))),
            Err(_) => full(bridge),
        },
        Err(Complaint(text)) => {
            lab.console.stderr.say(&text);
            Reply::failed(Code::CannotCreate, format!("unable to create NIO {kind} for bridge '{bridge}'"))
        }
    }
}

fn full(bridge: &str) -> Answer {
    Reply::failed(Code::CannotCreate, format!("bridge '{bridge}' has already 2 allocated NIOs"))
}

/// What is said of a NIO that cannot be opened.
struct Complaint(String);

impl Complaint {
    fn of(function: &str, device: &str, cause: &Cause) -> Self {
        Self(format!("{function}: unable to open {device} ({cause})"))
    }
}

fn add_nio_udp(lab: &mut Lab, arguments: &[&str]) -> Answer {
    add_nio(lab, arguments[0], "UDP", |lab| {
        let &[_, local, host, remote] = arguments else { return Err(Complaint("missing arguments".to_owned())) };
        open_udp(lab, [local, host, remote], None).map_err(Complaint)
    })
}

fn delete_nio_udp(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, local, remote) = (arguments[0], arguments[1], arguments[3]);
    let bridge = find(lab, name)?;
    if bridge.is_running() {
        return Reply::failed(Code::NotFound, format!("bridge '{name}' is running"));
    }
    let ports = number::whole(local).zip(number::whole(remote));
    let has_ports = |tunnel: Tunnel| ports == Some((tunnel.local_port, tunnel.peer.port()));
    if !bridge.remove(|nio| nio.tunnel.is_some_and(has_ports)) {
        return Reply::failed(Code::NotFound, format!("UDP nio missing in '{name}'"));
    }
    Ok(Reply::ok(format!("NIO UDP removed from bridge '{name}'")))
}

fn add_nio_unix(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (local, remote) = (arguments[1], arguments[2]);
    add_nio(lab, arguments[0], "UNIX", |lab| {
        nio::unix::open(local, remote, lab.mode).map_err(|cause| Complaint::of("create_nio_unix", local, &cause))
    })
}

fn add_nio_tap(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let device = arguments[1];
    add_nio(lab, arguments[0], "TAP", |lab| {
        let device_text = format!("TAP device {device}");
        nio::tap::open(device, lab.mode).map_err(|cause| Complaint::of("create_nio_tap", &device_text, &cause))
    })
}

fn add_nio_ethernet(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let device = arguments[1];
    add_nio(lab, arguments[0], "Ethernet", |lab| {
        nio::ethernet::open(device, lab.mode).map_err(|cause| Complaint::of("create_nio_ethernet", device, &cause))
    })
}

fn add_nio_linux_raw(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let device = arguments[1];
    add_nio(lab, arguments[0], "Linux raw", |lab| {
        nio::linux_raw::open(device, lab.mode).map_err(|cause| Complaint::of("create_nio_linux_raw", device, &cause))
    })
}

fn start_capture(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, file) = (arguments[0], arguments[1]);
    let console = lab.console.clone();
    let bridge = find(lab, name)?;
    if bridge.is_capturing() {
        return Reply::failed(Code::CannotStart, format!("packet capture is already active on bridge '{name}'"));
    }
    let link_type = capture_link_type(arguments.get(2).copied(), &console);
    if let Err(error) = bridge.start_capture(Path::new(file), link_type) {
        console.stderr.say(&format!("unable to open capture file {file} ({error})"));
        return Reply::failed(Code::CannotStart, format!("packet capture could not be started on bridge '{name}'"));
    }
    Ok(Reply::ok(format!("packet capture started on bridge '{name}'")))
}

fn stop_capture(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if !find(lab, name)?.stop_capture() {
        return Reply::failed(Code::CannotStart, format!("no packet capture active on bridge '{name}'"));
    }
    Ok(Reply::ok(format!("packet capture stopped on bridge '{name}'")))
}

fn add_packet_filter(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, filter_name) = (arguments[0], arguments[1]);
    let console = lab.console.clone();
    let bridge = find(lab, name)?;
    let filter = named_filter(filter_name, &arguments[2..], &console)?;
    if !bridge.add_filter(filter) {
        return Err(filter_failed(filter_name));
    }
    Ok(Reply::ok(format!("Filter '{filter_name}' type '{}' added to bridge '{name}'", arguments[2])))
}

fn delete_packet_filter(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, filter) = (arguments[0], arguments[1]);
    if !find(lab, name)?.remove_filter(filter) {
        return Reply::failed(Code::CannotCreate, format!("Failed to delete filter '{filter}'"));
    }
    Ok(Reply::ok(format!("Filter '{filter}' delete from bridge '{name}'")))
}

fn reset_packet_filters(lab: &mut Lab, arguments: &[&str]) -> Answer {
    find(lab, arguments[0])?.reset_filters();
    Ok(Reply::done())
}

fn set_pcap_filter(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, expression) = (arguments[0], arguments.get(1).copied());
    let console = lab.console.clone();
    let bridge = find(lab, name)?;
    let nios = SIDES.iter().zip(bridge.nios());
    let mut filters = nios.filter_map(|(side, nio)| Some((side, nio?.receive_filter.as_ref()?)));
    let Some((side, filter)) = filters.next() else {
        let text = format!("bridge {name} must have at least one Ethernet NIO in order to apply a filter");
        return Reply::failed(Code::CannotCreate, text);
    };
    if let Err(error) = filter.set(expression) {
        console.stderr.say(&error.to_string());
        let side = side.to_lowercase();
        return Reply::failed(Code::CannotCreate, format!("unable to apply filter on bridge {name} ({side} NIO)"));
    }
    Ok(Reply::ok(match expression {
        Some(expression) => format!("filter '{expression}' applied on bridge '{name}'"),
        None => format!("filter reset on bridge '{name}'"),
    }))
}

fn list(lab: &mut Lab, _: &[&str]) -> Answer {
    let line = |bridge: &Bridge| format!("{} (NIOs = {})", bridge.name(), bridge.nio_count());
    Ok(Reply::done().with_lines(lab.bridges().iter().map(line)))
}
