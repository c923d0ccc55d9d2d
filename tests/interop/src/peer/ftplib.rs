//! Python's ftplib.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::python;
use crate::run::{self, FinishedProgram};

/// Connects and logs in `f` anonymously, and prints the control connection on standard output.
const PROLOGUE: &str = "
import ftplib, io, sys
f = ftplib.FTP(timeout=20, encoding='utf-8')
f.set_debuglevel(1)
f.connect(sys.argv[1], int(sys.argv[2]))
f.login()
args = sys.argv[3:]
";

/// ftplib as a client.
#[derive(Debug, Clone)]
pub struct Ftplib(PathBuf);

impl Ftplib {
    /// Finds Debian's Python.
    pub fn find() -> Result<Self, String> {
        python::with_module("ftplib").map(Self)
    }

    /// Runs a script with the anonymous session `f` and `args`. Failed assertions are errors.
    pub fn script(&self, at: SocketAddr, script: &str, args: &[&str]) -> Result<FinishedProgram> {
        let script = format!("{PROLOGUE}{script}\nf.quit()\n");
        let mut command = Command::new(&self.0);
        command
            .args(["-c", &script, &at.ip().to_string(), &at.port().to_string()])
            .args(args);
        run::run(&mut command)?.expect_success()
    }
}
