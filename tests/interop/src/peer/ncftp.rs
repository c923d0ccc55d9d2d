//! ncftpget, ncftpput and ncftpls.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{client_command, find_installed};
use crate::run::{self, FinishedProgram};

/// The three programs as one client.
#[derive(Debug, Clone)]
pub struct Ncftp {
    get: PathBuf,
    put: PathBuf,
    list: PathBuf,
}

impl Ncftp {
    /// Finds the programs.
    pub fn find() -> Result<Self, String> {
        Ok(Self {
            get: find_installed("ncftpget")?,
            put: find_installed("ncftpput")?,
            list: find_installed("ncftpls")?,
        })
    }

    /// Downloads a file or, with the option `-R`, a tree into the local folder `to`.
    pub fn get(
        &self,
        at: SocketAddr,
        options: &[&str],
        to: &Path,
        served: &str,
    ) -> Result<FinishedProgram> {
        let mut command = session(&self.get, at);
        command
            .args(options)
            .arg(at.ip().to_string())
            .arg(to)
            .arg(format!("/{served}"));
        run::run(&mut command)?.expect_success()
    }

    /// Uploads a file or, with the option `-R`, a tree into the served folder `to`.
    pub fn put(
        &self,
        at: SocketAddr,
        options: &[&str],
        to: &str,
        from: &Path,
    ) -> Result<FinishedProgram> {
        let mut command = session(&self.put, at);
        command
            .args(options)
            .arg(at.ip().to_string())
            .arg(format!("/{to}"))
            .arg(from);
        run::run(&mut command)?.expect_success()
    }

    /// Lists a served folder.
    pub fn list(&self, at: SocketAddr, options: &[&str], served: &str) -> Result<FinishedProgram> {
        let url = format!("ftp://{at}/{served}");
        run::run(session(&self.list, at).args(options).arg(url))?.expect_success()
    }
}

fn session(program: &Path, at: SocketAddr) -> Command {
    let mut command = client_command(program);
    // One attempt (-r) with a timeout (-t), so that a failure ends the test; -d prints the
    // control connection.
    command.args([
        "-P",
        &at.port().to_string(),
        "-r",
        "1",
        "-t",
        "20",
        "-d",
        "stderr",
    ]);
    command
}
