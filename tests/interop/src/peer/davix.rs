//! The davix commands, the reference client of WLCG's HTTP third-party copies.

use std::ffi::OsStr;

use anyhow::Result;

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// The davix commands.
#[derive(Debug, Clone, Copy)]
pub struct Davix(());

impl Davix {
    /// Finds the commands.
    pub fn find() -> Result<Self, String> {
        for verb in ["cp", "get", "ls", "put"] {
            find_installed(&format!("davix-{verb}"))?;
        }
        Ok(Self(()))
    }

    /// Runs `davix-VERB`. Its `dav:` URLs are `http:`: XRootD 5.5 takes no others in the header of a copy.
    pub fn run<S: AsRef<OsStr>>(self, verb: &str, arguments: &[S]) -> Result<FinishedProgram> {
        let program = find_installed(&format!("davix-{verb}")).map_err(anyhow::Error::msg)?;
        run::run(client_command(&program).args(arguments))?.expect_success()
    }
}
