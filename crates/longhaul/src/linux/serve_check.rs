//! `longhaul serve --check`: whether the server could start.

use std::path::Path;
use std::process::Command;

use command_line::programs::find_program_of;
use copy::Exit;
use server::config::ServerConfig;

use crate::output::{print_line, print_to_stderr};

/// Checks settings, prints what is wrong or hardly meant, and returns the exit code.
pub(crate) fn check(config: &ServerConfig) -> Exit {
    match problem(config) {
        Ok(()) => {
            // The exit code says the same.
            let _ = print_line("the settings can be used");
            Exit::Done
        }
        Err(problem) => {
            print_to_stderr(&format!("longhaul serve: {problem}"));
            Exit::Usage
        }
    }
}

fn problem(config: &ServerConfig) -> Result<(), String> {
    if let Some(path) = &config.advisor {
        check_advisor(path)?;
    }
    for warning in server::check(config).map_err(|error| error.to_string())? {
        print_to_stderr(&format!("longhaul serve: warning: {warning}"));
    }
    Ok(())
}

/// Has the advice service check its settings file.
fn check_advisor(settings: &Path) -> Result<(), String> {
    let program = find_program_of("advisor")?;
    let checked = Command::new(&program).arg("check").arg(settings).output();
    let checked =
        checked.map_err(|error| format!("cannot execute {}: {error}", program.display()))?;
    match checked.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&checked.stderr).trim().to_owned()),
    }
}
