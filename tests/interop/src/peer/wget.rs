//! wget.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;

use super::{client, installed};
use crate::run::{self, Finished};

/// The client.
#[derive(Debug, Clone)]
pub struct Wget(PathBuf);

impl Wget {
    /// The installed program.
    pub fn find() -> Result<Self, String> {
        installed("wget").map(Self)
    }

    /// Runs wget with the dialogue on standard error.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Finished> {
        let mut command = client(&self.0);
        command.args([
            "--no-config",
            "--debug",
            "--tries=1",
            "--timeout=20",
            "--progress=dot:giga",
        ]);
        run::run(command.args(arguments))?.success()
    }
}
