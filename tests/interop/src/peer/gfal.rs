//! The gfal2 commands with their GridFTP plug-in.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;

use super::{client_command, find_installed, python};
use crate::pki::environment::GridEnvironment;
use crate::run::{self, FinishedProgram};

/// The gfal2 commands.
#[derive(Debug, Clone)]
pub struct Gfal {
    python: PathBuf,
    environment: GridEnvironment,
}

impl Gfal {
    /// Finds the commands and the Python for them.
    pub fn find() -> Result<Self, String> {
        find_installed("gfal-copy")?;
        Ok(Self {
            python: python::with_module("gfal2")?,
            environment: GridEnvironment::default(),
        })
    }

    /// The same commands with these credentials.
    #[must_use]
    pub fn with(&self, environment: GridEnvironment) -> Self {
        let python = self.python.clone();
        Self {
            python,
            environment,
        }
    }

    /// Runs `gfal-VERB`. One that is killed runs once more: on a busy machine its threads sometimes free memory twice when
    /// the work is done (`free(): invalid pointer`), with any server.
    pub fn run<S: AsRef<OsStr>>(&self, verb: &str, arguments: &[S]) -> Result<FinishedProgram> {
        let finished = self.run_once(verb, &[], arguments)?;
        if finished.code.is_some() {
            return finished.expect_success();
        }
        eprintln!("once more, after: {finished}");
        // The file is there already.
        let replace: &[&str] = if verb == "copy" { &["-f"] } else { &[] };
        self.run_once(verb, replace, arguments)?.expect_success()
    }

    fn run_once<S: AsRef<OsStr>>(
        &self,
        verb: &str,
        options: &[&str],
        arguments: &[S],
    ) -> Result<FinishedProgram> {
        let program = find_installed(&format!("gfal-{verb}")).map_err(anyhow::Error::msg)?;
        let mut command = client_command(&program);
        self.environment.apply(&mut command);
        command.env("GFAL_PYTHONBIN", &self.python);
        run::run(command.args(options).args(arguments))
    }
}
