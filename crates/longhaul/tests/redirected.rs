//! Standard input and output redirected to files. They are read and written at their current offset,
//! because other programs use them before and after.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn cp(from: &Path, to: &Path, stdin: Stdio, stdout: Stdio) {
    let status = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "-q"])
        .args([from, to])
        .stdin(stdin)
        .stdout(stdout)
        .status()
        .unwrap();
    assert!(status.success(), "{from:?} {to:?}: {status}");
}

#[test]
fn a_copy_to_standard_output_starts_at_its_current_offset() {
    let dir = tempfile::tempdir().unwrap();
    let (source, all) = (dir.path().join("f"), dir.path().join("all"));
    std::fs::write(&source, "copied\n").unwrap();
    for options in [
        OpenOptions::new().write(true),
        OpenOptions::new().append(true),
    ] {
        let mut out = options.create(true).open(&all).unwrap();
        out.set_len(0).unwrap();
        out.write_all(b"before\n").unwrap();
        for _ in 0..2 {
            let stdout = out.try_clone().unwrap();
            cp(&source, Path::new("-"), Stdio::null(), stdout.into());
        }
        out.write_all(b"after\n").unwrap();
        let all = std::fs::read_to_string(&all).unwrap();
        assert_eq!(all, "before\ncopied\ncopied\nafter\n");
    }
}

#[test]
fn a_copy_of_standard_input_starts_at_its_current_offset() {
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("f"), dir.path().join("copy"));
    std::fs::write(&source, "header\nrest").unwrap();
    let mut input = File::open(&source).unwrap();
    input.read_exact(&mut [0; 7]).unwrap();
    let stdin = input.try_clone().unwrap();
    cp(Path::new("-"), &copy, stdin.into(), Stdio::null());
    assert_eq!(std::fs::read(&copy).unwrap(), b"rest");
    assert_eq!(input.stream_position().unwrap(), 11);
}

#[test]
fn a_file_in_proc_with_size_0_is_copied_completely() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let source = Path::new("/proc/version");
    cp(source, &copy, Stdio::null(), Stdio::null());
    assert_eq!(
        std::fs::read(&copy).unwrap(),
        std::fs::read(source).unwrap()
    );
}
