//! What filters of one direction, copies, reordering and rates do to the rest: other directions and bridges, what is held
//! back, the pieces of super-frames.

use std::time::{Duration, Instant};

use crate::lab::frames::{Random, Recipe};
use crate::lab::{Hypervisor, LEFT, Namespace, RIGHT, Tunnel, TwoTunnels, WireTap, check, stay_on_one_cpu, wait_until};

/// Longer than any test.
const FOR_EVER: &str = "3600000";

impl TwoTunnels<'_> {
    /// Of so many marks sent from each side, how many arrive at the other: at the right, then at the left.
    fn passed_both_ways(&mut self, marks: u16) -> [usize; 2] {
        let before = ["Source", "Destination"].map(|side| self.client.stats("b", side)[0]);
        self.left.send_marks(0..marks);
        self.right.send_marks(0..marks);
        for (side, before) in ["Source", "Destination"].into_iter().zip(before) {
            self.client.wait_for_frames("b", side, before + u64::from(marks));
        }
        self.reset();
        self.left.send_marks([9999]);
        self.right.send_marks([9999]);
        [&self.right, &self.left].map(|tunnel| tunnel.until_mark(9999).len())
    }
}

#[test]
fn a_filter_may_be_for_one_direction() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for (filter, there, back) in [
        ("packet_loss 100", 0, 10),
        ("frequency_drop -1", 0, 10),
        ("frequency_drop 5", 8, 10),
        ("bpf \"len > 0\"", 0, 10),
        ("bpf \"len > 0\" EN10MB", 0, 10),
        ("duplicate 100", 20, 10),
        (&format!("delay {FOR_EVER}"), 0, 10),
        (&format!("reorder 100 {FOR_EVER}"), 0, 10),
    ] {
        tunnels.add_filter(&format!("f {filter} dir=source"));
        assert_eq!(tunnels.client.tell("bridge show b")[1], "101 Filter 'f' configured in position 1");
        assert_eq!(tunnels.passed_both_ways(10), [there, back], "{filter} from the source");
        tunnels.add_filter(&format!("f {filter} dir=destination"));
        assert_eq!(tunnels.passed_both_ways(10), [back, there], "{filter} from the destination");
        tunnels.add_filter(&format!("f {filter}"));
        tunnels.client.tell("bridge delete_packet_filter b f");
        assert_eq!(tunnels.passed_both_ways(10), [10, 10], "{filter} no more");
    }
    // Each way has its own, and a place among all.
    tunnels.add_filter("there frequency_drop 2 dir=source");
    tunnels.add_filter("back frequency_drop 5 dir=destination");
    tunnels.add_filter("both duplicate 100");
    assert_eq!(tunnels.client.tell("bridge show b")[3], "101 Filter 'both' configured in position 3");
    assert_eq!(tunnels.passed_both_ways(10), [10, 16]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for bad in [
        "packet_loss 100 dir=",
        "packet_loss 100 dir=left",
        "packet_loss 100 dir=SOURCE",
        "packet_loss dir=source 100",
        "packet_loss dir=source",
        "packet_loss 100 source",
        "packet_loss 100 dir=source dir=source",
        "bpf dir=source",
        "bpf \"ip\" dir=both",
        "duplicate",
        "duplicate 101",
        "duplicate x",
        "reorder 10",
        "reorder 101 10",
        "reorder 10 0",
        "reorder 10 -1",
        "rate",
        "rate 0",
        "rate 1000 0",
        "rate 1000 32769",
        "rate 1000 10 10",
    ] {
        let reply = tunnels.client.ask(&format!("bridge add_packet_filter b f {bad}"));
        assert_eq!(reply, ["206-Failed to add filter 'f'"], "{bad}");
    }
    assert_eq!(tunnels.client.tell("bridge show b").len(), 4, "no filter is shown");
    assert_eq!(tunnels.passed(10), (0..10).collect::<Vec<_>>());
    for line in [
        "\nA filter's direction is dir=source or dir=destination; not 'dir=left'\n",
        "\nFilter type 'duplicate' takes a whole number of percent, 0 to 100; not '101'\n",
    ] {
        tunnels.hypervisor.wait_for_log(line);
    }
}

#[test]
fn a_copy_is_what_its_frame_is() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f duplicate 100");
    let mut random = Random(8);
    let tagged = Recipe { tags: vec![(0x8100, 7)], payload: vec![1; 50], ..Recipe::default() }.finished().bytes;
    for frame in [random.bytes(3), random.bytes(1514), random.bytes(9000), tagged] {
        tunnels.left.send(&frame);
        assert_eq!([tunnels.right.next(), tunnels.right.next()], [frame.clone(), frame]);
    }
}

#[test]
fn rate_takes_its_time_and_keeps_the_order() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    // Each frame of 1000 bytes takes 10 ms.
    tunnels.add_filter("f rate 800 100");
    let start = Instant::now();
    let frames = |side: u8| (0..50).map(move |number: u8| [&[side, number][..], &[7; 998]].concat());
    for (from_left, from_right) in frames(0).zip(frames(1)) {
        tunnels.left.send(&from_left);
        tunnels.right.send(&from_right);
    }
    frames(0).for_each(|frame| assert_eq!(tunnels.right.next(), frame));
    frames(1).for_each(|frame| assert_eq!(tunnels.left.next(), frame));
    // What it takes at once is a millisecond's worth.
    assert!(start.elapsed() >= Duration::from_millis(499), "{:?}", start.elapsed());
}

#[test]
fn what_a_queue_has_no_room_for_is_lost_and_told() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start_with(&namespace, "-d 1");
    // A frame takes 8 seconds; ten of them fit.
    tunnels.add_filter("f rate 1 10 dir=source");
    (0..30).for_each(|_| tunnels.left.send(&[7; 1000]));
    tunnels.wait_for_frames(30);
    let line = "Packet dropped by packet filter 'f' on bridge 'b'\n";
    wait_until("they are dropped", || tunnels.hypervisor.log().matches(line).count() >= 20);
    // The other way has no such line.
    (0..30).for_each(|_| tunnels.right.send(&[8; 1000]));
    (0..30).for_each(|_| assert!(tunnels.left.next() == [8; 1000]));
    assert_eq!(tunnels.hypervisor.log().matches(line).count(), 20);
}

#[test]
fn what_waits_is_discarded_with_what_it_waits_at() {
    let namespace = Namespace::new();
    for filter in ["held rate 1 100", &format!("held reorder 100 {FOR_EVER}")] {
        for commands in [
            &["bridge reset_packet_filters b"][..],
            &["bridge delete_packet_filter b held"],
            &["bridge stop b", "bridge delete_packet_filter b held", "bridge start b"],
            &["bridge delete b", "bridge create b", LEFT, RIGHT, "bridge start b"],
            &["hypervisor reset", "bridge create b", LEFT, RIGHT, "bridge start b"],
        ] {
            let mut tunnels = TwoTunnels::start(&namespace);
            tunnels.add_filter(filter);
            // The first one alone takes more than a minute.
            (0..5).for_each(|_| tunnels.left.send(&[7; 9000]));
            tunnels.wait_for_frames(5);
            tunnels.client.tell_all(commands);
            tunnels.left.send_marks([1000]);
            tunnels.right.expect_mark(1000);
            tunnels.client.tell("hypervisor stop");
            assert_eq!(tunnels.hypervisor.end(), Some(0));
        }
    }
}

#[test]
fn a_queue_that_was_stopped_is_empty() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f rate 8 1000");
    // They would take a quarter of an hour.
    (0..100).for_each(|_| tunnels.left.send(&[7; 9000]));
    tunnels.wait_for_frames(100);
    tunnels.client.tell_all(&["bridge stop b", "bridge start b"]);
    tunnels.left.send_marks([1]);
    tunnels.right.expect_mark(1);
}

#[test]
fn a_slow_line_does_not_hold_up_other_bridges() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.client.tell_all(&["bridge create c", "bridge add_nio_udp c 20010 127.0.0.1 20011"]);
    tunnels.client.tell_all(&["bridge add_nio_udp c 20012 127.0.0.1 20013", "bridge start c"]);
    let (left, right) = (Tunnel::new(&namespace, 20011, 20010), Tunnel::new(&namespace, 20013, 20012));
    tunnels.add_filter("f rate 1 1000");
    tunnels.left.send(&[7; 9000]);
    for number in 0..100 {
        tunnels.left.send_marks([number]);
        left.send_marks([number]);
        right.expect_mark(number);
        right.send_marks([number]);
        left.expect_mark(number);
    }
}

#[test]
fn impairments_change_under_traffic_for_ever() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let threads = tunnels.hypervisor.count("task");
    let filters = [
        "duplicate 20",
        "reorder 10 2",
        "rate 50000",
        "rate 5000 20 dir=destination",
        "packet_loss 50 dir=source",
        "bpf \"udp port 53\" dir=destination",
    ];
    tunnels.with_traffic(|client| {
        for round in 0..1000 {
            for (number, filter) in filters.iter().enumerate() {
                client.tell(&format!("bridge add_packet_filter b f{number} {filter}"));
            }
            if round % 2 == 0 {
                client.tell("bridge reset_packet_filters b");
                continue;
            }
            for number in 0..filters.len() {
                client.tell(&format!("bridge delete_packet_filter b f{number}"));
            }
        }
    });
    assert!(tunnels.hypervisor.is_running());
    for (from, to) in [(&tunnels.left, &tunnels.right), (&tunnels.right, &tunnels.left)] {
        from.send_marks([5000]);
        to.until_mark(5000);
    }
    wait_until("no thread is left behind", || tunnels.hypervisor.count("task") == threads);
}

/// A bridge `b` between a NIC, its source, and a TAP; and what is heard beyond both.
fn with_nic_and_tap(task: impl FnOnce(&mut crate::lab::Client, [&mut WireTap; 2])) {
    stay_on_one_cpu();
    let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
    outside.veth("wan0", &bridge, "nic0");
    let hypervisor = Hypervisor::start(&bridge);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge add_nio_linux_raw b nic0", "bridge add_nio_tap b tap0"]);
    client.tell("bridge start b");
    bridge.ip("link set tap0 up");
    let mut wire = WireTap::new(&outside, "wan0");
    let mut guest = WireTap::new(&bridge, "tap0");
    task(&mut client, [&mut wire, &mut guest]);
}

/// A super-frame of ten segments.
fn super_frame(tags: &[(u16, u16)]) -> (Recipe, [u8; 10], Vec<u8>) {
    let recipe = Recipe { tags: tags.to_vec(), payload: Random(5).bytes(10_000), ..Recipe::default() };
    let built = recipe.begun();
    (recipe, built.virtio(1, 1000), built.bytes)
}

#[test]
fn only_super_frames_of_a_filtered_direction_are_cut() {
    with_nic_and_tap(|client, [wire, guest]| {
        let (_, header, bytes) = super_frame(&[]);
        for (filter, from_nic, from_tap) in [
            ("", 1, 1),
            ("frequency_drop 0 dir=source", 10, 1),
            ("frequency_drop 0 dir=destination", 1, 10),
            ("frequency_drop 0", 10, 10),
        ] {
            if !filter.is_empty() {
                client.tell(&format!("bridge add_packet_filter b f {filter}"));
            }
            wire.send(&header, &bytes);
            wire.send_plain(&WireTap::mark(1));
            assert_eq!(guest.until_mark(1).len(), from_nic, "from the NIC, {filter}");
            guest.send(&header, &bytes);
            guest.send_plain(&WireTap::mark(2));
            assert_eq!(wire.until_mark(2).len(), from_tap, "from the TAP, {filter}");
            client.tell("bridge reset_packet_filters b");
        }
    });
}

#[test]
fn the_pieces_of_a_super_frame_are_doubled_delayed_and_limited() {
    with_nic_and_tap(|client, [wire, guest]| {
        for tags in [&[][..], &[(0x8100, 7)]] {
            let (recipe, header, bytes) = super_frame(tags);
            client.tell("bridge add_packet_filter b twice duplicate 100");
            client.tell("bridge add_packet_filter b later reorder 100 20");
            // Ten pieces of a kilobyte twice in 100 ms.
            client.tell("bridge add_packet_filter b slow rate 1600 40");
            for from_nic in [true, false] {
                let (from, to) = if from_nic { (&*wire, &mut *guest) } else { (&*guest, &mut *wire) };
                let start = Instant::now();
                from.send(&header, &bytes);
                from.send_plain(&WireTap::mark(1));
                let heard = to.until_mark(1);
                assert!(start.elapsed() >= Duration::from_millis(120));
                assert_eq!(heard.len(), 20);
                let at = 14 + 4 * tags.len();
                for (number, pair) in heard.chunks(2).enumerate() {
                    assert_eq!(pair[0], pair[1], "the copy of piece {number}");
                    check::check_finished(&pair[0].frame, at);
                    assert_eq!(pair[0].frame[..at], bytes[..at], "its tags");
                    assert_eq!(pair[0].frame[at + 40..], recipe.payload[number * 1000..][..1000], "piece {number}");
                }
                // The mark's own copy.
                assert!(to.next(Duration::from_secs(10)).is_some_and(|heard| heard.frame == WireTap::mark(1)));
            }
            client.tell("bridge reset_packet_filters b");
        }
    });
}
