//! A `/tmp` of a test's own: IOL's sockets have fixed paths there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs `task` where `/tmp` is empty, and nobody else sees what is put there. Threads and processes that it starts
/// are there too.
pub(crate) fn with_own_tmp(task: impl FnOnce() + Send) {
    let run = || {
        assert!(nix::unistd::geteuid().is_root(), "these tests mount a disk of their own: run them as root");
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("mounts are ours alone");
        let programs = Path::new(env!("CARGO_BIN_EXE_rubridge")).parent().expect("a folder");
        let kept = File::open(programs).expect("the folder of the program");
        mount(Some("tmpfs"), "/tmp", Some("tmpfs"), MsFlags::empty(), Some("mode=1777")).expect("an empty /tmp");
        if programs.starts_with("/tmp") {
            std::fs::create_dir_all(programs).expect("the same path");
            let kept = format!("/proc/self/fd/{}", kept.as_raw_fd());
            mount(Some(kept.as_str()), programs, none, MsFlags::MS_BIND, none).expect("the program is there again");
        }
        task();
    };
    if let Err(panic) = std::thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}
