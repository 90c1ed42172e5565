//! What the tests are made of: namespaces, interfaces, the program, and frames.

pub(crate) mod capture_file;
pub(crate) mod check;
mod folder;
pub(crate) mod frames;
mod hypervisor;
mod namespace;
mod program;
mod tunnel;
mod wire_tap;

pub(crate) use folder::Folder;
pub(crate) use hypervisor::{Client, Hypervisor, PORT, has_interface};
pub(crate) use namespace::{Namespace, stay_on_one_cpu};
pub(crate) use program::{Rubridge, Totals};
pub(crate) use tunnel::{LEFT, RIGHT, Tunnel, TwoTunnels};
pub(crate) use wire_tap::{Heard, WireTap};

use std::time::Duration;

/// How long to wait for what must happen. Long, since it only runs out when something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
