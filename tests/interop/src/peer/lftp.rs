//! lftp.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// The client.
#[derive(Debug, Clone)]
pub struct Lftp(PathBuf);

impl Lftp {
    /// The installed program.
    pub fn find() -> Result<Self, String> {
        find_installed("lftp").map(Self)
    }

    /// Runs lftp commands on an anonymous session; an error shows the dialogue.
    pub fn script(&self, server: SocketAddr, commands: &str) -> Result<FinishedProgram> {
        let script = format!(
            "set net:timeout 20; set net:max-retries 1; set cmd:fail-exit yes; \
             set xfer:clobber yes; {commands}; bye"
        );
        let url = format!("ftp://{server}");
        let finished =
            run::run(client_command(&self.0).args(["--norc", "-d", "-e", &script, &url]))?
                .expect_success()?;
        // lftp ends with 0 after some failed transfers of a mirror.
        let errors = finished.stderr_text();
        ensure!(!errors.contains("Fatal error"), "{finished}");
        Ok(finished)
    }
}
