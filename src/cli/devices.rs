//! `-e`: the network devices that libpcap knows.

use std::fmt::Write;

use pcap::Device;

/// The list, as it is printed.
pub(super) fn list() -> Result<String, pcap::Error> {
    Device::list().map(|devices| text(&devices))
}

fn text(devices: &[Device]) -> String {
    let mut text = "Network device list:\n\n".to_owned();
    for Device { name, desc, .. } in devices {
        let _ = writeln!(text, "  {name} => {}", desc.as_deref().unwrap_or("no description"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_description_is_said_to_have_none() {
        let mut any = Device::from("any");
        any.desc = Some("all of them".to_owned());
        let devices = [any, Device::from("lo")];
        assert_eq!(text(&devices), "Network device list:\n\n  any => all of them\n  lo => no description\n\n");
        assert_eq!(text(&[]), "Network device list:\n\n\n");
    }
}
