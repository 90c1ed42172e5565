//! `bpf`: frames that match an expression are lost.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pcap::{BpfProgram, Capture, Linktype};

use super::{Filter, FilterError, Verdict};
use crate::patience;

/// How long compiling may take. Only an expression that names hosts takes any time, and a resolver that nobody
/// answers gives up after this long.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest expression, in bytes: what libpcap needs to compile one grows faster than its length.
const LONGEST: usize = 16 << 10;

/// Drops frames that match an expression in the language of libpcap.
pub struct Bpf {
    expression: String,
    /// It is only read, but its type does not say that threads may do so together.
    program: Mutex<BpfProgram>,
}

impl Bpf {
    pub(super) const USAGE: &str = "'bpf' takes an expression, in double quotes, and perhaps a link type";

    /// Compiles `expression` for frames of a link type, which is Ethernet or named as libpcap does, in capitals
    /// or not, without `DLT_`.
    ///
    /// # Errors
    /// Where there is no such link type or the expression is wrong; also where the names in it cannot be looked
    /// up within two seconds.
    pub fn compile(expression: &str, link_type: Option<&str>) -> Result<Self, FilterError> {
        let link_type = match link_type {
            None => Linktype::ETHERNET,
            Some(name) => Linktype::from_name(name).map_err(|_| FilterError::UnknownLinkType(name.to_owned()))?,
        };
        let expression = expression.to_owned();
        if expression.len() > LONGEST {
            let message = format!("it is longer than {LONGEST} bytes");
            return Err(FilterError::Expression { expression, message });
        }
        let text = expression.clone();
        let compiled = patience::wait(PATIENCE, move || Capture::dead(link_type)?.compile(&text, true));
        let too_long = || Err(pcap::Error::PcapError("it takes too long, or the names in it are not found".to_owned()));
        match compiled.unwrap_or_else(too_long) {
            Ok(program) => Ok(Self { expression, program: Mutex::new(program) }),
            Err(error) => Err(FilterError::Expression { expression, message: message_of(error) }),
        }
    }
}

impl Bpf {
    /// Whether the expression is true of `frame`.
    #[must_use]
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).filter(frame)
    }
}

impl Filter for Bpf {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        if self.matches(frame) { Verdict::Drop } else { Verdict::Pass }
    }
}

impl fmt::Debug for Bpf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bpf").field("expression", &self.expression).finish_non_exhaustive()
    }
}

/// gns3-server tolerates an expression with an error in its syntax, and knows it by how the message begins.
fn message_of(error: pcap::Error) -> String {
    let pcap::Error::PcapError(message) = error else { return error.to_string() };
    let inner = message.strip_prefix("can't parse filter expression: ");
    inner.filter(|inner| inner.starts_with("syntax error")).map_or_else(|| message.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty UDP datagram from port 53, over IPv4, perhaps with a tag before it.
    fn datagram(tagged: bool) -> Vec<u8> {
        let tag: &[u8] = if tagged { &[0x81, 0, 0, 7] } else { &[] };
        let ip = [0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&[2; 12], tag, &[8, 0], &ip, &[0, 53, 0x9c, 0x40, 0, 8, 0, 0]].concat()
    }

    fn verdict(expression: &str, frame: &mut [u8]) -> Verdict {
        Bpf::compile(expression, None).unwrap().judge(frame)
    }

    fn complaint(expression: &str) -> String {
        Bpf::compile(expression, None).unwrap_err().to_string()
    }

    #[test]
    fn what_matches_is_dropped() {
        for (expression, tagged, expected) in [
            ("udp src port 53", false, Verdict::Drop),
            ("udp dst port 53", false, Verdict::Pass),
            ("udp", true, Verdict::Pass),
            ("vlan 7 and udp src port domain", true, Verdict::Drop),
            ("vlan 8", true, Verdict::Pass),
            ("ether src 02:02:02:02:02:02", false, Verdict::Drop),
            ("len > 42", false, Verdict::Pass),
            ("len > 42", true, Verdict::Drop),
        ] {
            assert_eq!(verdict(expression, &mut datagram(tagged)), expected, "{expression}");
        }
    }

    #[test]
    fn frames_end_anywhere() {
        for len in 0..datagram(false).len() {
            assert_eq!(verdict("udp dst port 40000", &mut datagram(false)[..len.min(37)]), Verdict::Pass);
        }
        assert_eq!(verdict("len = 0", &mut []), Verdict::Drop);
        assert_eq!(verdict("len > 65535", &mut vec![0; 65_600]), Verdict::Drop);
    }

    #[test]
    fn link_types_are_named_without_a_prefix() {
        let frame_relay = Bpf::compile("ip", Some("FRelay")).unwrap();
        assert_eq!(frame_relay.judge(&mut datagram(false)), Verdict::Pass, "another header");
        assert!(Bpf::compile("ip", Some("en10mb")).is_ok());
        for name in ["DLT_EN10MB", "ETHERNET", ""] {
            let error = Bpf::compile("ip", Some(name)).unwrap_err();
            assert_eq!(error.to_string(), format!("Unknown link type {name}"));
        }
    }

    #[test]
    fn an_error_of_syntax_is_told_as_gns3_server_expects() {
        for expression in ["foo bar", "tcp port", "((", "not", "host 1.2.3.4 or or"] {
            let start = format!("Cannot compile filter '{expression}': syntax error");
            assert!(complaint(expression).starts_with(&start), "{}", complaint(expression));
        }
    }

    #[test]
    fn other_errors_are_told_as_libpcap_does() {
        assert_eq!(
            complaint("tcp port nosuchport"),
            "Cannot compile filter 'tcp port nosuchport': unknown port 'nosuchport'"
        );
        for expression in ["vlan 5000", "ip and arp", "ip[99999999999]", "a\0b"] {
            let complaint = complaint(expression);
            let message = complaint.strip_prefix(&format!("Cannot compile filter '{expression}': ")).unwrap();
            assert!(!message.is_empty() && !message.starts_with("syntax error"), "{message}");
        }
    }

    #[test]
    fn a_long_expression_is_compiled_or_refused_but_harms_nobody() {
        let vlans: Vec<String> = (0..1200).map(|number| format!("vlan {number}")).collect();
        let joined =
            [vlans.join(" or "), vec!["vlan"; 1700].join(" and "), vec!["not"; 4000].join(" "), "(".repeat(16_000)];
        for expression in joined {
            assert!(expression.len() <= LONGEST);
            let _ = Bpf::compile(&expression, None);
        }
        assert!(complaint(&"x".repeat(LONGEST + 1)).ends_with("': it is longer than 16384 bytes"));
    }

    #[test]
    fn threads_share_it() {
        let filter = Bpf::compile("udp", None).unwrap();
        let judge = || (0..1000).all(|_| filter.judge(&mut datagram(false)) == Verdict::Drop);
        assert!(std::thread::scope(
            |scope| [(); 4].map(|()| scope.spawn(judge)).map(|t| t.join().unwrap()) == [true; 4]
        ));
    }
}
