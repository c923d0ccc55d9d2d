//! The promise of `longhaul cp --plan`: it tells the time of a copy before the first byte where an earlier transfer knows the
//! path, says so where none does, and changes nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

#[allow(dead_code, reason = "the parts that other tests use")]
mod served;

use served::ServedRoot;

/// At the rate of the server, a copy takes three seconds: it teaches something.
const SIZE: u64 = 12 << 20;
const RATE: &str = "32M";

/// `longhaul cp` with a memory of its own.
struct Client<'a>(&'a Path);

impl Client<'_> {
    fn cp(&self, arguments: &[&str]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .arg("cp")
            .args(arguments)
            .env_remove("RUST_LOG")
            .env("LONGHAUL_CONFIG", "off")
            .env("LONGHAUL_BATCHES", "off")
            .env("LONGHAUL_HISTORY", self.0.join("paths.json"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output
    }

    /// The object with this event.
    fn event(&self, name: &str, arguments: &[&str]) -> Value {
        let output = self.cp(&[&["--json"], arguments].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.rfind(|line| line["event"] == name).unwrap()
    }
}

#[test]
fn plan_tells_the_time_of_a_copy_once_a_transfer_has_taught_the_path_and_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::File::create(root.join("f"))
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    let server = ServedRoot::start_with("127.0.0.1:0", &root, "rw", &["--limit-rate", RATE]);
    let client = Client(scratch.path());
    let url = format!("ftp://{}/f", server.address);
    let to = scratch.path().join("got");
    let name = to.to_str().unwrap();
    let names = || -> Vec<_> {
        let entries = fs::read_dir(scratch.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };

    let before = names();
    let unknown = client.event("forecast", &["--plan", &url, name]);
    assert_eq!(
        (&unknown["files"], &unknown["bytes"]),
        (&1.into(), &SIZE.into())
    );
    assert_eq!(unknown["eta_seconds"], Value::Null);
    let path = &unknown["paths"][0];
    assert_eq!(path["known_by"], Value::Null);
    assert!(
        path["settings"].as_str().unwrap().contains("stream"),
        "{path}"
    );
    let text = String::from_utf8(client.cp(&["--plan", &url, name]).stderr).unwrap();
    assert!(text.contains("nothing is known of this path"), "{text}");
    assert!(text.contains("1 file would be copied, 12.6 MB"), "{text}");
    assert_eq!(names(), before);

    let seconds = client.event("summary", &[&url, name])["seconds"]
        .as_f64()
        .unwrap();
    let after = names();
    let known = client.event("forecast", &["--plan", &url, &format!("{name}2")]);
    assert_eq!(known["paths"][0]["known_by"], "history", "{known}");
    let [earliest, expected, latest] =
        ["eta_earliest_seconds", "eta_seconds", "eta_latest_seconds"]
            .map(|field| known[field].as_f64().unwrap());
    assert!(earliest < expected && expected < latest, "{known}");
    assert!((earliest..latest).contains(&seconds), "{seconds}: {known}");
    let text = String::from_utf8(client.cp(&["--plan", &url, name]).stderr).unwrap();
    assert!(text.contains("would take 0:0"), "{text}");
    assert!(
        text.contains("as earlier transfers over this path went"),
        "{text}"
    );

    // Nothing is known of the other direction, nor of copies within this machine.
    let put = client.event(
        "forecast",
        &["--plan", name, &format!("ftp://{}/put", server.address)],
    );
    assert_eq!(put["paths"][0]["known_by"], Value::Null);
    let local = client.event("forecast", &["--plan", name, &format!("{name}3")]);
    assert_eq!(local["eta_seconds"], Value::Null);
    assert_eq!(names(), after);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
}
