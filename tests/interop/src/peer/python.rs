//! Debian's Python, which has Debian's modules whatever other Python comes first on the path.

use std::path::PathBuf;
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

/// The interpreter, when it can import `module`.
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
