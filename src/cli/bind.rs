//! Where to listen for control connections: the value of `-H`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use crate::number;

/// The port where none is given.
const DEFAULT_PORT: u16 = 4242;
/// The most addresses of one name that are listened on.
const MOST_ADDRESSES: usize = 10;

/// A host, or any, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    /// A name or an address; without one, every IPv4 address of this machine.
    pub(super) host: Option<String>,
    pub(super) port: u16,
}

/// The port is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("port {0} is not between 1 and 65535")]
pub(super) struct PortError(i64);

/// The host is not known.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve '{host}': {cause}")]
pub(super) struct ResolveError {
    host: String,
    cause: io::Error,
}

impl Bind {
    /// Reads `[<host>:]<port>`. The last colon counts, so that an IPv6 address needs no brackets, but may have them.
    pub(super) fn parse(text: &str) -> Result<Self, PortError> {
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = match number::leading(port) {
            0 => DEFAULT_PORT,
            port => u16::try_from(port).map_err(|_| PortError(port))?,
        };
        Ok(Self { host: (!host.is_empty()).then(|| host.to_owned()), port })
    }

    /// The addresses to listen on. May wait for a name server.
    pub(super) fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let Some(host) = &self.host else {
            return Ok(vec![(Ipv4Addr::UNSPECIFIED, self.port).into()]);
        };
        match (host.as_str(), self.port).to_socket_addrs() {
            Ok(addresses) => Ok(addresses.take(MOST_ADDRESSES).collect()),
            Err(cause) => Err(ResolveError { host: host.clone(), cause }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Vec<SocketAddr> {
        Bind::parse(text).unwrap().resolve().unwrap()
    }

    #[test]
    fn every_form_of_an_address_is_understood() {
        for (text, address) in [
            ("4299", "0.0.0.0:4299"),
            (":4299", "0.0.0.0:4299"),
            ("127.0.0.1:4299", "127.0.0.1:4299"),
            ("0.0.0.0:65535", "0.0.0.0:65535"),
            ("::1:4299", "[::1]:4299"),
            ("[::1]:4299", "[::1]:4299"),
            (":::4299", "[::]:4299"),
            ("[::]:4299", "[::]:4299"),
            ("0", "0.0.0.0:4242"),
            ("", "0.0.0.0:4242"),
            ("port", "0.0.0.0:4242"),
            ("127.0.0.1:", "127.0.0.1:4242"),
        ] {
            assert_eq!(addresses(text), [address.parse().unwrap()], "{text}");
        }
    }

    #[test]
    fn names_are_resolved() {
        let found = addresses("localhost:4299");
        assert!(!found.is_empty() && found.len() <= MOST_ADDRESSES, "{found:?}");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 4299), "{found:?}");
        let error = Bind::parse("no such host:4299").unwrap().resolve().unwrap_err().to_string();
        assert!(error.starts_with("cannot resolve 'no such host': "), "{error}");
    }

    #[test]
    fn ports_that_do_not_exist_are_refused() {
        for (text, port) in [("70000", 70000), ("127.0.0.1:65536", 65536), ("-1", -1)] {
            assert_eq!(Bind::parse(text), Err(PortError(port)));
        }
        assert_eq!(PortError(70000).to_string(), "port 70000 is not between 1 and 65535");
    }
}
