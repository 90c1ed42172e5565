//! Packet filters on frames that really pass a bridge.

use crate::lab::frames::{Random, Recipe};
use crate::lab::{Hypervisor, LEFT, Namespace, RIGHT, Tunnel, TwoTunnels, WireTap, stay_on_one_cpu, wait_until};

impl TwoTunnels<'_> {
    pub(crate) fn reset(&mut self) {
        self.client.tell("bridge reset_packet_filters b");
    }

    /// Of so many marks sent from the left, the numbers of those that arrive.
    pub(crate) fn passed(&mut self, marks: u16) -> Vec<u16> {
        let before = self.client.stats("b", "Source")[0];
        self.left.send_marks(0..marks);
        self.wait_for_frames(before + u64::from(marks));
        self.reset();
        self.left.send_marks([9999]);
        let arrived = self.right.until_mark(9999);
        arrived.iter().map(|frame| u16::from_be_bytes([frame[14], frame[15]])).collect()
    }
}

#[test]
fn frequency_drop_drops_every_nth_frame() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for (n, expected) in [
        ("-1", vec![]),
        ("0", (0..10).collect()),
        ("1", vec![]),
        ("-2", (0..10).collect()),
        ("3", vec![0, 1, 3, 4, 6, 7, 9]),
    ] {
        tunnels.add_filter(&format!("f frequency_drop {n}"));
        assert_eq!(tunnels.passed(10), expected, "{n}");
    }
}

#[test]
fn both_directions_share_a_filter() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    tunnels.add_filter("f frequency_drop 3");
    let mut random = Random(6);
    let mut to_the_right = true;
    for number in 1..=90 {
        // Behind a frame that is dropped, one of the same direction shows that it was.
        let follows_a_dropped_one = number % 3 == 1;
        to_the_right = if follows_a_dropped_one { to_the_right } else { random.chance(2) };
        let (from, to) = if to_the_right { (&tunnels.left, &tunnels.right) } else { (&tunnels.right, &tunnels.left) };
        from.send_marks([number]);
        if number % 3 != 0 {
            to.expect_mark(number);
        }
    }
}

#[test]
fn packet_loss_is_exact_at_its_ends() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for (percent, expected) in [(0, (0..2000).collect()), (100, vec![])] {
        tunnels.add_filter(&format!("f packet_loss {percent}"));
        assert_eq!(tunnels.passed(2000), expected, "{percent} %");
    }
    tunnels.add_filter("f packet_loss 50");
    let passed = tunnels.passed(2000).len();
    assert!((800..1200).contains(&passed), "{passed}");
}

#[test]
fn corrupt_changes_the_middle_and_nothing_else() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let mut random = Random(4);
    for (percent, changes) in [(100, true), (0, false)] {
        tunnels.add_filter(&format!("f corrupt {percent}"));
        for size in [3, 60, 61, 1514, 9000] {
            for (from, to) in [(&tunnels.left, &tunnels.right), (&tunnels.right, &tunnels.left)] {
                let frame = random.bytes(size);
                from.send(&frame);
                let arrived = to.next();
                assert_eq!(arrived.len(), size);
                let changed: Vec<usize> = (0..size).filter(|&at| frame[at] != arrived[at]).collect();
                assert_eq!(changed.len(), if changes { size / 4 } else { 0 }, "{size} bytes, {percent} %");
                assert!(changed.iter().all(|&at| at >= 14 && at > size / 4 && at < size - size / 5), "{changed:?}");
            }
        }
        tunnels.reset();
    }
}

#[test]
fn bpf_drops_what_matches() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let frame = |tags: &[(u16, u16)], udp: bool| {
        Recipe { tags: tags.to_vec(), udp, payload: vec![1; 50], ..Recipe::default() }.finished().bytes
    };
    let frames = [frame(&[], false), frame(&[], true), frame(&[(0x8100, 7)], true), frame(&[(0x8100, 8)], true)];
    for (expression, passes) in [
        ("\"udp\"", [true, false, true, true]),
        ("\"udp\" EN10MB", [true, false, true, true]),
        ("\"vlan 7 and udp\"", [true, true, false, true]),
        ("\"vlan\"", [true, true, false, false]),
        ("\"not vlan\"", [false, false, true, true]),
        ("\"len > 0\"", [false; 4]),
        ("\"icmp[icmptype] == 8\"", [true; 4]),
    ] {
        tunnels.add_filter(&format!("f bpf {expression}"));
        let before = tunnels.client.stats("b", "Source")[0];
        frames.iter().for_each(|frame| tunnels.left.send(frame));
        tunnels.wait_for_frames(before + 4);
        tunnels.reset();
        tunnels.left.send_marks([1]);
        let expected: Vec<_> =
            frames.iter().zip(passes).filter(|(_, passes)| *passes).map(|(frame, _)| frame).collect();
        assert_eq!(tunnels.right.until_mark(1).iter().collect::<Vec<_>>(), expected, "{expression}");
    }
}

#[test]
fn filters_act_in_their_order() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let odd = "odd bpf \"ether[15] & 1 == 1\"";
    let second = "second frequency_drop 2";
    for (filters, expected) in [([odd, second], vec![0, 4, 8]), ([second, odd], vec![0, 2, 4, 6, 8])] {
        filters.iter().for_each(|filter| tunnels.add_filter(filter));
        assert_eq!(tunnels.passed(10), expected, "{filters:?}");
    }
    // One that is removed and added again is the last.
    tunnels.add_filter(odd);
    tunnels.add_filter(second);
    tunnels.client.tell("bridge delete_packet_filter b odd");
    tunnels.add_filter(odd);
    assert_eq!(tunnels.passed(10), [0, 2, 4, 6, 8]);
}

#[test]
fn a_filter_that_is_refused_leaves_nothing_behind() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    for bad in [
        "packet_loss 150",
        "packet_loss -1",
        "packet_loss x",
        "packet_loss",
        "corrupt 101",
        "delay 0",
        "delay 10 -1",
        "delay",
        "frequency_drop",
        "frequency_drop 1 2",
        "bpf \"tcp port\"",
        "bpf \"\"",
        "bpf \"tcp\" DLT_EN10MB",
        "nosuch 1",
        "",
    ] {
        let reply = tunnels.client.ask(&format!("bridge add_packet_filter b f {bad}"));
        assert_eq!(reply, ["206-Failed to add filter 'f'"], "{bad}");
    }
    assert_eq!(tunnels.client.tell("bridge show b").len(), 4, "no filter is shown");
    assert_eq!(tunnels.passed(10), (0..10).collect::<Vec<_>>());
    for line in [
        "\nCannot compile filter 'tcp port': syntax error",
        "\nUnknown link type DLT_EN10MB\n",
        "\nFilter type 'nosuch' doesn't exist\n",
    ] {
        tunnels.hypervisor.wait_for_log(line);
    }
    tunnels.add_filter("f frequency_drop -1");
    assert_eq!(tunnels.client.ask("bridge add_packet_filter b f packet_loss 1"), ["206-Failed to add filter 'f'"]);
    assert!(tunnels.passed(10).is_empty(), "the first of that name stays");
}

#[test]
fn filters_may_come_before_the_nios_and_the_start() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    client.tell_all(&[
        "bridge create b",
        "bridge add_packet_filter b third frequency_drop 3",
        LEFT,
        "bridge add_packet_filter b odd bpf \"ether[15] & 1 == 1\"",
        RIGHT,
        "bridge start b",
    ]);
    let (left, right) = (Tunnel::new(&namespace, 20001, 20000), Tunnel::new(&namespace, 20003, 20002));
    let mut tunnels = TwoTunnels { hypervisor, client, left, right };
    assert_eq!(tunnels.passed(10), [0, 4, 6]);
}

#[test]
fn filters_change_under_traffic_for_ever() {
    let namespace = Namespace::new();
    let mut tunnels = TwoTunnels::start(&namespace);
    let threads = tunnels.hypervisor.count("task");
    tunnels.with_traffic(|client| {
        let filters = ["frequency_drop 3", "packet_loss 10", "delay 2 1", "corrupt 50", "bpf \"udp port 53\""];
        for _ in 0..500 {
            for (number, filter) in filters.iter().enumerate() {
                client.tell(&format!("bridge add_packet_filter b f{number} {filter}"));
            }
            for number in 0..filters.len() {
                client.tell(&format!("bridge delete_packet_filter b f{number}"));
            }
            client.tell_all(&["bridge add_packet_filter b held delay 5", "bridge reset_packet_filters b"]);
        }
    });
    assert!(tunnels.hypervisor.is_running());
    tunnels.left.send_marks([5000]);
    tunnels.right.until_mark(5000);
    wait_until("no thread is left behind", || tunnels.hypervisor.count("task") == threads);
}

#[test]
fn super_frames_are_cut_before_they_are_filtered_and_whole_again_after_that() {
    stay_on_one_cpu();
    let [outside, bridge] = [(); 2].map(|()| Namespace::quiet());
    outside.veth("wan0", &bridge, "nic0");
    let hypervisor = Hypervisor::start(&bridge);
    let mut client = hypervisor.client();
    client.tell_all(&["bridge create b", "bridge add_nio_linux_raw b nic0", "bridge add_nio_tap b tap0"]);
    client.tell("bridge start b");
    bridge.ip("link set tap0 up");
    let wire = WireTap::new(&outside, "wan0");
    let mut guest = WireTap::new(&bridge, "tap0");
    let recipe = Recipe { payload: Random(5).bytes(21_000), ..Recipe::default() };
    let built = recipe.begun();
    let mut through = |number| {
        wire.send(&built.virtio(1, 1000), &built.bytes);
        wire.send_plain(&WireTap::mark(number));
        guest.until_mark(number)
    };
    let sizes = |heard: &[crate::lab::Heard]| heard.iter().map(|heard| heard.frame.len()).collect::<Vec<_>>();
    assert_eq!(sizes(&through(1)), [built.bytes.len()], "whole");
    client.tell("bridge add_packet_filter b f frequency_drop 3");
    let heard = through(2);
    assert_eq!(sizes(&heard), [1054; 14], "every third of 21 is dropped");
    for (number, heard) in (0..21).filter(|number| number % 3 != 2).zip(&heard) {
        crate::lab::check::check_finished(&heard.frame, 14);
        assert_eq!(heard.frame[54..], recipe.payload[number * 1000..][..1000], "piece {number}");
    }
    client.tell("bridge reset_packet_filters b");
    assert_eq!(sizes(&through(3)), [built.bytes.len()], "whole again");
    client.tell("bridge add_packet_filter b f duplicate 100 dir=destination");
    assert_eq!(sizes(&through(6)), [built.bytes.len()], "the other direction has no filter");
    client.tell("bridge add_packet_filter b g duplicate 100 dir=source");
    // The mark comes twice as well.
    assert_eq!(sizes(&through(7)), [1054; 42], "each piece twice");
    client.tell("bridge reset_packet_filters b");
    client.tell("bridge start_capture b c.pcap");
    assert_eq!(sizes(&through(4)), [1054; 21]);
    client.tell("bridge stop_capture b");
    assert_eq!(sizes(&through(5)), [built.bytes.len()], "whole again");
}

#[test]
fn an_expression_without_end_harms_nobody() {
    let namespace = Namespace::new();
    let TwoTunnels { mut client, left, right, hypervisor: _hypervisor } = TwoTunnels::start(&namespace);
    for (expression, accepted) in [
        (vec!["vlan"; 6000].join(" and "), false),
        (vec!["vlan"; 1600].join(" and "), true),
        ("not ".repeat(4000), false),
    ] {
        let reply = client.ask(&format!("bridge add_packet_filter b f bpf \"{expression}\""));
        assert_eq!(reply[0].starts_with("100-"), accepted, "{reply:?}");
        client.tell("bridge reset_packet_filters b");
        left.send_marks([1]);
        right.expect_mark(1);
    }
}
