//! What the program says and how it ends.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tun_tap::{Iface, Mode};

use crate::lab::{Folder, Namespace, Rubridge, WireTap, wait_until};

/// Runs the program with these words to its end.
fn ended(program: &Path, words: &str) -> (Option<i32>, String, String) {
    let output = Command::new(program).args(words.split_whitespace()).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn rubridge(words: &str) -> (Option<i32>, String, String) {
    ended(Path::new(env!("CARGO_BIN_EXE_rubridge")), words)
}

/// What gns3-server's regular expression `ubridge version ([0-9a-z\.]+)` captures.
fn captured_version(text: &str) -> &str {
    let (_, rest) = text.split_once("ubridge version ").expect("a version");
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c.is_ascii_lowercase() || c == '.'));
    &rest[..end.unwrap_or(rest.len())]
}

fn bridge(namespace: &Namespace) {
    namespace.ip("link add nic0 type veth peer name wan0");
}

/// Runs `bridge` with these words to its end, which must be a failure at the start.
fn refused(namespace: &Namespace, arguments: &str) -> (Option<i32>, String) {
    let output = namespace.run(|| Rubridge::command(&format!("bridge {arguments}")).output());
    let Output { status, stdout, stderr } = output.expect("the program runs");
    assert!(!String::from_utf8_lossy(&stdout).contains("forwarding"));
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn errors_at_the_start_name_the_nio_the_cause_and_the_cure() {
    let namespace = Namespace::new();
    bridge(&namespace);
    namespace.ip("tuntap add dev ip0 mode tun");
    let _held = namespace.run(|| Iface::without_packet_info("held0", Mode::Tap).expect("a TAP of another program"));
    for (arguments, nio, words) in [
        ("linux_raw:nope0 tap:t0", "linux_raw:nope0", "no such interface"),
        ("linux_raw:sixteen-letters! tap:t0", "linux_raw:sixteen-letters!", "1 to 15 characters"),
        ("linux_raw:nic0 tap:sixteen-letters!", "tap:sixteen-letters!", "1 to 15 characters"),
        ("linux_raw:nic0 tap:held0", "tap:held0", "in use by another program"),
        ("linux_raw:nic0 tap:wan0", "tap:wan0", "not as a TAP"),
        ("linux_raw:ip0 tap:t0", "linux_raw:ip0", "not an Ethernet interface"),
        ("linux_raw:nic0 tap:/dev/tap999999", "tap:/dev/tap999999", "no such device file"),
        ("linux_raw:nic0 tap:", "tap:", "tap:<name"),
        ("linux_raw:nic0 udp:1:2", "udp:1:2", "udp:<local port>:<host>:<remote port>"),
        ("linux_raw:nic0 token_ring", "token_ring", "linux_raw:<interface> or ethernet:<interface> or tap:<name"),
    ] {
        let (code, text) = refused(&namespace, arguments);
        assert_eq!(code, Some(1), "{arguments}: {text}");
        assert!(text.contains(&format!("rubridge: {nio}: ")) && text.contains(words), "{arguments}: {text}");
    }
}

#[test]
fn an_interface_is_not_bridged_with_itself() {
    let namespace = Namespace::new();
    bridge(&namespace);
    namespace.ip("tuntap add dev both0 mode tap");
    for arguments in ["linux_raw:nic0 linux_raw:nic0", "linux_raw:both0 tap:both0"] {
        let (code, text) = refused(&namespace, arguments);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("two different ends"), "{arguments}: {text}");
    }
}

/// Nobody reads what it says, or nothing can be written at all: that must neither stop frames nor the end.
#[test]
fn output_that_goes_nowhere_holds_nothing_up() {
    let namespace = Namespace::new();
    let outside = Namespace::new();
    outside.veth("wan0", &namespace, "nic0");
    let (reader, writer) = nix::unistd::pipe().expect("a pipe");
    let writer = std::fs::File::from(writer);
    let mut filler = writer.try_clone().expect("a second handle");
    nix::fcntl::fcntl(&filler, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).expect("non-blocking");
    while filler.write(&[b'.'; 4096]).is_ok() {}
    nix::fcntl::fcntl(&filler, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).expect("blocking");
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let pipe = || writer.try_clone().expect("a second handle");
    for (number, (out, error)) in
        (0..).zip([(Stdio::from(full()), Stdio::from(full())), (Stdio::from(pipe()), Stdio::from(pipe()))])
    {
        let mut command = Rubridge::command("bridge --stats 1 linux_raw:nic0 tap:t0");
        let mut child = namespace.run(|| command.stdout(out).stderr(error).spawn()).expect("the program starts");
        wait_until("the TAP is there", || namespace.run(|| if_nametoindex("t0").is_ok()));
        // The TAP is down, so these are dropped and logged.
        let wire = WireTap::new(&outside, "wan0");
        for mark in 0..20 {
            wire.send_plain(&WireTap::mark(mark));
        }
        namespace.ip("link set t0 up");
        let mut heard = WireTap::new(&namespace, "t0");
        wire.send_plain(&WireTap::mark(100));
        heard.until_mark(100);
        kill(Pid::from_raw(i32::try_from(child.id()).expect("an id")), Signal::SIGTERM).expect("it runs");
        let mut status = None;
        wait_until("it ends", || {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "case {number}: {status:?}");
    }
    drop(reader);
}

#[test]
fn a_missing_capability_is_named_with_the_command_that_gives_it() {
    let namespace = Namespace::new();
    bridge(&namespace);
    for (nios, capability) in [("linux_raw:nic0 tap:t0", "CAP_NET_RAW"), ("tap:t0 linux_raw:nic0", "CAP_NET_ADMIN")] {
        let output = namespace.run(|| {
            Command::new("setpriv")
                .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_rubridge"), "bridge"])
                .args(nios.split(' '))
                .output()
        });
        let output = output.expect("setpriv, of the package util-linux");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(capability) && text.contains("sudo setcap cap_net_admin,cap_net_raw=ep /"), "{text}");
    }
}

#[test]
fn a_file_that_this_user_may_not_open_is_named() {
    let namespace = Namespace::new();
    let path = std::env::temp_dir().join(format!("rubridge-test-secret-{}", std::process::id()));
    std::fs::write(&path, "").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("closed to all");
    let nio = format!("tap:{}", path.display());
    // Without capabilities even root is bound to the file's mode.
    let output = namespace.run(|| {
        Command::new("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_rubridge"), "bridge", &nio, "tap:t0"])
            .output()
    });
    std::fs::remove_file(&path).expect("removed");
    let text = String::from_utf8_lossy(&output.expect("setpriv").stderr).into_owned();
    assert!(text.contains(&format!("this user may not open {}", path.display())), "{text}");
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let namespace = Namespace::new();
    for (arguments, words) in [
        ("linux_raw:nic0", "required"),
        ("linux_raw:nic0 tap:t0 --offload tso", "no-tso4"),
        ("linux_raw:nic0 tap:t0 --stats 0", "0"),
    ] {
        let (code, text) = refused(&namespace, arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn both_signals_end_it_well_and_the_plan_and_the_totals_are_told() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let namespace = Namespace::new();
        bridge(&namespace);
        let program = Rubridge::start(&namespace, "linux_raw:nic0 tap:t0");
        for way in ["linux_raw:nic0 -> tap:t0 (MTU 1500)", "tap:t0 -> linux_raw:nic0 (MTU 1500)"] {
            assert!(program.plan.contains(way), "{}", program.plan);
        }
        assert!(program.plan.contains("pass whole"), "{}", program.plan);
        let totals = program.stop(signal);
        assert_eq!(totals.number("linux_raw:nic0", "in {} frames"), 0);
        assert_eq!(totals.number("tap:t0", "out {} frames"), 0);
    }
}

#[test]
fn the_plan_tells_what_is_switched_off() {
    let namespace = Namespace::new();
    bridge(&namespace);
    for (options, words) in [
        ("--offload off", "frames go on as they come"),
        ("--offload no-uso", "those of UDP are cut"),
        ("--offload no-ecn", "those with CWR are cut"),
        ("--offload no-csum", "checksums are finished"),
    ] {
        let program = Rubridge::start(&namespace, &format!("linux_raw:nic0 tap:t0 {options}"));
        assert!(program.plan.contains(words), "{options}: {}", program.plan);
    }
}

#[test]
fn rates_are_printed_while_it_runs() {
    let namespace = Namespace::new();
    bridge(&namespace);
    let spawn = || Rubridge::command("bridge --stats 1 linux_raw:nic0 tap:t0").stdout(Stdio::piped()).spawn();
    let mut child = namespace.run(spawn).expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let rates: Vec<String> =
        lines.map(|line| line.expect("readable")).filter(|line| line.contains("Gb/s")).take(4).collect();
    // The reader is gone now: that alone must not end a bridge, a signal must.
    for (line, way) in rates.iter().zip(["-> tap:t0: ", "-> linux_raw:nic0: "].iter().cycle()) {
        assert!(line.starts_with(way), "{rates:?}");
    }
    assert_eq!(rates.len(), 4);
    let id = i32::try_from(child.id()).expect("a process id");
    kill(Pid::from_raw(id), Signal::SIGTERM).expect("it runs");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn the_version_is_what_gns3_looks_for() {
    let folder = Folder::new();
    let link = folder.path().join("ubridge");
    symlink(env!("CARGO_BIN_EXE_rubridge"), &link).expect("a link");
    for words in ["-v", "-v -x", "-d 1 word -ve", "-H 70000 -v"] {
        let (code, out, error) = ended(&link, words);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{words}");
        assert_eq!(out, format!("ubridge version 0.9.19 (rubridge {})\n", env!("CARGO_PKG_VERSION")), "{words}");
        assert_eq!(captured_version(&out), "0.9.19");
    }
}

#[test]
fn a_version_that_cannot_be_told_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let status = Rubridge::command("-v").stdout(full).status().expect("the program runs");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_help_names_every_option_of_ubridge() {
    let (code, out, error) = rubridge("-h -x");
    assert_eq!((code, error.as_str()), (Some(0), ""));
    for option in ["-h ", "-f <file>", "-H [<address>:]<port>", "-e ", "-d <level>", "-v ", "rubridge bridge --help"] {
        assert!(out.contains(option), "{option}: {out}");
    }
}

#[test]
fn the_network_devices_are_listed() {
    let namespace = Namespace::new();
    bridge(&namespace);
    // A device that is up is listed in every version of libpcap.
    namespace.ip("link set nic0 up");
    for words in ["-e", "-ed1", "word -e -x"] {
        let output = namespace.run(|| Rubridge::command(words).output()).expect("the program runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{text}");
        let devices = text.strip_prefix("Network device list:\n\n").and_then(|text| text.strip_suffix("\n\n"));
        let devices: Vec<&str> = devices.unwrap_or_else(|| panic!("{words}: {text}")).lines().collect();
        assert!(devices.contains(&"  nic0 => no description"), "{text}");
        assert!(devices.iter().all(|line| line.starts_with("  ") && line.contains(" => ")), "{text}");
    }
}

#[test]
fn a_wrong_command_line_of_ubridge_ends_with_1() {
    let program = env!("CARGO_BIN_EXE_rubridge");
    for (words, message) in [
        ("-x -v", "invalid option -- 'x'"),
        ("-d 1 -H", "option requires an argument -- 'H'"),
        ("--nothing", "unrecognized option '--nothing'"),
        ("-H 127.0.0.1:70000", "-H: port 70000 is not between 1 and 65535"),
    ] {
        let expected = (Some(1), String::new(), format!("{program}: {message}\n"));
        assert_eq!(rubridge(words), expected, "{words}");
    }
}

#[test]
fn subcommands_are_told_from_options() {
    for words in ["help", "--help"] {
        let (code, out, _) = rubridge(words);
        assert_eq!(code, Some(0));
        assert!(out.contains("Usage: rubridge <COMMAND>") && out.contains("rubridge -h"), "{out}");
    }
    let expected = format!("rubridge {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(rubridge("--version"), (Some(0), expected, String::new()));
    // As an argument of an option, or behind one, it is a word like any other.
    let (code, out, _) = rubridge("-d bridge -v");
    assert_eq!((code, captured_version(&out)), (Some(0), "0.9.19"));
}

#[test]
fn a_file_that_cannot_be_read_is_told_but_no_failure() {
    let folder = Folder::new();
    let run = |words| {
        let output = Rubridge::command(words).current_dir(folder.path()).output().expect("the program runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let told = |lines: &str| (Some(0), format!("{lines}\n"));
    assert_eq!(run(""), told("iniparser: cannot open ubridge.ini"));
    assert_eq!(run("word -f lab.ini"), told("iniparser: cannot open lab.ini"));
    std::fs::write(folder.path().join("lab.ini"), "[a]\nsource_tap\n[b\n").expect("written");
    let lines = "iniparser: syntax error in lab.ini on line 2\niniparser: syntax error in lab.ini on line 3";
    assert_eq!(run("-flab.ini"), told(lines));
}
