//! Commands by chance, of all modules, most of which make sense now and then.

use crate::lab::frames::Random;

/// Few names, so that clients get in each other's way.
const BRIDGES: [&str; 6] = ["b0", "b1", "b2", "b3", "\"b 4\"", "é5"];
const IOL_BRIDGES: [&str; 3] = ["i0", "i1", "i2"];
pub(super) const IOL_IDS: [u16; 3] = [725, 726, 727];
const FILTERS: [&str; 3] = ["f0", "f1", "f2"];

/// A command, and the codes that its reply can have.
pub(super) struct Command {
    pub(super) template: &'static str,
    pub(super) line: String,
    pub(super) codes: &'static [u16],
}

/// How often it is taken, a template, and its codes, 100 first where that is no rare one. In braces is what is chosen.
type Template = (usize, &'static str, &'static [u16]);

const TEMPLATES: &[Template] = &[
    (12, "bridge create {bridge}", &[100, 206]),
    (5, "bridge delete {bridge}", &[100, 214]),
    (12, "bridge start {bridge}", &[100, 209, 214]),
    (5, "bridge stop {bridge}", &[100, 210, 214]),
    (3, "bridge show {bridge}", &[100, 214]),
    (3, "bridge get_stats {bridge}", &[100, 214]),
    (1, "bridge reset_stats {bridge}", &[100, 214]),
    (3, "bridge rename {bridge} {bridge}", &[100, 213, 214]),
    (20, "bridge add_nio_udp {bridge} {tunnel}", &[100, 206, 214]),
    (8, "bridge remove_nio_udp {bridge} {tunnel}", &[100, 214]),
    (8, "bridge delete_nio_udp {bridge} {tunnel}", &[100, 214]),
    (6, "bridge add_nio_unix {bridge} u{digit} u{digit}", &[100, 206, 214]),
    (3, "bridge add_nio_tap {bridge} rbtap{digit}", &[100, 206, 214]),
    (2, "bridge add_nio_linux_raw {bridge} {interface}", &[100, 206, 214]),
    (4, "bridge add_nio_ethernet {bridge} {interface}", &[100, 206, 214]),
    (4, "bridge start_capture {bridge} c{digit}.pcap", &[100, 209, 214]),
    (2, "bridge start_capture {bridge} c{digit}.pcap {link}", &[100, 209, 214]),
    (4, "bridge stop_capture {bridge}", &[100, 209, 214]),
    (10, "bridge add_packet_filter {bridge} {filter} {kind}", &[100, 206, 214]),
    (3, "bridge delete_packet_filter {bridge} {filter}", &[100, 206, 214]),
    (3, "bridge reset_packet_filters {bridge}", &[100, 214]),
    (2, "bridge set_pcap_filter {bridge}", &[206, 214, 100]),
    (2, "bridge set_pcap_filter {bridge} {expression}", &[206, 214, 100]),
    (2, "bridge list", &[100]),
    (6, "iol_bridge create {iol} {id}", &[100, 206]),
    (2, "iol_bridge delete {iol}", &[100, 214]),
    (4, "iol_bridge start {iol}", &[100, 209, 214]),
    (2, "iol_bridge stop {iol}", &[100, 210, 214]),
    (2, "iol_bridge get_stats {iol}", &[100, 214]),
    (1, "iol_bridge reset_stats {iol}", &[100, 214]),
    (2, "iol_bridge rename {iol} {iol}", &[100, 213, 214]),
    (8, "iol_bridge add_nio_udp {iol} {id} {digit} 0 {tunnel}", &[100, 206, 214]),
    (1, "iol_bridge add_nio_udp {iol} 728 16 0 {tunnel}", &[206, 214]),
    (3, "iol_bridge delete_nio_udp {iol} {digit} 0", &[100, 214]),
    (3, "iol_bridge start_capture {iol} {digit} 0 c{digit}.pcap {link}", &[100, 209, 214]),
    (3, "iol_bridge stop_capture {iol} {digit} 0", &[100, 214]),
    (5, "iol_bridge add_packet_filter {iol} {digit} 0 {filter} {kind}", &[100, 206, 214]),
    (2, "iol_bridge delete_packet_filter {iol} {digit} 0 {filter}", &[206, 214, 100]),
    (2, "iol_bridge reset_packet_filters {iol} {digit} 0", &[100, 214]),
    (2, "iol_bridge list", &[100]),
    (1, "docker create_veth rbd{digit} rbe{digit}", &[100, 206]),
    (1, "docker delete_veth rbd{digit}", &[100, 207]),
    (1, "docker move_to_ns rbd{digit} 0 eth0", &[206]),
    (2, "docker set_mac_addr rbtap{digit} 02:00:00:00:00:0{digit}", &[100, 206]),
    (2, "brctl addif rbbr0 rbtap{digit}", &[100, 206]),
    (1, "hypervisor version", &[100]),
    (1, "hypervisor module_list", &[100]),
    (1, "hypervisor cmd_list bridge", &[100]),
    (1, "nosuch {digit}", &[201]),
    (1, "bridge nosuch {bridge}", &[202]),
    (1, "bridge create", &[203]),
    (1, "iol_bridge add_nio_udp {iol}", &[203]),
    (1, "bridge create \"{digit}", &[200]),
    (1, "bridge", &[200]),
    (1, "# {digit}", &[200]),
    (1, "", &[200]),
];

/// The templates of commands that succeed every now and then.
pub(super) fn that_succeed() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().filter(|(_, _, codes)| codes.first() == Some(&100)).map(|(_, template, _)| *template)
}

pub(super) fn random_command(random: &mut Random) -> Command {
    let total = TEMPLATES.iter().map(|(weight, ..)| weight).sum();
    let mut chosen = random.below(total);
    let mut templates = TEMPLATES.iter();
    let (_, template, codes) = loop {
        let template = templates.next().expect("weights add up");
        match chosen.checked_sub(template.0) {
            Some(rest) => chosen = rest,
            None => break template,
        }
    };
    let mut line = String::new();
    let mut rest = *template;
    while let Some((before, (name, after))) = rest.split_once('{').and_then(|(b, a)| Some((b, a.split_once('}')?))) {
        line.push_str(before);
        line.push_str(&choice(name, random));
        rest = after;
    }
    line.push_str(rest);
    Command { template, line, codes }
}

fn choice(name: &str, random: &mut Random) -> String {
    let kinds = [
        "frequency_drop -1",
        "frequency_drop 3",
        "packet_loss 10",
        "packet_loss 101",
        "delay 1",
        "delay 5 5",
        "delay 1000",
        "corrupt 50",
        "corrupt x",
        "duplicate 30",
        "duplicate 30 dir=source",
        "reorder 20 3",
        "reorder 20",
        "rate 1000",
        "rate 64 10 dir=destination",
        "rate 0",
        "packet_loss 30 dir=destination",
        "packet_loss 30 dir=left",
        "bpf udp",
        "bpf \"ip and tcp\"",
        "bpf \"tcp tcp\"",
        "bpf ip NOSUCH",
        "nosuch 1",
        "",
    ];
    match name {
        "bridge" => random.one_of(&BRIDGES).to_owned(),
        "iol" => random.one_of(&IOL_BRIDGES).to_owned(),
        "id" => random.one_of(&IOL_IDS).to_string(),
        "filter" => random.one_of(&FILTERS).to_owned(),
        "kind" => random.one_of(&kinds).to_owned(),
        "digit" => random.below(4).to_string(),
        // Some ports are none.
        "tunnel" if random.chance(20) => format!("{} 127.0.0.1 22000", random.one_of(&["x", "70000", "-1"])),
        "tunnel" => {
            let number = random.below(6);
            format!("{} 127.0.0.1 {}", 21_000 + number, 22_000 + number)
        }
        "interface" => random.one_of(&["rbv0", "rbw0", "nosuch", "much-too-long-a-name"]).to_owned(),
        "link" => random.one_of(&["EN10MB", "DLT_EN10MB", "FRELAY", "nosuch"]).to_owned(),
        "expression" => random.one_of(&["ip", "\"not ether src 02:00:00:00:00:01\"", "\"tcp tcp\""]).to_owned(),
        _ => panic!("a template has an unknown choice: {name}"),
    }
}
