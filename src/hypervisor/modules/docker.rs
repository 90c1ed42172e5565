//! `docker`: the interfaces of containers.

use std::io;

use super::kernel::{complain, refused};
use crate::hypervisor::command::{Answer, Command, Module};
use crate::hypervisor::reply::{Code, Reply};
use crate::lab::Lab;
use crate::sys::netdev::Interface;
use crate::sys::netlink::{Link, Netlink};
use crate::sys::{MAX_INTERFACE_NAME, describe};

pub(in crate::hypervisor) const MODULE: Module = Module {
    name: "docker",
    commands: &[
        Command { name: "create_veth", arguments: (2, 2), run: create_veth },
        Command { name: "delete_veth", arguments: (1, 1), run: delete_veth },
        Command { name: "move_to_ns", arguments: (3, 3), run: move_to_ns },
        Command { name: "set_mac_addr", arguments: (2, 2), run: set_mac_addr },
    ],
};

const NO_NETLINK: &str = "could not open netlink connection";
const NO_TRANSACTION: &str = "could not complete netlink transaction";
const NAME_TOO_LONG: &str = "interface name is too long";

fn create_veth(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (host, guest) = (arguments[0], arguments[1]);
    let Ok(mut netlink) = Netlink::open() else { return Reply::failed(Code::CannotCreate, NO_NETLINK) };
    if is_too_long(host) || is_too_long(guest) {
        return Reply::failed(Code::CannotCreate, "name is too long");
    }
    if let Err(error) = netlink.create_veth(host, guest) {
        return refused(lab, &error, Code::CannotCreate, NO_TRANSACTION);
    }
    let created = Reply::ok(format!("veth pair created: {host} and {guest}"));
    // Whoever captures frames at the host's end would get them with their checksums unfinished.
    match Interface::named(guest).and_then(|guest| guest.finish_checksums()) {
        Ok(()) => Ok(created),
        Err(error) => {
            complain(lab, &error);
            Ok(created.with_line("Warning: could not turn off checksum"))
        }
    }
}

fn delete_veth(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let name = arguments[0];
    if is_too_long(name) {
        return Reply::failed(Code::CannotDelete, NAME_TOO_LONG);
    }
    let Ok(mut netlink) = Netlink::open() else { return Reply::failed(Code::CannotDelete, NO_NETLINK) };
    let Ok(link) = netlink.link(name) else { return Reply::failed(Code::CannotDelete, no_index(name)) };
    match delete_if_veth(&mut netlink, &link) {
        Ok(()) => Ok(Reply::ok(format!("veth interface {name} has been deleted"))),
        Err(error) => refused(lab, &error, Code::CannotDelete, NO_TRANSACTION),
    }
}

fn delete_if_veth(netlink: &mut Netlink, link: &Link) -> io::Result<()> {
    if link.kind.as_deref() != Some("veth") {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    netlink.delete(link.index)
}

fn move_to_ns(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, pid, new_name) = (arguments[0], arguments[1], arguments[2]);
    if is_too_long(name) || is_too_long(new_name) {
        return Reply::failed(Code::CannotCreate, NAME_TOO_LONG);
    }
    let Ok(mut netlink) = Netlink::open() else { return Reply::failed(Code::CannotCreate, NO_NETLINK) };
    let Ok(link) = netlink.link(name) else { return Reply::failed(Code::CannotCreate, no_index(name)) };
    match parse_pid(pid).and_then(|pid| netlink.move_to(link.index, pid, new_name)) {
        Ok(()) => Ok(Reply::ok(format!("{name} moved to namespace {pid}"))),
        Err(error) => refused(lab, &error, Code::CannotCreate, NO_TRANSACTION),
    }
}

fn set_mac_addr(lab: &mut Lab, arguments: &[&str]) -> Answer {
    let (name, mac) = (arguments[0], arguments[1]);
    if is_too_long(name) {
        return Reply::failed(Code::CannotCreate, NAME_TOO_LONG);
    }
    let Some(address) = parse_mac(mac) else { return Reply::failed(Code::CannotCreate, "invalid MAC address format") };
    let set = match Interface::named(name) {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
            return Reply::failed(Code::CannotCreate, format!("could not create socket: {}", describe(&error)));
        }
        found => found.and_then(|interface| interface.set_address(address)),
    };
    match set {
        Ok(()) => Ok(Reply::ok(format!("MAC address {mac} has been successfully set on interface {name}"))),
        Err(error) => {
            let text = format!("could not set a MAC address on interface {name}");
            refused(lab, &error, Code::CannotCreate, text)
        }
    }
}

fn is_too_long(name: &str) -> bool {
    name.len() > MAX_INTERFACE_NAME
}

fn no_index(name: &str) -> String {
    format!("could not find interface index for {name}")
}

/// The number of a process, in digits only; what is none is no process.
fn parse_pid(word: &str) -> io::Result<u32> {
    let digits = Some(word).filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let pid = digits.and_then(|digits| digits.parse().ok());
    pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// Six groups of two hexadecimal digits, joined by colons.
fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut groups = text.split(':');
    for byte in &mut address {
        let group = groups.next()?;
        if group.len() != 2 || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(group, 16).ok()?;
    }
    groups.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::super::answer_to;
    use super::*;

    #[test]
    fn names_that_are_too_long_are_refused() {
        for (line, reply) in [
            ("docker create_veth sixteen-letters! rb0", "206-name is too long\r\n"),
            ("docker create_veth rb0 sixteen-letters!", "206-name is too long\r\n"),
            ("docker delete_veth sixteen-letters!", "207-interface name is too long\r\n"),
            ("docker move_to_ns sixteen-letters! 1 eth0", "206-interface name is too long\r\n"),
            ("docker move_to_ns lo 1 sixteen-letters!", "206-interface name is too long\r\n"),
            ("docker set_mac_addr sixteen-letters! zz", "206-interface name is too long\r\n"),
        ] {
            assert_eq!(answer_to(line), reply, "{line}");
        }
    }

    #[test]
    fn missing_interfaces_are_not_found() {
        for (line, reply) in [
            ("docker delete_veth nosuchif", "207-could not find interface index for nosuchif\r\n"),
            ("docker delete_veth a/b", "207-could not find interface index for a/b\r\n"),
            ("docker move_to_ns nosuchif 1 eth0", "206-could not find interface index for nosuchif\r\n"),
            (
                "docker set_mac_addr nosuchif 12:34:56:78:12:42",
                "206-could not set a MAC address on interface nosuchif\r\n",
            ),
            ("docker set_mac_addr a/b 12:34:56:78:12:42", "206-could not set a MAC address on interface a/b\r\n"),
        ] {
            assert_eq!(answer_to(line), reply, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_is_no_transaction() {
        for line in [
            "docker create_veth lo lo",
            "docker create_veth a/b rb0",
            "docker create_veth rb0 rb%d",
            "docker move_to_ns lo 0 eth0",
            "docker move_to_ns lo +1 eth0",
            "docker move_to_ns lo -1 eth0",
            "docker move_to_ns lo 1x eth0",
            "docker move_to_ns lo 4294967295 eth0",
            "docker move_to_ns lo 4294967296 eth0",
            "docker move_to_ns lo 1 a/b",
        ] {
            assert_eq!(answer_to(line), "206-could not complete netlink transaction\r\n", "{line}");
        }
        assert_eq!(answer_to("docker delete_veth lo"), "207-could not complete netlink transaction\r\n");
    }

    #[test]
    fn a_mac_address_has_six_groups_of_two_digits() {
        assert_eq!(parse_mac("12:34:56:78:9a:BC"), Some([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]));
        for wrong in [
            "12:34:56:78:12",
            "12:34:56:78:12:42:1",
            "12:34:56:78:12:42:",
            ":12:34:56:78:12:42",
            "zz:34:56:78:12:42",
            "+1:34:56:78:12:42",
            "1:34:56:78:12:42",
            "112:34:56:78:12:42",
            "12-34-56-78-12-42",
            "12:34:56:78:12:é",
        ] {
            let line = format!("docker set_mac_addr nosuchif {wrong}");
            assert_eq!(answer_to(&line), "206-invalid MAC address format\r\n", "{wrong}");
        }
    }
}
