//! The log of a server reaches the service beside it, and clients find the service and use its advice. What a client
//! reports of a path needs a path: that test is among those of the lab.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

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
    // A slow machine opens them one after the other.
    let told = [
        format!("over {streams} streams"),
        format!("{streams} at the end"),
    ];
    assert!(told.iter().any(|told| said.contains(told)), "{said}");
}
