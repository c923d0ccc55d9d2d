//! globus-url-copy (Grid Community Toolkit).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{client_command, find_installed};
use crate::pki::environment::GridEnvironment;
use crate::run::{self, FinishedProgram};

/// The options by which it chooses how data connections are protected: first with one stream, the last four
/// with four streams.
pub const GSI_PROTECTION: [&[&str]; 9] = [
    &[],
    &["-nodcau"],
    &["-dcsafe"],
    &["-dcpriv"],
    &["-data-cred", "auto"],
    &["-p", "4"],
    &["-dcpriv", "-p", "4"],
    &["-dcsafe", "-p", "4"],
    &["-fast", "-dcpriv", "-p", "4"],
];

/// globus-url-copy as a client.
#[derive(Debug, Clone)]
pub struct GlobusUrlCopy {
    program: PathBuf,
    environment: GridEnvironment,
}

impl GlobusUrlCopy {
    /// Finds the program.
    pub fn find() -> Result<Self, String> {
        Ok(Self {
            program: find_installed("globus-url-copy")?,
            environment: GridEnvironment::default(),
        })
    }

    /// The same client with these credentials.
    #[must_use]
    pub fn with(&self, environment: GridEnvironment) -> Self {
        let program = self.program.clone();
        Self {
            program,
            environment,
        }
    }

    /// A command that prints the control connection on standard error, still without other arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = client_command(&self.program);
        self.environment.apply(&mut command);
        command.arg("-dbg");
        command
    }

    /// Copies with these options. An error contains the control connection.
    pub fn copy<S: AsRef<OsStr>>(
        &self,
        options: &[S],
        from: &str,
        to: &str,
    ) -> Result<FinishedProgram> {
        run::run(self.command().args(options).args([from, to]))?.expect_success()
    }
}

/// The `file:` URL of a local path.
#[must_use]
pub fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}
