//! Finds the `longhaul` binary, and builds it if necessary.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::run;

/// Time limit of a build, enough for a first build on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// A command that runs longhaul, still without arguments. It keeps no journals of batches in the user's state, and reads
/// no configuration.
pub fn longhaul() -> Result<Command> {
    let mut command = Command::new(path()?);
    command.env("LONGHAUL_BATCHES", "off");
    command.env("LONGHAUL_CONFIG", "off");
    Ok(command)
}

/// Path of the binary: `$LONGHAUL_BIN`, or the `longhaul` of the same profile as the running test
/// program. Each test program builds that one once with cargo.
pub fn path() -> Result<PathBuf> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PATH.get_or_init(|| find().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(|message| anyhow!(message))
}

fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LONGHAUL_BIN").map(PathBuf::from) {
        ensure!(
            path.is_file(),
            "LONGHAUL_BIN names no file: {}",
            path.display()
        );
        return Ok(path);
    }
    let profile = profile_folder()?;
    let target = target_folder()?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .args(["build", "--quiet", "--package", "longhaul"])
        // The programs of `longhaul advisor`, `longhaul lab` and `longhaul queue` must be of the same build.
        .args(["--package", "longhaul-advisor", "--package", "longhaul-lab"])
        .args(["--package", "longhaul-queue"])
        .arg("--target-dir")
        .arg(target);
    if profile.file_name().is_some_and(|name| name == "release") {
        build.arg("--release");
    }
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    // Test programs may build at the same time: cargo's lock serialises them.
    run::run_within(&mut build, BUILD_LIMIT)?.expect_success()?;
    let binary = profile.join("longhaul");
    ensure!(binary.is_file(), "cargo built no {}", binary.display());
    Ok(binary)
}

/// Cargo's target folder.
pub fn target_folder() -> Result<PathBuf> {
    let profile = profile_folder()?;
    Ok(profile
        .parent()
        .context("profile folder without parent")?
        .to_owned())
}

/// TARGET/PROFILE, derived from the path of this test program, TARGET/PROFILE/deps/PROGRAM.
fn profile_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of this test program")?;
    Ok(program
        .ancestors()
        .nth(2)
        .context("test program outside a target folder")?
        .to_owned())
}
