//! The Python package, with this program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

/// Where pip cannot install packages, the script leaves out what needs them, and says SKIPPED.
#[test]
fn the_python_package_copies_and_is_a_file_system() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bindings/longhaul/test.sh"
    );
    let output = Command::new(script)
        .env("LONGHAUL_BIN", env!("CARGO_BIN_EXE_longhaul"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    for line in said.lines() {
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            eprintln!("SKIPPED: the Python package, {skipped}");
        }
    }
}
