//! globus-url-copy (Grid Community Toolkit).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{client, installed};
use crate::run::{self, Finished};

/// The client.
#[derive(Debug, Clone)]
pub struct GlobusUrlCopy(PathBuf);

impl GlobusUrlCopy {
    /// The installed program.
    pub fn find() -> Result<Self, String> {
        installed("globus-url-copy").map(Self)
    }

    /// The program with the dialogue shown on standard error, without other arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = client(&self.0);
        command.arg("-dbg");
        command
    }

    /// Copies with these options; an error shows the dialogue.
    pub fn copy<S: AsRef<OsStr>>(&self, options: &[S], from: &str, to: &str) -> Result<Finished> {
        run::run(self.command().args(options).args([from, to]))?.success()
    }
}

/// The `file:` URL of a local path.
#[must_use]
pub fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}
