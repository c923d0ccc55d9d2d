//! Server, service and `longhaul cp` teach each other: the log of the server reaches the service beside it, clients find
//! the service and use its advice, and report what they measured.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use enable::client::EnableClient;
use enable::method;
use serde_json::{Value, json};

use crate::beside_server::{announced_service, serve};
use crate::hosts::token_file;
use crate::programs::{PATIENCE, RunningServer, http, longhaul, stderr, wait_for};

/// Large enough for a transfer to tell something of the path, and for advice to count, bytes.
const SIZE: usize = 8 << 20;

/// A server with a file and the service beside it, and the file with the service's token.
fn serve_with_token(place: &Path, settings: &str) -> (RunningServer, SocketAddr, String) {
    let token = token_file(place);
    let server = serve(place, &format!("token-file = \"{token}\"\n{settings}"));
    std::fs::write(place.join("root/f"), vec![7; SIZE]).unwrap();
    let service = announced_service(&server);
    (server, service, token)
}

/// Copies the file of a server; what the server announces is asked.
fn cp(server: &RunningServer, place: &Path) -> Output {
    let output = longhaul(&["cp", "--why", "--no-history", "--sync-policy", "none"])
        .arg(format!("ftp://{}/f", server.address))
        .arg(place.join("copy"))
        .env_remove("LONGHAUL_ADVISOR")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

/// A part of the facts that a service has of the path to this host; `None`: it is not there yet.
fn fact(service: SocketAddr, pointer: &str) -> Option<Value> {
    let (_, body) = http(service, "GET /api/v1/paths/127.0.0.1").unwrap();
    let facts: Value = serde_json::from_str(&body).unwrap();
    facts.pointer(pointer).cloned()
}

#[test]
fn the_log_of_the_server_reaches_the_service() {
    let place = tempfile::tempdir().unwrap();
    let (server, service, _) = serve_with_token(place.path(), "");
    cp(&server, place.path());
    let bytes = wait_for("the transfer", || {
        fact(service, "/tests/transfer/detail/bytes")
    });
    assert_eq!(bytes, SIZE);
}

#[test]
fn a_copy_uses_the_advice_of_the_service_that_its_server_announces() {
    let place = tempfile::tempdir().unwrap();
    // Only what is reported here counts.
    let settings = "[tests.ping]\nenabled = false\n[tests.route]\nenabled = false\n";
    let (server, service, token) = serve_with_token(place.path(), settings);
    let token = std::fs::read_to_string(token).unwrap();
    let client = EnableClient::new(&service.to_string(), PATIENCE).unwrap();
    let client = client.with_token(token.trim());
    let values = json!({"rtt": 0.1, "bandwidth": 1e9, "goodput": 4e8});
    let report = json!({"client": "127.0.0.1", "test": "transfer", "values": values});
    for _ in 0..9 {
        client.call(&method::REPORT, vec![report.clone()]).unwrap();
    }
    // The copy does not wait long for an answer; and the service learns from each copy.
    let (streams, said) = wait_for("a copy with advice", || {
        let streams = fact(service, "/advice/streams").unwrap();
        let said = stderr(&cp(&server, place.path()));
        let advice = format!("advice of {service}: {streams} streams, ");
        said.contains(&advice).then_some((streams, said))
    });
    assert!(said.contains(&format!("over {streams} streams")), "{said}");
}

#[test]
fn a_copy_reports_to_the_service_that_its_user_names() {
    let place = tempfile::tempdir().unwrap();
    let (server, _, token) = serve_with_token(place.path(), "");
    // It reads no log.
    let elsewhere = tempfile::tempdir().unwrap();
    let named = RunningServer::advisor(elsewhere.path(), &format!("token-file = \"{token}\"\n"));
    let mut copy = longhaul(&["cp", "-q", "--no-history", "--advisor"])
        .arg(named.address.to_string())
        .arg(format!("ftp://{}/f", server.address))
        .arg("-")
        .env("ENABLE_TOKEN_FILE", &token)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Only a transfer of 5 s tells something of a path.
    let mut output = copy.stdout.take().unwrap();
    let (mut part, mut received) = (vec![0; SIZE], 0);
    loop {
        let read = output.read(&mut part).unwrap();
        if read == 0 {
            break;
        }
        received += read;
        std::thread::sleep(Duration::from_secs_f64(6.0 * read as f64 / SIZE as f64));
    }
    assert_eq!(copy.wait().unwrap().code(), Some(0));
    assert_eq!(received, SIZE);
    let rate = wait_for("the report", || {
        fact(named.address, "/quantities/goodput/latest")
    });
    let rate = rate.as_f64().unwrap();
    assert!(rate > 0.0 && rate < SIZE as f64 * 8.0 / 5.0, "{rate}");
}
