//! `cksum --check`: lines and exit codes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Exit code and standard output of `longhaul cksum` in a directory.
fn cksum(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("cksum").args(arguments).current_dir(directory);
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn checks_print_the_lines_of_sha256sum_and_exit_with_the_worst_result() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["a", "b", "back\\slash"] {
        fs::write(at(name), name).unwrap();
    }
    let written = Command::new("sha256sum")
        .args(["a", "b", "back\\slash"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    // Editors of other systems put a mark before the first line.
    let marked = [b"\xef\xbb\xbf", written.stdout.as_slice()].concat();
    fs::write(at("SHA256SUMS"), marked).unwrap();
    let check = |flags: &[&str]| cksum(directory.path(), &[flags, &["-c", "SHA256SUMS"]].concat());
    let all = "a: OK\nb: OK\n\\back\\\\slash: OK\n".to_owned();
    assert_eq!(check(&[]), (Some(0), all));
    assert_eq!(check(&["--quiet"]), (Some(0), String::new()));
    fs::remove_file(at("a")).unwrap();
    let quiet = check(&["--quiet"]);
    assert_eq!(quiet, (Some(4), "a: MISSING\n".to_owned()));
    assert_eq!(check(&["-q", "--ignore-missing"]), (Some(0), String::new()));
    fs::write(at("b"), "other").unwrap();
    let quiet = check(&["--quiet"]);
    assert_eq!(quiet, (Some(6), "a: MISSING\nb: FAILED\n".to_owned()));
    fs::write(at("none"), "no checksums\n").unwrap();
    assert_eq!(cksum(directory.path(), &["-c", "none"]).0, Some(2));
    assert_eq!(cksum(directory.path(), &["-c", "gone"]).0, Some(4));
    assert_eq!(
        cksum(directory.path(), &["-q", "b"]).0,
        Some(2),
        "only with --check"
    );
}

#[test]
fn names_are_printed_byte_for_byte_and_as_sha256sum_escapes_them() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    for (name, shown) in [
        (&b"caf\xe9"[..], &b"  caf\xe9\n"[..]),
        (b"a\nb", b"  a\\nb\n"),
    ] {
        let name = std::ffi::OsStr::from_bytes(name);
        fs::write(dir.path().join(name), "x").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .arg("cksum")
            .arg(name)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let printed = &output.stdout;
        // An argument that is not UTF-8 is made absolute.
        let end = &shown[2..];
        assert!(printed.ends_with(end), "{}", printed.escape_ascii());
        assert_eq!(printed.starts_with(b"\\"), end.contains(&b'\\'));
    }
}
