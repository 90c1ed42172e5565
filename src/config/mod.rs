//! The bridges that an INI file describes, one a section.
#![forbid(unsafe_code)]

pub mod ini;

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use ini::Section;

/// A bridge, as a section describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeConfig {
    /// The name of the section.
    pub name: String,
    /// One end.
    pub source: End,
    /// The other end.
    pub destination: End,
    /// Where to capture what passes.
    pub capture: Option<CaptureConfig>,
    /// What an Ethernet end is to receive, in the language of libpcap.
    pub pcap_filter: Option<String>,
}

/// One end of a bridge. As text, it is as in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Frames in datagrams.
    Udp {
        /// The port to receive on.
        local_port: u16,
        /// Where to send to: a name or an address, without brackets.
        host: String,
        /// The port to send to.
        remote_port: u16,
    },
    /// Frames in datagrams of UNIX sockets.
    Unix {
        /// The path to receive on.
        local: String,
        /// The path to send to.
        remote: String,
    },
    /// A network interface, by way of libpcap.
    Ethernet(String),
    /// A TAP.
    Tap(String),
    /// A network interface.
    LinuxRaw(String),
}

/// A capture that begins with the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureConfig {
    /// The file to write.
    pub file: PathBuf,
    /// The link type, by the name that libpcap has for it.
    pub protocol: String,
}

/// Why a section makes no bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No key gives the one end.
    #[error("source NIO not found")]
    NoSource,
    /// No key gives the other end.
    #[error("destination NIO not found")]
    NoDestination,
    /// A UDP tunnel is not written as `<local port>:<host>:<remote port>`.
    #[error("invalid UDP tunnel syntax")]
    UdpSyntax,
    /// A pair of UNIX sockets is not written as `<local path>:<remote path>`.
    #[error("invalid UNIX domain socket syntax")]
    UnixSyntax,
}

impl BridgeConfig {
    /// Reads what a section says.
    ///
    /// # Errors
    /// [`ConfigError`], of the source first.
    pub fn read(section: &Section) -> Result<Self, ConfigError> {
        let text = |key| section.get(key).map(str::to_owned);
        Ok(Self {
            name: section.name.clone(),
            source: end(section, "source").unwrap_or(Err(ConfigError::NoSource))?,
            destination: end(section, "destination").unwrap_or(Err(ConfigError::NoDestination))?,
            capture: section.get("pcap_file").map(|file| CaptureConfig {
                file: file.into(),
                protocol: text("pcap_protocol").unwrap_or_else(|| "EN10MB".to_owned()),
            }),
            pcap_filter: text("pcap_filter"),
        })
    }

    /// What is said before the filter is applied, if there is one.
    #[must_use]
    pub fn filter_announcement(&self) -> Option<String> {
        self.pcap_filter.as_ref().map(|filter| format!("Applying PCAP filter '{filter}'"))
    }
}

impl Section {
    /// What is said before the section is read.
    #[must_use]
    pub fn announcement(&self) -> String {
        format!("Parsing {}", self.name)
    }
}

impl CaptureConfig {
    /// What is said before the capture is started.
    #[must_use]
    pub fn announcement(&self) -> String {
        format!("Starting packet capture to {} with protocol {}", self.file.display(), self.protocol)
    }
}

impl End {
    /// What is said before it is opened.
    #[must_use]
    pub fn announcement(&self) -> String {
        let what = match self {
            Self::Udp { .. } => "Creating UDP tunnel",
            Self::Unix { .. } => "Creating UNIX domain socket",
            Self::Ethernet(_) => "Opening Ethernet device",
            Self::Tap(_) => "Opening TAP device",
            Self::LinuxRaw(_) => "Opening Linux RAW device",
        };
        format!("{what} {self}")
    }
}

impl Display for End {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { local_port, host, remote_port } if host.contains(':') => {
                write!(out, "{local_port}:[{host}]:{remote_port}")
            }
            Self::Udp { local_port, host, remote_port } => write!(out, "{local_port}:{host}:{remote_port}"),
            Self::Unix { local, remote } => write!(out, "{local}:{remote}"),
            Self::Ethernet(device) | Self::Tap(device) | Self::LinuxRaw(device) => out.write_str(device),
        }
    }
}

/// Reads the value of a key.
type ReadEnd = fn(&str) -> Result<End, ConfigError>;

/// The kinds of ends; where a section has keys of several, the first counts.
const KINDS: [(&str, ReadEnd); 5] = [
    ("udp", udp),
    ("unix", unix),
    ("ethernet", |device| Ok(End::Ethernet(device.to_owned()))),
    ("tap", |device| Ok(End::Tap(device.to_owned()))),
    ("linux_raw", |device| Ok(End::LinuxRaw(device.to_owned()))),
];

/// The end on one side, if there is a key for it.
fn end(section: &Section, side: &str) -> Option<Result<End, ConfigError>> {
    KINDS.iter().find_map(|(kind, read)| section.get(&format!("{side}_{kind}")).map(read))
}

/// Reads `<local port>:<host>:<remote port>`, where brackets protect the colons of an address.
fn udp(text: &str) -> Result<End, ConfigError> {
    let parts = || {
        let (local_port, rest) = text.split_once(':')?;
        let (host, remote_port) = rest.rsplit_once(':')?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bracketed.or_else(|| (!host.contains(':')).then_some(host))?;
        let (local_port, remote_port) = (port(local_port)?, port(remote_port)?);
        (!host.is_empty()).then(|| End::Udp { local_port, host: host.to_owned(), remote_port })
    };
    parts().ok_or(ConfigError::UdpSyntax)
}

fn port(text: &str) -> Option<u16> {
    text.trim_ascii().parse().ok()
}

/// Reads `<local path>:<remote path>`.
fn unix(text: &str) -> Result<End, ConfigError> {
    match text.split_once(':') {
        Some((local, remote)) if !local.is_empty() && !remote.is_empty() => {
            Ok(End::Unix { local: local.to_owned(), remote: remote.to_owned() })
        }
        _ => Err(ConfigError::UnixSyntax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bridge of a file with one section and these lines in it.
    fn bridge(lines: &str) -> Result<BridgeConfig, ConfigError> {
        let sections = ini::parse("a.ini", format!("[Bridge]\n{lines}").as_bytes()).unwrap();
        BridgeConfig::read(&sections[0])
    }

    fn source(line: &str) -> Result<End, ConfigError> {
        bridge(&format!("source_{line}\ndestination_tap = t")).map(|bridge| bridge.source)
    }

    fn tunnel(local_port: u16, host: &str, remote_port: u16) -> End {
        End::Udp { local_port, host: host.to_owned(), remote_port }
    }

    #[test]
    fn a_section_is_a_bridge() {
        let read = bridge(
            "source_ethernet = eth0\ndestination_udp = 10001:127.0.0.1:10000\npcap_file = \"/tmp/a b.pcap\"\n\
             pcap_protocol = PPP_SERIAL\npcap_filter = \"not ether src 00:11:22:33:44:55\"",
        );
        let capture = CaptureConfig { file: "/tmp/a b.pcap".into(), protocol: "PPP_SERIAL".to_owned() };
        assert_eq!(
            read,
            Ok(BridgeConfig {
                name: "bridge".to_owned(),
                source: End::Ethernet("eth0".to_owned()),
                destination: tunnel(10001, "127.0.0.1", 10000),
                capture: Some(capture),
                pcap_filter: Some("not ether src 00:11:22:33:44:55".to_owned()),
            })
        );
    }

    #[test]
    fn every_kind_is_an_end_on_both_sides_and_announced() {
        for (line, announcement) in [
            ("udp = 1:host:2", "Creating UDP tunnel 1:host:2"),
            ("udp = 1:[::1]:2", "Creating UDP tunnel 1:[::1]:2"),
            ("unix = /tmp/a:/tmp/b", "Creating UNIX domain socket /tmp/a:/tmp/b"),
            ("ethernet = Eth0", "Opening Ethernet device Eth0"),
            ("tap = tap0", "Opening TAP device tap0"),
            ("linux_raw = eth0", "Opening Linux RAW device eth0"),
        ] {
            let read = bridge(&format!("source_{line}\ndestination_{line}")).unwrap();
            assert_eq!(read.source.announcement(), announcement);
            assert_eq!(read.destination, read.source);
        }
    }

    #[test]
    fn the_first_kind_counts() {
        let all = ["udp = 1:h:2", "unix = a:b", "ethernet = e", "tap = t", "linux_raw = r"];
        for first in 0..all.len() {
            let rest: Vec<&str> = all[first..].iter().rev().copied().collect();
            let lines = |side| format!("{side}_{}", rest.join(&format!("\n{side}_")));
            let read = bridge(&format!("{}\n{}", lines("source"), lines("destination"))).unwrap();
            assert_eq!(Ok(&read.source), source(all[first]).as_ref());
            assert_eq!(read.destination, read.source);
        }
        // Even where it is wrong.
        assert_eq!(source("udp = wrong\nsource_tap = t"), Err(ConfigError::UdpSyntax));
    }

    #[test]
    fn a_missing_end_is_told() {
        let told = |lines| bridge(lines).unwrap_err().to_string();
        assert_eq!(told("destination_tap = t"), "source NIO not found");
        assert_eq!(told("source_fusion_vmnet = vmnet1"), "source NIO not found");
        assert_eq!(told("source_tap = t"), "destination NIO not found");
        assert_eq!(told(""), "source NIO not found");
        assert_eq!(told("source_udp = 1:2"), "invalid UDP tunnel syntax");
    }

    #[test]
    fn a_udp_tunnel_has_two_ports_and_a_host() {
        assert_eq!(source("udp = 10000:192.0.2.1:65535"), Ok(tunnel(10000, "192.0.2.1", 65535)));
        assert_eq!(source("udp = 0:lab.example: 20"), Ok(tunnel(0, "lab.example", 20)));
        assert_eq!(source("udp = 1:[2001:db8::1]:2"), Ok(tunnel(1, "2001:db8::1", 2)));
        for wrong in
            ["", "1", "1:2", "::", "1::2", "1:[]:2", "1:::1:2", "1:h:2:3", "x:h:2", "1:h:2x", "65536:h:1", "1:h:-1"]
        {
            assert_eq!(source(&format!("udp = {wrong}")), Err(ConfigError::UdpSyntax), "{wrong}");
        }
    }

    #[test]
    fn unix_sockets_are_a_pair() {
        for wrong in ["", "/tmp/a", "/tmp/a:", ":/tmp/b"] {
            assert_eq!(source(&format!("unix = {wrong}")), Err(ConfigError::UnixSyntax), "{wrong}");
        }
    }

    #[test]
    fn a_capture_is_of_ethernet_unless_told_otherwise() {
        let read = bridge("source_tap = a\ndestination_tap = b\npcap_file = c.pcap\npcap_filter = ip").unwrap();
        let announcement = read.capture.as_ref().expect("a capture").announcement();
        assert_eq!(announcement, "Starting packet capture to c.pcap with protocol EN10MB");
        assert_eq!(read.filter_announcement().as_deref(), Some("Applying PCAP filter 'ip'"));
        let read = bridge("source_tap = a\ndestination_tap = b\npcap_protocol = PPP").unwrap();
        assert_eq!((&read.capture, read.filter_announcement()), (&None, None));
    }

    #[test]
    fn a_section_is_announced() {
        assert_eq!(ini::parse("a.ini", b"[Lan 1]").unwrap()[0].announcement(), "Parsing lan 1");
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(udp in r"[0-9a:\[\]]{0,16}", unix in "[a:]{0,8}") {
            let _ = bridge(&format!("source_udp = {udp}\ndestination_unix = {unix}"));
        }

        #[test]
        fn an_end_reads_back_from_its_text(local_port: u16, remote_port: u16, host in r"[a-z0-9.]{1,20}|[0-9a-f]{0,4}::[0-9a-f]{1,4}") {
            let end = tunnel(local_port, &host, remote_port);
            prop_assert_eq!(source(&format!("udp = {end}")), Ok(end));
        }
    }
}
