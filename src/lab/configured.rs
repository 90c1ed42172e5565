//! Bridges as a configuration file describes them.

use super::Lab;
use crate::capture::LinkType;
use crate::config::{BridgeConfig, CaptureConfig, End};
use crate::nio::{self, Cause, Nio};

/// Makes and starts bridges. What fails of one is told, and the others start all the same.
pub fn start(lab: &mut Lab, bridges: impl Iterator<Item = BridgeConfig>) {
    for bridge in bridges {
        if let Err(complaint) = start_one(lab, &bridge) {
            lab.console.stderr.say(&format!("bridge '{}': {complaint}", bridge.name));
        }
    }
}

fn start_one(lab: &mut Lab, config: &BridgeConfig) -> Result<(), String> {
    let source = open(lab, &config.source)?;
    let destination = open(lab, &config.destination)?;
    let console = lab.console.clone();
    let bridge = lab.create_bridge(&config.name).ok_or("there is another one of that name")?;
    for nio in [source, destination] {
        bridge.add(nio).map_err(|_| "it has two NIOs already")?;
    }
    if let Some(capture) = &config.capture {
        console.stdout.say(&capture.announcement());
        let CaptureConfig { file, protocol } = capture;
        let link_type = LinkType::named(protocol).unwrap_or_else(|unknown| {
            console.stderr.say(&unknown.to_string());
            LinkType::default()
        });
        if let Err(error) = bridge.start_capture(file, link_type) {
            console.stderr.say(&format!("unable to open capture file {} ({error})", file.display()));
        }
    }
    if let Some(expression) = &config.pcap_filter {
        console.stdout.say(&config.filter_announcement().unwrap_or_default());
        let filter = bridge.nios().into_iter().flatten().find_map(|nio| nio.receive_filter.clone());
        if let Some(Err(error)) = filter.map(|filter| filter.set(Some(expression))) {
            console.stderr.say(&error.to_string());
        }
    }
    let started = lab.start_bridge(&config.name).unwrap_or(Ok(()));
    started.map_err(|error| error.to_string())
}

fn open(lab: &Lab, end: &End) -> Result<Nio, String> {
    lab.console.stdout.say(&end.announcement());
    let (kind, opened) = match end {
        End::Udp { local_port, host, remote_port } => {
            ("UDP", nio::udp::open(*local_port, host, *remote_port, lab.mode, |tunnel| lab.runs_tunnel(tunnel)))
        }
        End::Unix { local, remote } => ("UNIX", nio::unix::open(local, remote, lab.mode)),
        End::Ethernet(device) => ("Ethernet", nio::ethernet::open(device, lab.mode)),
        End::Tap(device) => ("TAP", nio::tap::open(device, lab.mode)),
        End::LinuxRaw(device) => ("Linux RAW", nio::linux_raw::open(device, lab.mode)),
    };
    opened.map_err(|cause: Cause| format!("unable to create {kind} NIO {end} ({cause})"))
}
