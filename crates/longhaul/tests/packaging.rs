//! The Debian package and its settings, with this program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::process::Command;

/// Exit code of `packaging/test` when the machine lacks something.
const SKIPPED: i32 = 77;

/// Parts, manual pages, completions, units and settings, without root. What needs a Debian root, another architecture
/// or minutes is run by hand (`packaging/test`).
#[test]
fn the_package_is_complete_and_its_settings_serve() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/test");
    let output = Command::new(script)
        .arg("quick")
        .env("LONGHAUL_BIN", env!("CARGO_BIN_EXE_longhaul"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let is_skipped = output.status.code() == Some(SKIPPED);
    let required = std::env::var("LONGHAUL_REQUIRE_PEERS").is_ok_and(|value| value == "1");
    assert!(
        output.status.success() || is_skipped && !required,
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in said.lines() {
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            // Not eprintln!: the test runner captures and hides the output of passing tests.
            let _ = writeln!(std::io::stderr(), "SKIPPED: packaging, {skipped}");
        }
    }
}
