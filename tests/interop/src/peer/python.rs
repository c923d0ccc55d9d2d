//! Debian's Python. It has Debian's modules, which another Python on the path may lack.

use std::path::PathBuf;
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

/// Path of the interpreter, if it can import `module`.
pub fn with_module(module: &str) -> Result<PathBuf, String> {
    let status = Command::new(PYTHON)
        .args(["-c", &format!("import {module}")])
        .output();
    match status {
        Ok(output) if output.status.success() => Ok(PYTHON.into()),
        Ok(_) => Err(format!(
            "{PYTHON} has no module {module}; run tests/install-peers"
        )),
        Err(error) => Err(format!("cannot run {PYTHON}: {error}")),
    }
}
