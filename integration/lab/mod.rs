//! What the tests are made of: namespaces, interfaces, the program, and frames.

pub(crate) mod capture_file;
pub(crate) mod check;
mod daemon;
mod folder;
pub(crate) mod frames;
mod hypervisor;
mod namespace;
mod own_tmp;
mod process;
mod program;
mod relay;
mod tunnel;
mod wire_tap;

pub(crate) use daemon::Daemon;
pub(crate) use folder::Folder;
pub(crate) use hypervisor::{Client, Hypervisor, PORT, has_interface};
pub(crate) use namespace::{Namespace, stay_on_one_cpu};
pub(crate) use own_tmp::with_own_tmp;
pub(crate) use process::Process;
pub(crate) use program::{Rubridge, Totals};
pub(crate) use relay::LossyRelay;
pub(crate) use tunnel::{LEFT, RIGHT, Tunnel, TwoTunnels, is_free};
pub(crate) use wire_tap::{Heard, WireTap};

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long to wait for what must happen. Long, since it only runs out when something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Says to threads that they are to end when it is dropped, be it by a panic: a scope waits for its threads.
pub(crate) struct EndsThreads<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Does once more what was interrupted: a call with a timeout is not taken up again by the kernel when the process has been
/// stopped for a while (signal(7)).
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
