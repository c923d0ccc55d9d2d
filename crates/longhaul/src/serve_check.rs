//! `longhaul serve --check`: whether the server could start.

use advisor::config::AdvisorConfig;
use client::Exit;
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
        AdvisorConfig::load(path).map_err(|error| error.to_string())?;
    }
    for warning in server::check(config).map_err(|error| error.to_string())? {
        print_to_stderr(&format!("longhaul serve: warning: {warning}"));
    }
    Ok(())
}
