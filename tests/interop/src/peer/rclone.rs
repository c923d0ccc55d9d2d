//! rclone.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// rclone as a client of an FTP server.
#[derive(Debug, Clone)]
pub struct Rclone {
    program: PathBuf,
    /// The server, as a remote without a name in a configuration.
    remote: String,
}

impl Rclone {
    /// Finds the program.
    pub fn find() -> Result<PathBuf, String> {
        find_installed("rclone")
    }

    /// The program with anonymous sessions at this server.
    pub fn with_server(program: PathBuf, server: SocketAddr) -> Result<Self> {
        // It takes a password only in its own disguise.
        let disguised = run::run(client_command(&program).args(["obscure", "anonymous@"]))?;
        let password = disguised.expect_success()?.stdout_text();
        let remote = format!(
            ":ftp,host={},port={},user=anonymous,pass={}:",
            server.ip(),
            server.port(),
            password.trim()
        );
        Ok(Self { program, remote })
    }

    /// The remote path of a served one.
    #[must_use]
    pub fn remote(&self, served: &str) -> String {
        format!("{}{served}", self.remote)
    }

    /// Runs a command with its defaults, but once: what fails is not tried again as a whole. An error contains what it said.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<FinishedProgram> {
        let mut command = client_command(&self.program);
        // It has no configuration, and says so.
        command.args(["--config", "", "--retries", "1", "-v"]);
        run::run(command.args(arguments))?.expect_success()
    }
}
