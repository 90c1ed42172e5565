//! What the modules `bridge` and `iol_bridge` have in common.

use std::fmt::Display;

use crate::capture::LinkType;
use crate::filter::Sided;
use crate::hypervisor::reply::{Code, Reply};
use crate::lab::{Lab, Traffic};
use crate::nio::{self, Identity, Nio};
use crate::number;
use crate::output::Console;

/// Opens a UDP tunnel, unless a running bridge has the very same; but that may be the one that is to be `replaced`.
pub(super) fn open_udp(
    lab: &Lab,
    [local, host, remote]: [&str; 3],
    replaced: Option<&Identity>,
) -> Result<Nio, String> {
    let failed = |cause: &dyn Display| format!("create_nio_udp: unable to open {local}:{host}:{remote} ({cause})");
    let (Some(local_port), Some(remote_port)) = (number::whole(local), number::whole(remote)) else {
        return Err(failed(&"a port is a number from 0 to 65535"));
    };
    let replaced = replaced.and_then(|nio| nio.tunnel);
    let is_taken = |tunnel| replaced != Some(tunnel) && lab.runs_tunnel(tunnel);
    nio::udp::open(local_port, host, remote_port, lab.mode, is_taken).map_err(|cause| failed(&cause))
}

/// A line of statistics.
pub(super) fn stats(title: &str, Traffic { received, sent }: &Traffic) -> String {
    format!(
        "{title} IN: {} packets ({} bytes) OUT: {} packets ({} bytes)",
        received.frames, received.bytes, sent.frames, sent.bytes
    )
}

/// The link type of a capture, Ethernet where none or no known one is named.
pub(super) fn capture_link_type(name: Option<&str>, console: &Console) -> LinkType {
    let Some(name) = name else { return LinkType::default() };
    LinkType::named(name).unwrap_or_else(|unknown| {
        console.stderr.say(&unknown.to_string());
        LinkType::default()
    })
}

/// Makes a filter of the words of a command: its type and what that takes.
pub(super) fn named_filter(name: &str, words: &[&str], console: &Console) -> Result<Sided, Reply> {
    let &[kind, ref arguments @ ..] = words else { return Err(filter_failed(name)) };
    Sided::parse(name, kind, arguments).map_err(|error| {
        console.stderr.say(&error.to_string());
        filter_failed(name)
    })
}

pub(super) fn filter_failed(name: &str) -> Reply {
    Reply::new(Code::CannotCreate, format!("Failed to add filter '{name}'"))
}
