//! Why a NIO could not be opened, and what helps.

use std::io;

use super::{KINDS, Kind};
use crate::sys::MAX_INTERFACE_NAME;

/// A NIO that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{nio}: {cause}")]
pub struct OpenError {
    /// The NIO as the user wrote it.
    pub nio: String,
    /// Why, and what helps.
    pub cause: Cause,
}

/// Why a NIO could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// No [`Kind`] has that name.
    #[error("no such kind of NIO; use {}", KINDS.iter().map(Kind::usage).collect::<Vec<_>>().join(" or "))]
    UnknownKind,
    /// What follows the kind is missing or misshapen.
    #[error("write it as {}", .0.usage())]
    Syntax(&'static Kind),
    /// The kernel would cut such a name short.
    #[error("an interface name has 1 to {MAX_INTERFACE_NAME} characters, and no '/', ':' or blank")]
    Name,
    /// There is no such interface in this network namespace.
    #[error("no such interface; `ip link` lists those of this network namespace")]
    NoSuchInterface,
    /// libpcap opens no interface that is down.
    #[error("the interface is down; `ip link set {0} up`")]
    Down(String),
    /// Its frames have no Ethernet header.
    #[error("not an Ethernet interface, so its frames cannot be bridged")]
    NotEthernet,
    /// A capability is missing.
    #[error(
        "not permitted: {capability} is needed; run it as root, or give it to the program for good with\n  \
         sudo setcap cap_net_admin,cap_net_raw=ep {program}"
    )]
    NotPermitted {
        /// The missing capability.
        capability: &'static str,
        /// The path of this program.
        program: String,
    },
    /// The file may not be opened by this user, whatever the program's capabilities.
    #[error("this user may not open {0}; run it as root, or change who may open that file")]
    NoAccess(String),
    /// There is no such device file.
    #[error("no such device file; a macvtap interface with index N has /dev/tapN")]
    NoSuchFile,
    /// Another program holds the TAP.
    #[error("in use by another program; end that one or choose another TAP")]
    Busy,
    /// The name belongs to an interface that is no TAP, or to a TAP that was made with other flags.
    #[error("exists, but not as a TAP that can be attached to; choose another name")]
    NotATap,
    /// `/dev/net/tun` is missing.
    #[error("/dev/net/tun is missing; load it with `modprobe tun`")]
    NoTun,
    /// The name of a tunnel's far end cannot be resolved.
    #[error("no address is known for the host {0}")]
    UnknownHost(String),
    /// Another bridge has the very same tunnel.
    #[error("a running bridge has the same tunnel")]
    TunnelTaken,
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Cause {
    /// A missing capability.
    pub(super) fn not_permitted(capability: &'static str) -> Self {
        let program = std::env::current_exe().map_or_else(|_| "rubridge".to_owned(), |path| path.display().to_string());
        Self::NotPermitted { capability, program }
    }
}

impl Kind {
    /// How to write it: `tap:<name>`.
    #[must_use]
    pub fn usage(&self) -> String {
        format!("{}:{}", self.name, self.arguments)
    }
}
