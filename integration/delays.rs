//! The filter `delay` on frames that really pass a bridge: what it holds, and what becomes of that.

use std::time::{Duration, Instant};

use crate::lab::{LEFT, Namespace, RIGHT, Tunnel, TwoTunnels};

#[test]
fn delay_holds_each_frame_and_not_the_line() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f delay 500");
    let start = Instant::now();
    tunnels.left.send_marks(0..40);
    let sent = start.elapsed();
    tunnels.right.send_marks(40..80);
    (0..40).for_each(|number| tunnels.right.expect_mark(number));
    (40..80).for_each(|number| tunnels.left.expect_mark(number));
    let last = start.elapsed();
    assert!(last >= Duration::from_millis(500), "held: {last:?}");
    // One after the other they would take 20 seconds.
    assert!(last < sent + Duration::from_secs(10), "held together: {last:?}");
}

#[test]
fn what_is_held_back_has_a_limit_that_is_told() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter(FOR_EVER);
    // A few at a time, as they wait in the socket's buffer. 32 MiB are held.
    let frames = (32 << 20) / 60_000 + 1;
    for number in 1..=frames {
        tunnels.left.send(&[1; 60_000]);
        if number % 10 == 0 || number == frames {
            tunnels.wait_for_frames(number);
        }
    }
    tunnels.hypervisor.wait_for_log("reason=\"delay_full\"");
    tunnels.client.tell("bridge reset_packet_filters b");
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
}

#[test]
fn jitter_does_not_change_the_order() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f delay 20 20");
    tunnels.left.send_marks(0..500);
    (0..500).for_each(|number| tunnels.right.expect_mark(number));
}

#[test]
fn delays_add_up() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("short delay 100");
    tunnels.add_filter("long delay 200");
    let start = Instant::now();
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

/// Longer than any test.
const FOR_EVER: &str = "held delay 3600000";

#[test]
fn frames_held_back_are_discarded_with_what_holds_them() {
    let namespace = Namespace::new();
    for commands in [
        &["bridge reset_packet_filters b"][..],
        &["bridge delete_packet_filter b held"],
        &["bridge delete b", "bridge create b", LEFT, RIGHT, "bridge start b"],
        &["hypervisor reset", "bridge create b", LEFT, RIGHT, "bridge start b"],
    ] {
        let mut tunnels = TwoTunnels::start(&namespace);
        tunnels.add_filter(FOR_EVER);
        tunnels.left.send_marks(0..100);
        tunnels.right.send_marks(0..100);
        tunnels.wait_for_frames(100);
        tunnels.client.wait_for_frames("b", "Destination", 100);
        tunnels.client.tell_all(commands);
        tunnels.left.send_marks([1000]);
        tunnels.right.expect_mark(1000);
        tunnels.right.send_marks([1000]);
        tunnels.left.expect_mark(1000);
        tunnels.client.tell("hypervisor stop");
        assert_eq!(tunnels.hypervisor.end(), Some(0));
    }
}

#[test]
fn a_stop_discards_what_is_held_back() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    // Long enough for the stop to come first.
    tunnels.add_filter("held delay 3000");
    tunnels.left.send_marks(0..100);
    tunnels.wait_for_frames(100);
    tunnels.client.tell_all(&["bridge stop b", "bridge start b"]);
    tunnels.left.send_marks([1000]);
    tunnels.right.expect_mark(1000);
}

#[test]
fn other_changes_leave_held_frames_alone() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("held delay 700");
    tunnels.left.send_marks(0..10);
    tunnels.client.tell("bridge add_packet_filter b other frequency_drop 0");
    tunnels.client.tell("bridge start_capture b held.pcap");
    tunnels.client.tell("bridge rename b c");
    tunnels.client.tell("bridge delete_packet_filter c other");
    tunnels.client.tell("bridge stop_capture c");
    (0..10).for_each(|number| tunnels.right.expect_mark(number));
}

#[test]
fn a_delay_does_not_hold_up_other_bridges() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter(FOR_EVER);
    tunnels.client.tell_all(&["bridge create c", "bridge add_nio_udp c 20010 127.0.0.1 20011"]);
    tunnels.client.tell_all(&["bridge add_nio_udp c 20012 127.0.0.1 20013", "bridge start c"]);
    let (left, right) = (Tunnel::new(&namespace, 20011, 20010), Tunnel::new(&namespace, 20013, 20012));
    for number in 0..100 {
        tunnels.left.send_marks([number]);
        left.send_marks([number]);
        right.expect_mark(number);
        right.send_marks([number]);
        left.expect_mark(number);
    }
}
