//! A real gns3-server that has this program as its ubridge: what a user does in GNS3, with a guest that runs.
//!
//! `gns3/scenarios.py` drives it, in namespaces of its own.

use std::process::Command;

#[test]
fn gns3_server_2_2_drives_it() {
    drive("2.2.61");
}

#[test]
fn gns3_server_3_0_drives_it() {
    drive("3.0.6");
}

fn drive(server: &str) {
    let output = Command::new("python3")
        .args(["-B", "integration/gns3/scenarios.py", "--server", server])
        .args(["--ubridge", env!("CARGO_BIN_EXE_rubridge")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("python3, of the package python3");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
