//! curl.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// curl as a client.
#[derive(Debug, Clone)]
pub struct Curl(PathBuf);

impl Curl {
    /// Finds the program.
    pub fn find() -> Result<Self, String> {
        find_installed("curl").map(Self)
    }

    /// Runs curl; it prints the control connection on standard error.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<FinishedProgram> {
        // -q must come first: it disables ~/.curlrc.
        run::run(
            client_command(&self.0)
                .args(["-q", "-sS", "-v", "--globoff"])
                .args(arguments),
        )
    }
}
