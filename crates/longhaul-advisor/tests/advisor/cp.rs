//! `longhaul cp` with advice.

use std::path::Path;
use std::process::Output;

use serde_json::json;

use crate::hosts::token_file;
use crate::programs::{RunningServer, longhaul, stderr};
use crate::scripted::ScriptedAdvisor;

/// Large enough for advice to count, bytes.
const SIZE: usize = 8 << 20;

/// A data server with a file.
fn data_server(place: &Path) -> RunningServer {
    let root = place.join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("f"), vec![7; SIZE]).unwrap();
    let mut command = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"]);
    command.arg("--root").arg(root).args(["--history", "off"]);
    RunningServer::start(command)
}

fn cp(server: &RunningServer, place: &Path, flags: &[&str]) -> Output {
    longhaul(&["cp", "--why", "--no-history", "--sync-policy", "none"])
        .args(flags)
        .arg(format!("ftp://{}/f", server.address))
        .arg(place.join("copy"))
        .env_remove("LONGHAUL_ADVISOR")
        .output()
        .unwrap()
}

fn advising(streams: u32) -> ScriptedAdvisor {
    ScriptedAdvisor::start(Ok(json!({
        "streams": streams,
        "expected_bps": 900_000_000,
        "rtt_seconds": 0.1,
        "asymmetric": false,
        "confidence": 0.9,
        "why": "A long path.",
    })))
}

#[test]
fn a_copy_asks_the_named_server_and_says_what_it_advised() {
    let place = tempfile::tempdir().unwrap();
    let (server, advisor) = (data_server(place.path()), advising(3));
    let output = cp(&server, place.path(), &["--advisor", &advisor.server()]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let advice = format!(
        "advice of {}: 3 streams, 900 Mbit/s expected",
        advisor.server()
    );
    assert!(said.contains(&advice), "{said}");
    assert_eq!(advisor.call().0.method, "EnableGetAdvice");
    assert_eq!(
        std::fs::read(place.path().join("copy")).unwrap().len(),
        SIZE
    );
}

#[test]
fn an_upload_tells_its_direction_its_size_and_what_this_host_can_move() {
    let place = tempfile::tempdir().unwrap();
    let (server, advisor) = (data_server(place.path()), advising(3));
    let file = place.path().join("root/f");
    let output = longhaul(&["cp", "--no-history", "--advisor", &advisor.server()])
        .arg(&file)
        .arg(format!("ftp://{}/g", server.address))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = advisor.call().0.arguments.remove(1);
    assert_eq!(told["direction"], "upload", "{told}");
    assert_eq!(told["bytes"], SIZE, "{told}");
    for member in ["processor_bps", "processor_cores", "max_send_buffer"] {
        assert!(
            told[member].as_f64().is_some_and(|number| number > 0.0),
            "{told}"
        );
    }
}

#[test]
fn a_copy_without_an_answer_goes_on_and_says_why() {
    let place = tempfile::tempdir().unwrap();
    let server = data_server(place.path());
    // It accepts connections, because the kernel does, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = cp(&server, place.path(), &["--advisor", &address]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let told = format!("advice of {address}: none (no answer within 200 ms)");
    assert!(said.contains(&told), "{said}");
}

#[test]
fn nobody_is_asked_with_off() {
    let place = tempfile::tempdir().unwrap();
    let (server, advisor) = (data_server(place.path()), advising(3));
    let output = longhaul(&["cp", "--advisor", "off", "--no-history"])
        .arg(format!("ftp://{}/f", server.address))
        .arg(place.path().join("copy"))
        .env("LONGHAUL_ADVISOR", advisor.server())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(advisor.calls.lock().unwrap().len(), 0);
}

#[test]
fn the_environment_names_the_server_and_a_short_copy_is_not_reported() {
    let place = tempfile::tempdir().unwrap();
    let (server, advisor) = (data_server(place.path()), advising(1));
    let output = longhaul(&["cp", "--no-history"])
        .arg(format!("ftp://{}/f", server.address))
        .arg(place.path().join("copy"))
        .env("LONGHAUL_ADVISOR", advisor.server())
        .env("ENABLE_TOKEN_FILE", token_file(place.path()))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(advisor.call().0.method, "EnableGetAdvice");
}
