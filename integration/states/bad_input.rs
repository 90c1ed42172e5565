//! Commands that make no sense: each is answered as the contract says, and changes nothing.

use super::Idle;
use crate::lab::{Client, Hypervisor, Namespace, with_own_tmp};

const SETUP: &[&str] = &[
    "bridge create b",
    "bridge add_nio_udp b 20001 127.0.0.1 30001",
    "bridge add_packet_filter b f frequency_drop 2",
    "bridge create full",
    "bridge add_nio_udp full 20002 127.0.0.1 30002",
    "bridge add_nio_udp full 20003 127.0.0.1 30003",
    "bridge start full",
    "iol_bridge create i 710",
    "iol_bridge add_nio_udp i 699 0 0 20004 127.0.0.1 30004",
    "iol_bridge add_packet_filter i 0 0 f frequency_drop 2",
    "iol_bridge create other 711",
    "iol_bridge start other",
];

/// Everything that can be seen of the bridges and of what else a command may leave.
fn look(namespace: &Namespace, hypervisor: &Hypervisor<'_>, client: &mut Client) -> Vec<String> {
    let looks = ["bridge list", "bridge show b", "bridge show full", "iol_bridge list", "iol_bridge get_stats i"];
    let mut seen: Vec<String> = looks.iter().flat_map(|command| client.tell(command)).collect();
    seen.push(namespace.command("ip", "-o link show"));
    seen.push(format!("{} descriptors, {} threads", hypervisor.count("fd"), hypervisor.count("task")));
    let files = std::fs::read_dir(hypervisor.folder()).expect("its folder").flatten();
    let mut files: Vec<_> = files.map(|file| file.file_name()).collect();
    files.sort();
    seen.push(format!("{files:?}"));
    seen
}

/// Has each command refused with its reply, without any change.
fn expect_refusals(cases: &[(String, String)]) {
    with_own_tmp(|| {
        let namespace = Namespace::new();
        let hypervisor = Hypervisor::start(&namespace);
        std::fs::write(hypervisor.path("file"), "precious").expect("a file");
        let mut client = hypervisor.client();
        client.tell("hypervisor version");
        let idle = Idle::of(&hypervisor);
        for command in SETUP {
            client.tell(command);
        }
        let before = look(&namespace, &hypervisor, &mut client);
        for (command, reply) in cases {
            assert_eq!(client.ask(command), [reply.as_str()], "{command}");
            assert_eq!(look(&namespace, &hypervisor, &mut client), before, "{command}");
        }
        let precious = std::fs::read_to_string(hypervisor.path("file")).expect("the file is still there");
        assert_eq!(precious, "precious");
        client.tell("hypervisor reset");
        idle.expect(&hypervisor);
    });
}

fn cases(reply: &str, commands: &[&str]) -> Vec<(String, String)> {
    commands.iter().map(|command| ((*command).to_owned(), reply.to_owned())).collect()
}

#[test]
fn wrong_numbers_of_words_are_told() {
    let namespace = Namespace::new();
    let hypervisor = Hypervisor::start(&namespace);
    let mut client = hypervisor.client();
    let modules = client.tell("hypervisor module_list");
    let mut tried = 0;
    for module in modules.iter().filter_map(|line| line.strip_prefix("101 ")) {
        for line in client.tell(&format!("hypervisor cmd_list {module}")) {
            let Some((command, limits)) = line.trim_start_matches("101 ").split_once(" (min/max args: ") else {
                continue;
            };
            let (min, max) = limits.trim_end_matches(')').split_once('/').expect("two numbers");
            let [min, max] = [min, max].map(|number| number.parse::<usize>().expect("a number"));
            for count in (0..min).chain(max + 1..max + 3).chain([100]) {
                let words = " x".repeat(count);
                let expected = format!("203-Bad number of parameters ({count} with min/max={min}/{max})");
                assert_eq!(client.ask(&format!("{module} {command}{words}")), [expected], "{module} {command}");
                tried += 1;
            }
        }
        assert_eq!(client.ask(&format!("{module} nosuch")), ["202-Unknown command 'nosuch'"]);
        assert_eq!(client.ask(module), ["200-At least a module and a command must be specified"]);
    }
    assert!(tried > 150, "{tried} commands tried");
    assert_eq!(client.tell("bridge list"), client.tell("iol_bridge list"));
}

#[test]
fn missing_bridges_are_told() {
    let of_bridge = [
        "delete",
        "start",
        "stop",
        "show",
        "get_stats",
        "reset_stats",
        "rename: new",
        "add_nio_udp: 1 h 2",
        "remove_nio_udp: 1 h 2",
        "delete_nio_udp: 1 h 2",
        "add_nio_unix: local remote",
        "add_nio_tap: rbtap0",
        "add_nio_ethernet: lo",
        "add_nio_linux_raw: lo",
        "start_capture: c.pcap",
        "stop_capture",
        "add_packet_filter: f delay 1",
        "add_packet_filter: f",
        "delete_packet_filter: f",
        "reset_packet_filters",
        "set_pcap_filter: ip",
        "set_pcap_filter",
    ];
    let of_iol = [
        "get_stats",
        "reset_stats",
        "add_nio_udp: 1 0 0 1 h 2",
        "delete_nio_udp: 0 0",
        "start_capture: 0 0 c.pcap",
        "stop_capture: 0 0",
        "add_packet_filter: 0 0 f delay 1",
        "delete_packet_filter: 0 0 f",
        "reset_packet_filters: 0 0",
        "add_nio_udp: x 99 99 x h x",
    ];
    let of_iol_by_its_full_name = ["delete", "start", "stop", "rename: new"];
    let case = |module: &str, words: &str, kind: &str| {
        let (command, rest) = words.split_once(':').unwrap_or((words, ""));
        (format!("{module} {command} nosuch{rest}"), format!("214-{kind} 'nosuch' doesn't exist"))
    };
    let bridge = of_bridge.iter().map(|words| case("bridge", words, "bridge"));
    let iol = of_iol.iter().map(|words| case("iol_bridge", words, "bridge"));
    let full = of_iol_by_its_full_name.iter().map(|words| case("iol_bridge", words, "IOL bridge"));
    expect_refusals(&bridge.chain(iol).chain(full).collect::<Vec<_>>());
}

#[test]
fn nios_that_cannot_be_are_refused() {
    let long = "p".repeat(108);
    let nios = [
        (
            "UDP",
            "udp",
            &[
                "x 127.0.0.1 1",
                "1 127.0.0.1 x",
                "70000 127.0.0.1 1",
                "1 127.0.0.1 70000",
                "-1 127.0.0.1 1",
                "1x 127.0.0.1 1",
                "20009 no..host 1",
                "20009 ::g 1",
                "20002 127.0.0.1 30002",
                "+20002 127.0.0.1 30002",
            ][..],
        ),
        ("UNIX", "unix", &["/nosuch/local remote", "file remote", ". remote", "{long} remote", "local {long}"]),
        ("TAP", "tap", &["sixteen-letters0", "{long}", "/dev/null", "/dev/nosuch", "lo", "a/b", "a:b%d%d", "."]),
        ("Ethernet", "ethernet", &["nosuch", "sixteen-letters0", "{long}", "%d", ""]),
        ("Linux raw", "linux_raw", &["nosuch", "sixteen-letters0", "{long}", "%d", ""]),
    ];
    let mut all = Vec::new();
    for (name, kind, arguments) in nios {
        for argument in arguments.iter().filter(|argument| !argument.is_empty()) {
            let argument = argument.replace("{long}", &long);
            let refusal = format!("206-unable to create NIO {name} for bridge 'b'");
            all.push((format!("bridge add_nio_{kind} b {argument}"), refusal));
            let full = "206-bridge 'full' has already 2 allocated NIOs".to_owned();
            all.push((format!("bridge add_nio_{kind} full {argument}"), full));
        }
    }
    // Those that could be, but have no place.
    all.extend(cases(
        "206-bridge 'full' has already 2 allocated NIOs",
        &[
            "bridge add_nio_tap full rbtap0",
            "bridge add_nio_unix full local remote",
            "bridge add_nio_linux_raw full lo",
        ],
    ));
    expect_refusals(&all);
}

#[test]
fn what_a_bridge_cannot_do_now_is_refused() {
    let mut all = cases("214-bridge 'full' is running", &["bridge delete_nio_udp full 20002 h 30002"]);
    all.extend(cases(
        "214-UDP nio missing in 'b'",
        &[
            "bridge remove_nio_udp b 20001 h 30002",
            "bridge delete_nio_udp b 1 h 30001",
            "bridge delete_nio_udp b x h y",
        ],
    ));
    all.extend(cases("209-bridge 'b' must have 2 NIOs to be started", &["bridge start b"]));
    all.extend(cases("209-bridge 'full' is already running", &["bridge start full"]));
    all.extend(cases("210-bridge 'b' is not running", &["bridge stop b"]));
    all.extend(cases("206-bridge 'b' already exist", &["bridge create b"]));
    all.extend(cases("213-bridge 'b' already exist", &["bridge rename b b", "bridge rename b full"]));
    all.extend(cases("209-no packet capture active on bridge 'b'", &["bridge stop_capture b"]));
    all.extend(cases(
        "209-packet capture could not be started on bridge 'b'",
        &[
            "bridge start_capture b /nosuch/c.pcap",
            "bridge start_capture b .",
            "bridge start_capture b /nosuch/c.pcap x",
        ],
    ));
    all.extend(cases(
        "206-bridge b must have at least one Ethernet NIO in order to apply a filter",
        &["bridge set_pcap_filter b", "bridge set_pcap_filter b ip", "bridge set_pcap_filter b \"no filter\""],
    ));
    all.extend(cases("206-Failed to delete filter 'g'", &["bridge delete_packet_filter b g"]));
    all.extend(cases("209-IOL bridge 'other' is already running", &["iol_bridge start other"]));
    all.extend(cases("210-IOL bridge 'i' is not running", &["iol_bridge stop i"]));
    all.extend(cases("206-IOL bridge 'i' already exist", &["iol_bridge create i 1", "iol_bridge create i x"]));
    all.extend(cases("213-IOL bridge 'i' already exist", &["iol_bridge rename i i", "iol_bridge rename i other"]));
    all.extend(cases("214-no packet capture active on port 0/0", &["iol_bridge stop_capture i 0 0"]));
    all.extend(cases(
        "209-packet capture could not be started on bridge 'i'",
        &["iol_bridge start_capture i 0 0 /nosuch/c.pcap", "iol_bridge start_capture i 1 0 . EN10MB"],
    ));
    all.extend(cases("206-Failed to delete filter 'g'", &["iol_bridge delete_packet_filter i 0 0 g"]));
    all.extend(cases("206-Failed to delete filter 'f'", &["iol_bridge delete_packet_filter i 1 0 f"]));
    expect_refusals(&all);
}

#[test]
fn filters_that_cannot_be_are_refused() {
    let filters = [
        "",
        "nosuch",
        "nosuch 1",
        "frequency_drop",
        "frequency_drop x",
        "packet_loss",
        "packet_loss x",
        "packet_loss 101",
        "packet_loss -1",
        "packet_loss 99999999999",
        "delay",
        "delay 0",
        "delay -1",
        "delay x",
        "delay 1 -1",
        "delay 1 x",
        "corrupt",
        "corrupt 101",
        "corrupt x",
        "bpf",
        "bpf \"\"",
        "bpf \"tcp tcp\"",
        "bpf nosuch-word-here(",
        "bpf ip NOSUCH",
        "bpf ip DLT_EN10MB",
    ];
    let mut all = Vec::new();
    for filter in filters {
        let refusal = "206-Failed to add filter 'g'".to_owned();
        all.push((format!("bridge add_packet_filter b g {filter}"), refusal.clone()));
        all.push((format!("bridge add_packet_filter full g {filter}"), refusal.clone()));
        all.push((format!("iol_bridge add_packet_filter i 0 0 g {filter}"), refusal.clone()));
        all.push((format!("iol_bridge add_packet_filter other 1 0 g {filter}"), refusal));
    }
    let twice = ["bridge add_packet_filter b f delay 1", "iol_bridge add_packet_filter i 0 0 f delay 1"];
    all.extend(cases("206-Failed to add filter 'f'", &twice));
    expect_refusals(&all);
}

#[test]
fn iol_ids_and_ports_that_do_not_exist_are_refused() {
    let mut all = Vec::new();
    for id in ["0", "-5", "65536", "x", "1x", "99999999999"] {
        let refusal = "206-could not create IOL bridge 'j': cannot create UNIX domain socket".to_owned();
        all.push((format!("iol_bridge create j {id}"), refusal));
        let refusal = "206-unable to create NIO UDP for IOL bridge 'i'".to_owned();
        all.push((format!("iol_bridge add_nio_udp i {id} 1 0 20009 127.0.0.1 30009"), refusal.clone()));
        all.push((format!("iol_bridge add_nio_udp i 699 1 0 {id}x 127.0.0.1 30009"), refusal));
    }
    all.extend(cases(
        "206-IOU ID 710 cannot be the same as bridge 'i' ID",
        &["iol_bridge add_nio_udp i 710 1 0 20009 127.0.0.1 30009"],
    ));
    for (port, key) in [("16 0", "16"), ("0 16", "256"), ("15 16", "271"), ("255 255", "4335")] {
        for (code, command) in [
            (206, "add_nio_udp i 699 {} 20009 127.0.0.1 30009"),
            (214, "delete_nio_udp i {}"),
            (214, "start_capture i {} c.pcap"),
            (206, "stop_capture i {}"),
            (206, "add_packet_filter i {} g delay 1"),
            (206, "delete_packet_filter i {} f"),
            (206, "reset_packet_filters i {}"),
        ] {
            let refusal = format!("{code}-Port number {key} exceeding 256 on bridge 'i'");
            all.push((format!("iol_bridge {}", command.replace("{}", port)), refusal));
        }
    }
    expect_refusals(&all);
}
