//! What `-d` tells of each frame.

use crate::lab::{Namespace, TwoTunnels, WireTap, wait_until};

/// The lines of the log behind those of the start.
fn told(tunnels: &TwoTunnels<'_>) -> Vec<String> {
    let is_of_the_start = |line: &&str| line.starts_with("uBridge ") || line.starts_with("Hypervisor ");
    tunnels.hypervisor.log().lines().skip_while(is_of_the_start).map(str::to_owned).collect()
}

#[test]
fn level_1_has_a_line_for_each_frame_and_each_that_a_filter_drops() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start_with(&namespace, "-d 1");
    tunnels.left.send(&[7; 1514]);
    assert!(tunnels.right.next() == [7; 1514]);
    tunnels.right.send_marks([1]);
    tunnels.left.expect_mark(1);
    tunnels.client.tell("bridge add_packet_filter b nothing frequency_drop 0");
    tunnels.client.tell("bridge add_packet_filter b \"link down\" frequency_drop -1");
    tunnels.left.send_marks([2]);
    tunnels.client.wait_for_frames("b", "Source", 2);
    tunnels.client.tell("bridge rename b c");
    tunnels.right.send(&[1]);
    let expected = [
        "Received 1514 bytes on bridge 'b' (source NIO)",
        "Received 60 bytes on bridge 'b' (destination NIO)",
        "Received 60 bytes on bridge 'b' (source NIO)",
        "Packet dropped by packet filter 'link down' on bridge 'b'",
        "Received 1 bytes on bridge 'c' (destination NIO)",
        "Packet dropped by packet filter 'link down' on bridge 'c'",
    ];
    wait_until("all is told", || told(&tunnels).len() >= expected.len());
    assert_eq!(told(&tunnels), expected);
}

#[test]
fn level_2_shows_the_bytes_too() {
    let namespace = Namespace::new();
    let tunnels = TwoTunnels::start_with(&namespace, "-d2");
    let mut frame = WireTap::mark(0x4142);
    frame.truncate(34);
    frame[33] = b'~';
    tunnels.left.send(&frame);
    assert!(tunnels.right.next() == frame);
    let expected = [
        "Received 34 bytes on bridge 'b' (source NIO)",
        "02 02 02 02 02 02 02 02 02 02 02 02 88 b5 41 42  ..............AB",
        "02 02 02 02 02 02 02 02 02 02 02 02 02 02 02 02  ................",
        "02 7e                                            .~",
    ];
    wait_until("all is told", || told(&tunnels).len() >= expected.len());
    assert_eq!(told(&tunnels), expected);
}

#[test]
fn without_it_frames_are_not_told() {
    let namespace = Namespace::new();
    let tunnels = TwoTunnels::start_with(&namespace, "-d 0");
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
    tunnels.left.send_marks([2]);
    tunnels.right.expect_mark(2);
    assert!(told(&tunnels).is_empty());
}
