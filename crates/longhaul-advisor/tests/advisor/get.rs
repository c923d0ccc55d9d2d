//! `longhaul advisor get`.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::programs::{advisor, stderr, stdout};
use crate::scripted::ScriptedAdvisor;

/// Advice for a long, fast path.
fn known_path() -> Value {
    json!({
        "client": "192.0.2.7",
        "set_buffer_bytes": 4_194_304,
        "bdp_bytes": 12_500_000,
        "streams": 8,
        "expected_bps": 900_000_000,
        "rtt_seconds": 0.1,
        "asymmetric": false,
        "confidence": 0.9,
        "why": "It's a long path.",
    })
}

#[test]
fn advice_is_printed_for_people() {
    let server = ScriptedAdvisor::start(Ok(known_path()));
    let output = advisor(&["get", &server.server()]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for line in [
        "advice for transfers to 192.0.2.7\n",
        "  streams             8\n",
        "  expected rate       900 Mbit/s\n",
        "  why                 It's a long path.\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_published_formulas_are_printed_when_asked_for() {
    let mut path = known_path();
    path["bandwidth_bps"] = json!(1_000_000_000);
    path["intervals"] = json!({"ping": "every 2 h 0 min: the values hardly differ"});
    let server = ScriptedAdvisor::start(Ok(path));
    let text = stdout(&advisor(&["get", &server.server(), "--explain"]));
    let formula = "  8 streams           1.79 MB for each stream: round trip × bandwidth / (streams - 1) [15]";
    assert!(text.lines().any(|line| line == formula), "{text}");
    let interval = "  ping                every 2 h 0 min: the values hardly differ";
    assert!(text.lines().any(|line| line == interval), "{text}");
    let text = stdout(&advisor(&["get", &server.server()]));
    assert!(!text.contains("formula"), "{text}");
}

#[test]
fn advice_is_one_json_object_with_json() {
    let server = ScriptedAdvisor::start(Ok(known_path()));
    let output = advisor(&["get", &server.server(), "--json"]);
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["streams"], 8);
}

#[test]
fn flags_are_one_line_that_a_shell_reads_unchanged() {
    let server = ScriptedAdvisor::start(Ok(known_path()));
    let get = |program: &str| stdout(&advisor(&["get", &server.server(), "--emit", program]));
    assert_eq!(get("ncftpget"), "-B 4194304\n");
    let lftp = get("lftp");
    let printed = std::process::Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {lftp}")])
        .output()
        .unwrap();
    assert_eq!(
        stdout(&printed),
        "-e\nset net:socket-buffer 4194304;set pget:default-n 8;set mirror:use-pget-n 8;\n"
    );
}

#[test]
fn the_question_tells_the_size_and_the_limits_of_this_host_only() {
    let server = ScriptedAdvisor::start(Ok(known_path()));
    advisor(&["get", &server.server(), "--bytes", "10G"]);
    let (call, _) = server.call();
    assert_eq!(call.method, "EnableGetAdvice");
    assert_eq!(call.arguments[0], "127.0.0.1");
    assert_eq!(call.arguments[1]["bytes"], 10_000_000_000_u64);
    assert!(call.arguments[1]["max_receive_buffer"].is_u64(), "{call:?}");
    advisor(&["get", &server.server(), "--client", "client.example"]);
    let (call, _) = server.call();
    assert_eq!(call.arguments[1]["client"], "client.example");
    assert!(
        call.arguments[1]["max_receive_buffer"].is_null(),
        "{call:?}"
    );
}

#[test]
fn an_unknown_path_gives_the_servers_sentence_and_no_flags() {
    let why = "Nothing is known of the path to 192.0.2.7; a test of it is scheduled.";
    let answer = json!({"client": "192.0.2.7", "asymmetric": false, "confidence": 0.0, "why": why});
    let server = ScriptedAdvisor::start(Ok(answer));
    let output = advisor(&["get", &server.server()]);
    assert_eq!(stdout(&output), format!("{why}\n"));
    let output = advisor(&["get", &server.server(), "--emit", "ncftpget"]);
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("\n", Some(0))
    );
    assert!(stderr(&output).contains(why), "{}", stderr(&output));
}

#[test]
fn a_control_character_of_the_server_does_not_reach_the_terminal() {
    let answer = json!({"asymmetric": false, "confidence": 0.0, "why": "a\u{9b}2Jb"});
    let server = ScriptedAdvisor::start(Ok(answer));
    let output = advisor(&["get", &server.server()]);
    assert_eq!(stdout(&output), "a\\u{9b}2Jb\n");
}

#[test]
fn without_a_server_the_exit_code_is_5_and_one_line_says_why() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let output = advisor(&["get", &address]);
    assert_eq!(output.status.code(), Some(5));
    let text = stderr(&output);
    let expected = format!("longhaul advisor: no advice server answers at {address}: ");
    assert!(text.starts_with(&expected), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_server_that_is_silent_is_left_after_the_timeout() {
    // It accepts connections, because the kernel does, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let output = advisor(&["get", &address, "--timeout", "0.2"]);
    assert_eq!(output.status.code(), Some(5));
    let text = stderr(&output);
    assert!(text.contains("did not answer within 200 ms"), "{text}");
}

#[test]
fn an_unusable_host_or_program_is_a_usage_error() {
    let output = advisor(&["get", "two words"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = advisor(&["get", "h", "--emit", "wget"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("ncftpget globus-url-copy"), "{text}");
}
