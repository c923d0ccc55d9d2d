//! A disk that accepts every write and fails at write-back. The copy must fail, and the file must not get
//! its final name.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::ServeCommand;
use interop::power::machine;
use interop::power::thin_volume::ThinVolume;
use interop::require;
use interop::test_files;

/// Size of the file: more than the backing store, less than the file system, bytes.
const SIZE: u64 = 64 << 20;

fn source(thin: &ThinVolume) -> Result<std::path::PathBuf> {
    let source = thin.scratch().join("source");
    test_files::write(&source, SIZE, 7)?;
    Ok(source)
}

fn refused(copied: &interop::run::FinishedProgram, destination: &Path) -> Result<()> {
    let why = copy::failure_message(copied).context("no reason")?;
    ensure!(
        copied.code == Some(7),
        "exit code {:?} instead of 7: {copied}",
        copied.code
    );
    // After an error of its journal ext4 becomes read-only.
    let disk = ["No space left", "Input/output error", "Read-only file"];
    ensure!(disk.iter().any(|reason| why.contains(reason)), "{why}");
    ensure!(!destination.exists(), "the file has its final name");
    Ok(())
}

#[test]
fn a_get_to_a_full_thin_volume_exits_with_7_and_leaves_no_file() {
    require!(machine::is_supported());
    let thin = ThinVolume::new().unwrap();
    source(&thin).unwrap();
    let server = ServeCommand::anonymous(thin.scratch()).start().unwrap();
    for streams in ["1", "4"] {
        let destination = thin.folder().join("copy");
        let url = server.url("source");
        let copied = copy::run(&["-p", streams, &url, &path_argument(&destination)]).unwrap();
        refused(&copied, &destination).unwrap();
    }
}

#[test]
fn a_local_copy_to_a_full_thin_volume_exits_with_7_and_leaves_no_file() {
    require!(machine::is_supported());
    let thin = ThinVolume::new().unwrap();
    let source = source(&thin).unwrap();
    let destination = thin.folder().join("copy");
    let copied = copy::run(&[path_argument(&source), path_argument(&destination)]).unwrap();
    refused(&copied, &destination).unwrap();
}

#[test]
fn a_put_to_a_full_thin_volume_fails_and_leaves_no_file() {
    require!(machine::is_supported());
    let thin = ThinVolume::new().unwrap();
    let source = source(&thin).unwrap();
    let server = ServeCommand::anonymous(&thin.folder()).start().unwrap();
    for streams in ["1", "4"] {
        let url = server.url("copy");
        let arguments = [
            "-p",
            streams,
            "--retries",
            "0",
            &path_argument(&source),
            &url,
        ];
        let copied = copy::run(&arguments).unwrap();
        assert_ne!(copied.code, Some(0), "{copied}");
        let why = copy::failure_message(&copied).unwrap();
        let disk = ["No space left", "Input/output error", "Read-only file"];
        assert!(disk.iter().any(|reason| why.contains(reason)), "{why}");
        assert!(!thin.folder().join("copy").exists());
    }
}
