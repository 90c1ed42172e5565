//! `brctl`: the kernel's bridges.

use std::io;

use super::kernel::refused;
use crate::hypervisor::command::{Answer, Command, Module};
use crate::hypervisor::reply::{Code, Reply};
use crate::lab::Lab;
use crate::sys::describe;
use crate::sys::netdev::Interface;
use crate::sys::netlink::Netlink;

pub(in crate::hypervisor) const MODULE: Module =
    Module { name: "brctl", commands: &[Command { name: "addif", arguments: (2, 2), run: addif }] };

fn addif(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (bridge, name) = (arguments[0], arguments[1]);
    let Ok((mut netlink, port)) = find(name) else {
        return Reply::failed(Code::CannotCreate, format!("Could not find interface {name}"));
    };
    if let Err(error) = add(&mut netlink, bridge, name, port) {
        let text = format!("Could not add interface {name} to {bridge}: {}", describe(&error));
        return Reply::failed(Code::CannotCreate, text);
    }
    match netlink.set_up(port) {
        Ok(()) => Ok(Reply::ok(format!("{name} has been added to bridge {bridge}"))),
        Err(error) => refused(lab, &error, Code::CannotCreate, format!("Could not up interface {name}")),
    }
}

fn find(name: &str) -> io::Result<(Netlink, u32)> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link(name)?.index;
    Ok((netlink, index))
}

/// Makes an interface a port of a bridge, or finds that it is one of it already.
fn add(netlink: &mut Netlink, bridge: &str, name: &str, port: u32) -> io::Result<()> {
    let bridge_index = netlink.link(bridge)?.index;
    let added = Interface::named(bridge)?.add_port(port);
    let is_busy = added.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY));
    if is_busy && netlink.link(name)?.master == Some(bridge_index) { Ok(()) } else { added }
}

#[cfg(test)]
mod tests {
    use super::super::answer_to;

    #[test]
    fn the_interface_is_looked_for_first() {
        for name in ["nosuchif", "sixteen-letters!", "a/b"] {
            let reply = format!("206-Could not find interface {name}\r\n");
            assert_eq!(answer_to(&format!("brctl addif nosuchbr {name}")), reply);
        }
    }

    #[test]
    fn there_is_no_port_without_a_bridge() {
        for bridge in ["nosuchbr", "sixteen-letters!", "a/b"] {
            let reply = format!("206-Could not add interface lo to {bridge}: No such device\r\n");
            assert_eq!(answer_to(&format!("brctl addif {bridge} lo")), reply);
        }
    }
}
