//! lftp.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// lftp as a client.
#[derive(Debug, Clone)]
pub struct Lftp(PathBuf);

impl Lftp {
    /// Finds the program.
    pub fn find() -> Result<Self, String> {
        find_installed("lftp").map(Self)
    }

    /// Runs lftp commands in an anonymous session. An error contains the control connection.
    pub fn script(&self, server: SocketAddr, commands: &str) -> Result<FinishedProgram> {
        self.script_at(&format!("ftp://{server}"), commands)
    }

    /// Runs lftp commands in the session of a URL.
    pub fn script_at(&self, url: &str, commands: &str) -> Result<FinishedProgram> {
        // Without these settings lftp retries for hours and continues after a failed command.
        let script = format!(
            "set net:timeout 20; set net:max-retries 1; set cmd:fail-exit yes; \
             set xfer:clobber yes; {commands}; bye"
        );
        let finished =
            run::run(client_command(&self.0).args(["--norc", "-d", "-e", &script, url]))?
                .expect_success()?;
        // lftp exits with 0 after some failed transfers of a mirror.
        let errors = finished.stderr_text();
        ensure!(!errors.contains("Fatal error"), "{finished}");
        Ok(finished)
    }
}
