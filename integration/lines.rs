//! Packet filters that ubridge does not have: for one direction, and `duplicate`, `reorder` and `rate`.

use crate::lab::{Namespace, Tunnel, TwoTunnels, WireTap};

fn number_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[14], frame[15]])
}

#[test]
fn a_filter_may_be_for_one_direction() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for (direction, filters, to_the_right) in [
        ("source", ["packet_loss 100", "bpf \"len > 0\"", "bpf \"len > 0\" EN10MB", "frequency_drop -1"], false),
        ("destination", ["packet_loss 100", "bpf \"len > 0\"", "bpf \"len > 0\" EN10MB", "frequency_drop 1"], true),
    ] {
        for filter in filters {
            tunnels.add_filter(&format!("f {filter} dir={direction}"));
            tunnels.left.send_marks([1]);
            tunnels.right.send_marks([2]);
            if to_the_right {
                tunnels.right.expect_mark(1);
            } else {
                tunnels.left.expect_mark(2);
            }
            tunnels.client.wait_for_frames("b", "Source", 1);
            tunnels.client.wait_for_frames("b", "Destination", 1);
            tunnels.reset();
            tunnels.client.tell("bridge reset_stats b");
            // Nothing of before comes in between.
            tunnels.left.send_marks([3]);
            tunnels.right.send_marks([4]);
            tunnels.right.expect_mark(3);
            tunnels.left.expect_mark(4);
            tunnels.client.tell("bridge reset_stats b");
        }
    }
}

#[test]
fn a_direction_that_there_is_not_is_refused() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for wrong in ["packet_loss 100 dir=both", "packet_loss dir=source 100", "bpf dir=source", "rate 100 dir="] {
        let refused = ["206-Failed to add filter 'f'"];
        assert_eq!(tunnels.client.ask(&format!("bridge add_packet_filter b f {wrong}")), refused);
    }
    tunnels.hypervisor.wait_for_log("A filter's direction is dir=source or dir=destination; not 'dir=both'");
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
}

#[test]
fn a_copy_follows_its_frame_and_is_judged_for_itself() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f duplicate 0");
    assert_eq!(tunnels.passed(100), (0..100).collect::<Vec<_>>());
    tunnels.add_filter("f duplicate 100");
    assert_eq!(tunnels.passed(100), (0..100).flat_map(|number| [number; 2]).collect::<Vec<_>>());
    // The copy is the second of each pair.
    tunnels.add_filter("f duplicate 100");
    tunnels.add_filter("g frequency_drop 2");
    assert_eq!(tunnels.passed(100), (0..100).collect::<Vec<_>>());
    // What is held back in between changes nothing.
    tunnels.add_filter("a duplicate 100");
    tunnels.add_filter("b delay 1");
    tunnels.left.send_marks([7]);
    (0..2).for_each(|_| tunnels.right.expect_mark(7));
    tunnels.reset();
    // Copies are not copied again: eight filters make nine of a frame, and not 256.
    (0..8).for_each(|number| tunnels.add_filter(&format!("f{number} duplicate 100")));
    assert_eq!(tunnels.passed(3), [[0; 9], [1; 9], [2; 9]].concat());
}

#[test]
fn some_frames_are_overtaken_and_the_others_keep_their_order() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f reorder 0 60000");
    assert_eq!(tunnels.passed(100), (0..100).collect::<Vec<_>>());
    tunnels.add_filter("f reorder 50 200");
    tunnels.left.send_marks(0..1000);
    let arrived: Vec<u16> = (0..1000).map(|_| number_of(&tunnels.right.next())).collect();
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>(), "none is lost or doubled");
    assert!(arrived != sorted, "all are sent within the time for which some are held");
    tunnels.reset();
    tunnels.add_filter("f reorder 100 1");
    tunnels.left.send_marks(0..100);
    (0..100).for_each(|number| tunnels.right.expect_mark(number));
}

#[test]
fn a_line_has_a_queue_each_way_and_what_does_not_fit_is_lost() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    // 125 bytes a second: while the test runs, only what was on the line at the start gets through.
    tunnels.add_filter("f rate 1 1");
    let frame = |number: u16| {
        let mut frame = WireTap::mark(number);
        frame.resize(100, 0);
        frame
    };
    for (way, title) in ["Source", "Destination"].into_iter().enumerate() {
        let from = if way == 0 { &tunnels.left } else { &tunnels.right };
        (0..50).for_each(|number| from.send(&frame(number)));
        tunnels.client.wait_for_frames("b", title, 50);
    }
    for far_end in [&tunnels.right, &tunnels.left] {
        // The first needs 0.8 s; 1 kB have room.
        (0..2).for_each(|number| assert!(far_end.next() == frame(number)));
    }
    tunnels.reset();
    // A line that is not busy lets all pass, in order, and rates add up to the slowest.
    tunnels.add_filter("f rate 1000000");
    tunnels.add_filter("g rate 500000 1000 dir=source");
    tunnels.left.send_marks(100..300);
    let next = |tunnel: &Tunnel| loop {
        let frame = tunnel.next();
        if frame.len() == WireTap::mark(0).len() {
            return number_of(&frame);
        }
    };
    (100..300).for_each(|number| assert_eq!(next(&tunnels.right), number));
}

#[test]
fn they_change_under_traffic_for_ever() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.with_traffic(|client| {
        for number in 0..250 {
            let filters =
                ["duplicate 10", "reorder 10 5 dir=source", "rate 100000 50", "packet_loss 1 dir=destination"];
            for (name, filter) in filters.iter().enumerate() {
                client.tell(&format!("bridge add_packet_filter b f{name} {filter}"));
            }
            client.tell(&format!("bridge delete_packet_filter b f{}", number % 4));
            client.tell("bridge reset_packet_filters b");
        }
    });
    assert!(tunnels.hypervisor.is_running());
}
