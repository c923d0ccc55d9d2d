//! `longhaul advisor add`, `remove`, `list` and `test`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::json;

use crate::programs::{advisor, longhaul, stderr, stdout};
use crate::scripted::ScriptedAdvisor;

/// A file with a token that only its owner may read.
pub(crate) fn token_file(place: &Path) -> String {
    let path = place.join("token");
    std::fs::write(&path, "s3cret-of-16-letters\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn writes_carry_the_token_of_the_flag_or_of_the_environment() {
    let place = tempfile::tempdir().unwrap();
    let token = token_file(place.path());
    let server = ScriptedAdvisor::start(Ok(json!(true)));
    let address = server.server();
    let output = advisor(&[
        "add",
        "192.0.2.7",
        "--server",
        &address,
        "--token-file",
        &token,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (call, authorization) = server.call();
    assert_eq!(call.method, "EnableAddHost");
    assert_eq!(call.arguments, [json!("192.0.2.7")]);
    assert_eq!(
        authorization.as_deref(),
        Some("Bearer s3cret-of-16-letters")
    );
    let order = ["advisor", "test", "192.0.2.7", "ping", "--wait", "0"];
    let output = longhaul(&order)
        .args(["--server", &address])
        .env("ENABLE_TOKEN_FILE", &token)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (call, authorization) = server.call();
    assert_eq!(call.method, "EnableRunTest");
    assert_eq!(call.arguments, [json!("192.0.2.7"), json!("ping")]);
    assert_eq!(
        authorization.as_deref(),
        Some("Bearer s3cret-of-16-letters")
    );
}

#[test]
fn tests_are_chosen_with_their_intervals() {
    let place = tempfile::tempdir().unwrap();
    let token = token_file(place.path());
    let server = ScriptedAdvisor::start(Ok(json!(true)));
    let order = ["choose", "192.0.2.7", "ping", "bottleneck=10min"];
    let at = ["--server", &server.server(), "--token-file", &token];
    let output = advisor(&[&order[..], &at].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (call, _) = server.call();
    assert_eq!(call.method, "EnableSetTests");
    let chosen = json!({"ping": true, "bottleneck": "10min"});
    assert_eq!(call.arguments, [json!("192.0.2.7"), chosen]);
}

#[test]
fn a_service_class_is_asked_for_with_the_wanted_rate() {
    let advice = json!({"dscp": 1, "class": "LE", "reservation_helps": false, "why": "it is fast"});
    let server = ScriptedAdvisor::start(Ok(advice));
    let order = ["qos", "--rate", "800M", "--client", "192.0.2.7"];
    let output = advisor(&[&order[..], &["--server", &server.server()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = stdout(&output);
    assert!(
        shown.contains("LE (DSCP 1)") && shown.contains("it is fast"),
        "{shown}"
    );
    let (call, _) = server.call();
    assert_eq!(call.method, "EnableGetQoS");
    let asked = json!({"client": "192.0.2.7", "purpose": "bulk", "rate_bps": 800_000_000});
    assert_eq!(call.arguments.get(1), Some(&asked));
}

#[test]
fn a_missing_token_gives_exit_code_3_and_an_unknown_client_4() {
    let server = ScriptedAdvisor::start(Err((403, "the token is missing")));
    let output = advisor(&["remove", "192.0.2.7", "--server", &server.server()]);
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(said.contains("the token is missing"), "{said}");
    assert!(said.contains("--token-file FILE"), "{said}");
    let server = ScriptedAdvisor::start(Err((404, "192.0.2.7 is not monitored")));
    let output = advisor(&["test", "192.0.2.7", "ping", "--server", &server.server()]);
    assert_eq!(output.status.code(), Some(4));
    let output = advisor(&[
        "add",
        "h",
        "--server",
        "h",
        "--token-file",
        "/nowhere/token",
    ]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

/// Runs `test 192.0.2.7 bottleneck` at a server that answers with this state of the test.
fn tested(state: &serde_json::Value, wait: &str) -> Output {
    let info = json!({"client": "192.0.2.7", "asked_tests": {"bottleneck": state}});
    let server = ScriptedAdvisor::start(Ok(info));
    let order = ["test", "192.0.2.7", "bottleneck", "--wait", wait];
    advisor(&[&order[..], &["--server", &server.server()]].concat())
}

#[test]
fn a_test_gives_its_result_or_the_reason_why_there_is_none() {
    let output = tested(
        &json!({"state": "measured", "values": {"bandwidth": 94.1e6}}),
        "60",
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = "bottleneck of 192.0.2.7: bandwidth 94.1 Mbit/s\n";
    assert_eq!(stdout(&output), line);
    let output = tested(&json!({"state": "failed", "why": "no answer"}), "60");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("has no result: no answer"));
    let waiting = json!({"state": "waiting", "why": "a transfer runs"});
    let output = tested(&waiting, "100ms");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("no result within 100 ms: a transfer runs"),
        "{said}"
    );
    let first = said.lines().next();
    assert_eq!(
        first,
        Some("bottleneck of 192.0.2.7 waits: a transfer runs"),
        "at once"
    );
}

#[test]
fn clients_are_listed_one_a_line() {
    let hosts =
        json!([{"client": "192.0.2.7", "source": "api"}, {"client": "192.0.2.8", "source": "log"}]);
    let server = ScriptedAdvisor::start(Ok(hosts));
    let output = advisor(&["list", "--server", &server.server()]);
    assert_eq!(
        stdout(&output),
        "192.0.2.7 source=api\n192.0.2.8 source=log\n"
    );
    let output = advisor(&["list", "--json", "--server", &server.server()]);
    let lines = stdout(&output);
    assert_eq!(lines.lines().count(), 2);
    assert_eq!(
        lines.lines().next().unwrap(),
        r#"{"client":"192.0.2.7","source":"api"}"#
    );
}
