//! What ubridge 0.9.19 answered, command by command, byte for byte.
//!
//! Lines of a transcript: `>` sent (behind `@raw` as it is, with escapes), `<` received, `;` a comment, `(eof)` the
//! connection was closed. `<pid>` is the program's process id.

use crate::lab::{Hypervisor, Namespace, with_own_tmp};

/// A command and the bytes that must come back; nothing where the connection is closed.
struct Exchange {
    sent: Vec<u8>,
    expected: String,
    at_line: usize,
}

fn exchanges(transcript: &str, pid: i32) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for (at_line, line) in (1..).zip(transcript.lines()) {
        if let Some(sent) = line.strip_prefix("> ") {
            let sent = match sent.strip_prefix("@raw ") {
                Some(raw) => raw.replace("\\r", "\r").replace("\\n", "\n"),
                None => format!("{sent}\n"),
            };
            exchanges.push(Exchange { sent: sent.into_bytes(), expected: String::new(), at_line });
        } else if let Some(received) = line.strip_prefix("< ").filter(|received| *received != "(eof)") {
            let exchange = exchanges.last_mut().expect("something was sent before");
            exchange.expected.push_str(&received.replace("<pid>", &pid.to_string()));
            exchange.expected.push_str("\r\n");
        }
    }
    exchanges
}

/// Replays a transcript. Where the server closes the connection, the next command is sent over a new one.
fn replay(hypervisor: &Hypervisor<'_>, transcript: &str) {
    let mut client = hypervisor.client();
    for Exchange { sent, expected, at_line } in exchanges(transcript, hypervisor.id()) {
        client.send(&sent);
        let reply = client.reply().join("\r\n");
        let reply = if reply.is_empty() { reply } else { reply + "\r\n" };
        assert_eq!(reply, expected, "line {at_line}: {}", String::from_utf8_lossy(&sent));
        if expected.is_empty() {
            client = hypervisor.client();
        }
    }
    // Nothing more than the replies: no doubled one, no reset.
    assert_eq!(client.rest(), "");
}

#[test]
fn bridges_are_commanded_as_ever() {
    let namespace = Namespace::new();
    namespace.ip("link add nic0 up type veth peer name wan0");
    let mut hypervisor = Hypervisor::start(&namespace);
    replay(&hypervisor, include_str!("transcripts/bridge.txt"));
    assert_eq!(hypervisor.end(), Some(0));
}

#[test]
fn iol_containers_and_kernel_bridges_are_commanded_as_ever() {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        namespace.ip("link add rbbr0 type bridge");
        let mut hypervisor = Hypervisor::start(&namespace);
        replay(&hypervisor, include_str!("transcripts/iol-docker-brctl.txt"));
        assert_eq!(hypervisor.end(), Some(0));
    });
}
