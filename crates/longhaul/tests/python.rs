//! The Python package, with this program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

/// The script has more tests, which download packages; they are run by hand.
#[test]
fn the_python_package_copies_and_synchronises() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bindings/longhaul/test.sh"
    );
    let output = Command::new(script)
        .env("LONGHAUL_BIN", env!("CARGO_BIN_EXE_longhaul"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
