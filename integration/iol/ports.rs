//! Filters and captures at ports.

use std::time::{Duration, Instant};

use super::{INSTANCE, Instance, with_bridge};
use crate::lab::capture_file::{frames_so_far, link_type_of};
use crate::lab::wait_until;

#[test]
fn a_capture_has_frames_without_the_header() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let other = lab.connect("1 4", 10_001);
        let instance = Instance::new(INSTANCE);
        let types =
            [("EN10MB", 1), ("FRELAY", 107), ("C_HDLC", 104), ("PPP_SERIAL", 50), ("ATM_RFC1483", 100), ("", 1)];
        for (name, link_type) in types {
            let file = lab.hypervisor.path(&format!("{name}.pcap"));
            let start = format!("iol_bridge start_capture b 1 3 {} {name}", file.display());
            lab.expect(&start, "100-packet capture started on port 1/3");
            lab.expect(&start, "209-packet capture is already active on port 1/3");
            tunnel.send(b"in");
            instance.receive();
            instance.send(0x31, b"out");
            tunnel.next();
            other.send(b"elsewhere");
            instance.receive();
            lab.expect("iol_bridge stop_capture b 1 3", "100-packet capture stopped on port 1/3");
            lab.expect("iol_bridge stop_capture b 1 3", "214-no packet capture active on port 1/3");
            tunnel.send(b"late");
            instance.receive();
            let frames = vec![b"in".to_vec(), b"out".to_vec()];
            assert_eq!((link_type_of(&file), frames_so_far(&file)), (link_type, frames), "{name}");
        }
    });
}

#[test]
fn a_capture_can_be_read_while_it_runs() {
    with_bridge("", |lab| {
        let tunnel = lab.connect("0 0", 10_000);
        let file = lab.hypervisor.path("live.pcap");
        lab.client.tell(&format!("iol_bridge start_capture b 0 0 {}", file.display()));
        assert_eq!(frames_so_far(&file).len(), 0);
        for sent in 1..4 {
            // That nobody takes the frame does not matter.
            tunnel.send(b"frame");
            wait_until("it is in the file", || frames_so_far(&file).len() == sent);
        }
    });
}

#[test]
fn a_capture_that_cannot_be_written_leaves_nothing() {
    with_bridge("", |lab| {
        let start = "iol_bridge start_capture b 1 3 /nowhere/file";
        lab.expect(start, "209-packet capture could not be started on bridge 'b'");
        lab.expect("iol_bridge stop_capture b 1 3", "214-no packet capture active on port 1/3");
        wait_until("it is told", || lab.hypervisor.log().contains("unable to open capture file /nowhere/file"));
    });
}

#[test]
fn a_filter_counts_for_one_port() {
    with_bridge("", |lab| {
        let filtered = lab.connect("1 3", 10_000);
        let other = lab.connect("1 4", 10_001);
        let instance = Instance::new(INSTANCE);
        let add = "iol_bridge add_packet_filter b 1 3 f frequency_drop 2";
        lab.expect(add, "100-Filter 'f' type 'frequency_drop' added to bridge 'b'");
        lab.expect(add, "206-Failed to add filter 'f'");
        for number in 1..=7 {
            filtered.send(&[number]);
            other.send(&[number]);
        }
        // Every second one is lost; the last one shows that those before it were counted.
        let mut received: Vec<_> = (0..11).map(|_| instance.receive()).collect();
        received.sort_unstable();
        let expected = [1, 3, 5, 7].map(|number| (0x31, vec![number])).into_iter();
        let expected = expected.chain((1..=7).map(|number| (0x41, vec![number])));
        assert_eq!(received, expected.collect::<Vec<_>>());
        // Both ways count.
        (1..=4).for_each(|number| instance.send(0x31, &[number]));
        assert_eq!([filtered.next(), filtered.next()], [[2], [4]]);
        lab.expect("iol_bridge delete_packet_filter b 1 4 f", "206-Failed to delete filter 'f'");
        lab.expect("iol_bridge delete_packet_filter b 1 3 f", "100-Filter 'f' deleted from bridge 'b'");
        lab.expect("iol_bridge delete_packet_filter b 1 3 f", "206-Failed to delete filter 'f'");
        for number in 4..8 {
            instance.send(0x31, &[number]);
            assert_eq!(filtered.next(), [number]);
        }
    });
}

#[test]
fn frames_are_delayed_both_ways() {
    const DELAY: Duration = Duration::from_millis(100);
    with_bridge("", |lab| {
        let tunnel = lab.connect("1 3", 10_000);
        let other = lab.connect("1 4", 10_001);
        let instance = Instance::new(INSTANCE);
        // For an hour: the other port does not wait meanwhile.
        lab.client.tell("iol_bridge add_packet_filter b 1 3 slow delay 3600000");
        tunnel.send(b"held");
        instance.send(0x31, b"held");
        wait_until("it is held", || lab.received() == 1);
        other.send(b"fast");
        assert_eq!(instance.receive(), (0x41, b"fast".to_vec()));
        instance.send(0x41, b"fast");
        assert_eq!(other.next(), b"fast");
        // What is held back is lost with the filter.
        lab.expect("iol_bridge reset_packet_filters b 1 3", "100-OK");

        lab.client.tell(&format!("iol_bridge add_packet_filter b 1 3 slow delay {}", DELAY.as_millis()));
        let start = Instant::now();
        for number in 0..5 {
            tunnel.send(&[number]);
            instance.send(0x31, &[number]);
        }
        for number in 0..5 {
            assert_eq!(instance.receive(), (0x31, vec![number]));
            assert_eq!(tunnel.next(), [number]);
        }
        assert!(start.elapsed() >= DELAY, "{:?}", start.elapsed());
    });
}

#[test]
fn a_port_without_a_tunnel_has_filters_and_captures_all_the_same() {
    with_bridge("-d 1", |lab| {
        let instance = Instance::new(INSTANCE);
        let file = lab.hypervisor.path("port.pcap");
        // To a port that there is nothing at, and to another one behind it.
        let other = lab.connect("0 0", 10_001);
        instance.send(0x02, b"nothing");
        instance.send(0x00, b"behind");
        assert_eq!(other.next(), b"behind");
        lab.client.tell(&format!("iol_bridge start_capture b 2 0 {}", file.display()));
        instance.send(0x02, b"captured");
        wait_until("it is captured", || frames_so_far(&file) == [b"captured"]);
        lab.client.tell("iol_bridge add_packet_filter b 2 0 all frequency_drop -1");
        instance.send(0x02, b"dropped");
        let line = "Packet dropped by packet filter 'all' from IOL instance on IOL bridge 'b'\n";
        wait_until("it is dropped", || lab.hypervisor.log().contains(line));
        assert_eq!(lab.stats().len(), 1, "it has no tunnel");

        // Both survive the first tunnel.
        let tunnel = lab.connect("2 0", 10_000);
        instance.send(0x02, b"dropped too");
        tunnel.send(b"dropped too");
        wait_until("both are dropped", || {
            let log = lab.hypervisor.log();
            log.matches(line).count() == 2 && log.contains("dropped by packet filter 'all' from destination NIO")
        });
        lab.expect("iol_bridge reset_packet_filters b 2 0", "100-OK");
        instance.send(0x02, b"through");
        assert_eq!(tunnel.next(), b"through");
        lab.expect("iol_bridge stop_capture b 2 0", "100-packet capture stopped on port 2/0");
        assert_eq!(frames_so_far(&file), [&b"captured"[..], b"through"]);
    });
}
