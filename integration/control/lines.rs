//! Lines, in whatever pieces they arrive.

use super::{VERSION, conversation, expect_in_step, expect_replies, script};
use crate::lab::frames::Random;
use crate::lab::{Client, Hypervisor, Namespace};

/// A reply to fewer than two words.
const TOO_FEW: &str = "200-At least a module and a command must be specified";
/// The longest line that is taken.
const LONGEST_LINE: usize = 64 << 10;

/// Sends bytes as soon as they are written, and not together with later ones.
fn at_once(client: &Client) {
    client.stream.set_nodelay(true).expect("no delay");
}

/// `hypervisor version` and blanks, up to `length` bytes.
fn padded(length: usize) -> String {
    format!("{:length$}", "hypervisor version")
}

#[test]
fn commands_arrive_byte_by_byte() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    for end in ["\n", "\r\n", "\0"] {
        let mut client = hypervisor.client();
        at_once(&client);
        let conversation = conversation();
        script(&conversation, end).chunks(1).for_each(|byte| client.send(byte));
        expect_replies(&mut client, &conversation);
        expect_in_step(&mut client, end);
    }
}

#[test]
fn commands_arrive_many_at_once_and_in_any_pieces() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut random = Random(1);
    for round in 0..40 {
        let mut client = hypervisor.client();
        at_once(&client);
        let conversation = conversation();
        let bytes = script(&conversation, ["\n", "\r\n"][round % 2]);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // The first rounds send all at once.
            let len = if round < 2 { rest.len() } else { (1 + random.below(100 * round)).min(rest.len()) };
            client.send(&rest[..len]);
            rest = &rest[len..];
        }
        expect_replies(&mut client, &conversation);
        expect_in_step(&mut client, &format!("round {round}"));
    }
}

/// A carriage return that is the last byte of a read ends its line; the line feed comes with the next.
#[test]
fn a_line_feed_may_come_apart_from_its_carriage_return() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    at_once(&client);
    let lengths = (19..40).chain(509..515).chain(4093..4099);
    for length in lengths {
        client.send(format!("{}\r", padded(length - 1)).as_bytes());
        assert_eq!(client.reply(), [VERSION], "{length} bytes");
        client.send(b"\n");
        expect_in_step(&mut client, &format!("{length} bytes, then the line feed"));
        client.send(format!("{}\r", padded(length - 1)).as_bytes());
        assert_eq!(client.reply(), [VERSION], "{length} bytes");
        client.send(b"\nhypervisor cmd_list x\r\n");
        assert_eq!(client.reply(), ["201-unknown module 'x'"], "{length} bytes, then more with the line feed");
    }
}

#[test]
fn a_line_end_may_be_anywhere_in_a_read() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    for length in (509..515).chain(4093..4099).chain(8190..8195) {
        for end in ["\r\n", "\n", "\0"] {
            // A connection of its own, so that the first read begins with the first byte.
            let mut client = hypervisor.client();
            client.send(format!("{}{end}hypervisor cmd_list x{end}", padded(length - 1)).as_bytes());
            assert_eq!(client.reply(), [VERSION], "{length} bytes");
            assert_eq!(client.reply(), ["201-unknown module 'x'"], "{length} bytes");
            expect_in_step(&mut client, &format!("{length} bytes, {end:?}"));
        }
    }
}

#[test]
fn every_line_is_answered_once() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let quote = "200-Parse error: unexpected quote";
    let open = "200-Parse error: unexpected end of line";
    for (sent, replies) in [
        ("\n\r\n\0", vec![TOO_FEW; 3]),
        ("   \n\t\r\n", vec![TOO_FEW; 2]),
        ("# hypervisor version\n!\n  #\"\n", vec![TOO_FEW; 3]),
        ("hypervisor\n\"hypervisor version\"\n\"\" \"\"\n", vec![TOO_FEW; 3]),
        ("hypervisor version\0hypervisor version\n", vec![VERSION; 2]),
        ("hypervisor version\rhypervisor version\nhypervisor version\n", vec![VERSION; 2]),
        ("hypervisor version\r\rhypervisor\0 version\r\n", vec![VERSION]),
        ("\"hypervisor\"\"version\"\n", vec![VERSION]),
        ("hypervisor version!x\n", vec![VERSION]),
        ("hypervisor version#\"\n", vec![VERSION]),
        ("bridge create\"x\" y\n", vec![quote]),
        ("bridge create \"x\n", vec![open]),
        ("bridge create \"x\r\n", vec![open]),
        ("bridge create \"x\0\n", vec![open, TOO_FEW]),
        ("bridge create x\"y\r\nhypervisor version\r\n", vec![quote, VERSION]),
        ("Hypervisor version\n", vec!["201-Unknown module 'Hypervisor'"]),
        ("hypervisor Version\n", vec!["202-Unknown command 'Version'"]),
        ("hypervisor version \"\"\n", vec![VERSION]),
        ("hypervisor version x\n", vec!["203-Bad number of parameters (1 with min/max=0/0)"]),
    ] {
        client.send(sent.as_bytes());
        for reply in replies {
            assert_eq!(client.reply(), [reply], "{sent:?}");
        }
        expect_in_step(&mut client, sent);
    }
    assert_eq!(client.ask("bridge list"), ["100-OK"], "nothing was made");
}

#[test]
fn long_lines_are_taken_and_longer_ones_are_answered_once() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let command = "bridge create ";
    for length in [5025, LONGEST_LINE - 1, LONGEST_LINE] {
        let name = "n".repeat(length - command.len());
        assert_eq!(client.ask(&format!("{command}{name}")), [format!("100-bridge '{name}' created")]);
        assert_eq!(client.ask("bridge list"), [format!("101 {name} (NIOs = 0)"), "100-OK".to_owned()]);
        client.tell(&format!("bridge delete {name}"));
    }
    for length in [LONGEST_LINE + 1, LONGEST_LINE * 2, LONGEST_LINE * 20] {
        for filler in ["n", "\"n n\" ", " ", "#"] {
            let line: String = command.chars().chain(filler.chars().cycle()).take(length).collect();
            assert_eq!(client.ask(&line), ["200-Parse error: line too long"], "{length} bytes of {filler}");
            expect_in_step(&mut client, &format!("{length} bytes of {filler}"));
        }
    }
    assert_eq!(client.ask("bridge list"), ["100-OK"]);
}

#[test]
fn names_may_be_any_bytes() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    for name in ["é", "名前", "\u{1f980}", "a\u{7f}\u{1}", "-", "%s%n", "'", "\\", "{}"] {
        assert_eq!(client.ask(&format!("bridge create {name}")), [format!("100-bridge '{name}' created")]);
        assert_eq!(client.ask("bridge list"), [format!("101 {name} (NIOs = 0)"), "100-OK".to_owned()]);
        assert_eq!(client.ask(&format!("bridge delete {name}")), [format!("100-bridge '{name}' deleted")]);
    }
    // A name that is no text is told as far as it is.
    let commands = [
        (&b"bridge create a\xff\xfe\x80z\n"[..], "created"),
        (b"bridge start_capture a\xff\xfe\x80z \xff.pcap\n", "packet capture started"),
        (b"bridge delete a\xff\xfe\x80z\n", "deleted"),
    ];
    for (command, word) in commands {
        client.send(command);
        let reply = client.reply();
        assert!(reply.len() == 1 && reply[0].starts_with("100-") && reply[0].contains(word), "{reply:?}");
    }
    assert_eq!(client.ask("bridge list"), ["100-OK"]);
}

#[test]
fn random_bytes_are_answered_line_by_line() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let mut random = Random(2);
    for round in 0..200 {
        let length = random.below(300);
        let mut bytes = random.bytes(length);
        bytes.retain(|byte| !matches!(byte, b'\r' | 0));
        bytes.push(b'\n');
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        client.send(&bytes);
        for _ in 0..lines {
            let reply = client.reply();
            assert!(reply.len() == 1 && reply[0].starts_with("20"), "{reply:?}");
        }
        expect_in_step(&mut client, &format!("round {round}"));
    }
}

/// gns3-server reads the log when it gets an error, and takes one with this line for a mere warning.
#[test]
fn a_complaint_is_in_the_log_before_the_reply() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    client.tell("bridge create b");
    for round in 0..50 {
        let reply = client.ask(&format!("bridge add_packet_filter b f bpf \"tcp tcp {round}\""));
        let log = hypervisor.log();
        assert_eq!(reply, ["206-Failed to add filter 'f'"]);
        assert!(log.contains(&format!("Cannot compile filter 'tcp tcp {round}': syntax error")), "{log}");
    }
    assert_eq!(client.ask("bridge show b"), ["101 bridge 'b' is not running", "100-OK"]);
}

#[test]
fn long_listings_are_complete() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let names: Vec<String> = (0..1000).map(|number| format!("bridge-with-a-long-name-{number}")).collect();
    client.send(names.iter().map(|name| format!("bridge create {name}\n")).collect::<String>().as_bytes());
    for name in &names {
        assert_eq!(client.reply(), [format!("100-bridge '{name}' created")]);
    }
    let newest_first = names.iter().rev().map(|name| format!("101 {name} (NIOs = 0)"));
    let listing: Vec<String> = newest_first.chain(["100-OK".to_owned()]).collect();
    // Another client connects and is served between them.
    client.send("bridge list\n".repeat(20).as_bytes());
    let mut other = hypervisor.client();
    assert_eq!(other.ask("hypervisor version"), [VERSION]);
    assert_eq!(other.ask("bridge list"), listing);
    for _ in 0..20 {
        assert_eq!(client.reply(), listing);
    }
    expect_in_step(&mut client, "after long replies");
    client.tell("hypervisor reset");
    assert_eq!(other.ask("bridge list"), ["100-OK"]);
}
