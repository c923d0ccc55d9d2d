//! The client libraries in other languages, against a scripted server and against the real service.

use std::process::Command;

use crate::hosts::token_file;
use crate::programs::RunningServer;

/// Runs the tests of a language. A step without its program says SKIPPED and why; with `LONGHAUL_REQUIRE_PEERS=1`
/// that is a failure. Steps that download packages are left out.
fn test_language(language: &str) {
    let place = tempfile::tempdir().unwrap();
    let token = token_file(place.path());
    let settings = format!("token-file = \"{token}\"\n");
    let service = RunningServer::advisor(place.path(), &settings);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/test.sh");
    let required = std::env::var("LONGHAUL_REQUIRE_PEERS").unwrap_or_default();
    let output = Command::new(script)
        .arg(language)
        .env("ENABLE_SERVER", service.address.to_string())
        .env("BINDINGS_REQUIRE_ALL", required)
        .env("BINDINGS_DOWNLOAD", "0")
        .env("ENABLE_TOKEN_FILE", token)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for line in said.lines() {
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            eprintln!("SKIPPED: bindings, {skipped}");
        }
    }
}

#[test]
fn the_python_library_agrees_with_the_service() {
    test_language("python");
}

#[test]
fn the_c_library_agrees_with_the_service() {
    test_language("c");
}

#[test]
fn the_java_library_agrees_with_the_service() {
    test_language("java");
}
