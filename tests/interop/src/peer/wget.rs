//! wget.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// wget as a client.
#[derive(Debug, Clone)]
pub struct Wget(PathBuf);

impl Wget {
    /// Finds the program.
    pub fn find() -> Result<Self, String> {
        find_installed("wget").map(Self)
    }

    /// Runs wget; it prints the control connection on standard error.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<FinishedProgram> {
        let mut command = client_command(&self.0);
        command.args([
            "--no-config",
            "--debug",
            "--tries=1",
            "--timeout=20",
            "--progress=dot:giga",
        ]);
        run::run(command.args(arguments))?.expect_success()
    }
}
