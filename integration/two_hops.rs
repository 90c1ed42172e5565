//! Whole TCP transfers over two processes, as GNS3 wires a cloud to a node: NIC, tunnel, TAP, with losses in between.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::lab::{LossyRelay, Totals};
use crate::transfer::{BYTES, Made, Path};

/// One of so many datagrams is lost.
const LOSS: usize = 500;

/// The tunnel's ends at the cloud and at the node.
fn ends(address: IpAddr) -> [String; 2] {
    [format!("udp:20000:{address}:20001"), format!("udp:20002:{address}:20003")]
}

/// What the process of the cloud and that of the node counted.
fn check(made: Made, address: IpAddr, options: &str) -> [Totals; 2] {
    let [near, far] = ends(address);
    let bridges = [format!("linux_raw:nic0 {near} {options}"), format!("{far} tap:tap0 {options}")];
    let path = Path::new(made, 1500, &bridges);
    let relay = LossyRelay::new(&path.bridge, address, [(20001, 20000), (20003, 20002)], LOSS);
    let totals = path.transfer();
    assert!(relay.lost() > 50, "only {} datagrams were lost", relay.lost());
    totals.try_into().expect("two bridges")
}

/// What went into the TAP in single frames would have taken a write for each.
fn expect_merging(made: Made, address: IpAddr) {
    let [near, far] = ends(address);
    let [cloud, node] = check(made, address, "");
    let number = |pattern| node.number(&far, pattern);
    assert!(number("super-frames {} whole") > 100 && number("{} merged") > 100, "{node:?}");
    assert!(number("in {} writes") * 3 < number("out {} frames"), "{node:?}");
    assert!(number("out {} frames") * 1500 > 2 * BYTES as u64, "{node:?}");
    // The cloud's process cuts what GRO or TSO merged, and sends it in runs.
    assert!(cloud.number("linux_raw:nic0", "{} cut") > 100, "{cloud:?}");
    assert!(cloud.number("linux_raw:nic0", "in {} writes") * 3 < cloud.number("linux_raw:nic0", "out {} frames"));
    assert!(cloud.number(&near, "{} merged") > 100, "{cloud:?}");
}

#[test]
fn merged_by_gro_through_a_tunnel_over_ipv4() {
    expect_merging(Made::ByGro, Ipv4Addr::LOCALHOST.into());
}

#[test]
fn unfinished_by_tso_through_a_tunnel_over_ipv6() {
    expect_merging(Made::ByTso, Ipv6Addr::LOCALHOST.into());
}

#[test]
fn without_runs_each_frame_is_a_datagram_of_its_own() {
    let [cloud, _] = check(Made::ByTso, Ipv4Addr::LOCALHOST.into(), "--offload no-runs");
    let number = |pattern| cloud.number("linux_raw:nic0", pattern);
    assert_eq!(number("out {} frames"), number("in {} writes"), "{cloud:?}");
}
