//! The gfal2 commands with their GridFTP plug-in, without security.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;

use super::{client, installed, python};
use crate::run::{self, Finished};

/// The commands.
#[derive(Debug, Clone)]
pub struct Gfal {
    python: PathBuf,
}

impl Gfal {
    /// The installed commands.
    pub fn find() -> Result<Self, String> {
        installed("gfal-copy")?;
        Ok(Self {
            python: python::with_module("gfal2")?,
        })
    }

    /// Runs `gfal-VERB`.
    pub fn run<S: AsRef<OsStr>>(&self, verb: &str, arguments: &[S]) -> Result<Finished> {
        let program = installed(&format!("gfal-{verb}")).map_err(anyhow::Error::msg)?;
        let mut command = client(&program);
        command.env("GFAL_PYTHONBIN", &self.python).args(arguments);
        run::run(&mut command)?.success()
    }
}
