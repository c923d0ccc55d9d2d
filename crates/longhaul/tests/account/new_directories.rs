//! Modes of directories that clients make, with settings about modes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// A group of which nobody is a member.
const FOREIGN_GROUP: u32 = 4321;
/// The account `nobody` as Debian and Fedora number it.
const NOBODY: u32 = 65534;

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a line, and returns the last line of the reply.
fn ask(control: &mut BufReader<TcpStream>, line: &str) -> String {
    if !line.is_empty() {
        control.get_mut().write_all(line.as_bytes()).unwrap();
        control.get_mut().write_all(b"\r\n").unwrap();
    }
    loop {
        let mut reply = String::new();
        assert!(control.read_line(&mut reply).unwrap() > 0, "after {line}");
        if reply.as_bytes().get(3) == Some(&b' ') {
            return reply;
        }
    }
}

#[test]
fn a_directory_stays_with_the_group_of_the_one_it_is_made_in() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root may make a directory of a foreign group");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let shared = place.path().join("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, Some(NOBODY), Some(FOREIGN_GROUP)).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2770)).unwrap();
    let server = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"])
        .args(["--run-as", "nobody", "--history", "off", "--umask", "007"])
        .arg("--root")
        .arg(&shared)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Serving(server);
    let mut ready = String::new();
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    output.read_line(&mut ready).unwrap();
    let address = ready.trim().strip_prefix("listening on ").unwrap();
    let control = TcpStream::connect(address).unwrap();
    control.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut control = BufReader::new(control);
    ask(&mut control, "");
    ask(&mut control, "USER anonymous");
    assert!(ask(&mut control, "PASS x").starts_with("230"));
    assert!(ask(&mut control, "MKD a").starts_with("257"));
    assert!(ask(&mut control, "MKD a/b").starts_with("257"));
    for name in ["a", "a/b"] {
        let made = fs::metadata(shared.join(name)).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o2770, "{name}");
        assert_eq!(made.gid(), FOREIGN_GROUP, "{name}");
    }
}
