//! Runs `longhaul cp`.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::binary::longhaul;
use crate::pki::environment::GridEnvironment;
use crate::run::{self, FinishedProgram};

/// A `longhaul cp --json` command with these arguments.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Command> {
    let mut command = longhaul()?;
    command.args(["cp", "--json"]).args(arguments);
    Ok(command)
}

/// A command as [`command`] makes it, with these credentials.
pub fn command_in<S: AsRef<OsStr>>(
    environment: &GridEnvironment,
    arguments: &[S],
) -> Result<Command> {
    let mut command = command(arguments)?;
    environment.apply(&mut command);
    Ok(command)
}

/// Runs a copy; fails unless the exit code is 0 and the summary reports no failed file.
pub fn cp<S: AsRef<OsStr>>(arguments: &[S]) -> Result<CpSummary> {
    cp_in(&GridEnvironment::default(), arguments)
}

/// Like [`cp`], with these credentials.
pub fn cp_in<S: AsRef<OsStr>>(environment: &GridEnvironment, arguments: &[S]) -> Result<CpSummary> {
    let finished = run_in(environment, arguments)?.expect_success()?;
    let summary = summary(&finished)?;
    ensure!(
        summary.failed == 0,
        "exit code 0 but {} failed: {finished}",
        summary.failed
    );
    Ok(summary)
}

/// Runs a copy to its end, successful or not.
pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Result<FinishedProgram> {
    run_in(&GridEnvironment::default(), arguments)
}

/// Like [`run()`], with these credentials.
pub fn run_in<S: AsRef<OsStr>>(
    environment: &GridEnvironment,
    arguments: &[S],
) -> Result<FinishedProgram> {
    run::run(&mut command_in(environment, arguments)?)
}

/// Fields of the summary line that the tests read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpSummary {
    /// Bytes moved in this run.
    pub bytes: u64,
    /// Files copied.
    pub files: u64,
    /// Files failed.
    pub failed: u64,
    /// Maximum number of data connections at the same time.
    pub streams: u64,
    /// How the copy was verified.
    pub verified: String,
    /// Who sized the socket buffers.
    pub buffer: String,
}

/// Parses the last line of `--json`, which is always the summary.
pub fn summary(finished: &FinishedProgram) -> Result<CpSummary> {
    let text = finished.stdout_text();
    let last = text
        .lines()
        .last()
        .with_context(|| format!("no JSON from {finished}"))?;
    let value: Value = serde_json::from_str(last).with_context(|| format!("not JSON: {last}"))?;
    ensure!(
        value["event"] == "summary",
        "the last line is not a summary: {last}"
    );
    let number = |name: &str| {
        value[name]
            .as_u64()
            .with_context(|| format!("no number {name:?} in {last}"))
    };
    Ok(CpSummary {
        bytes: number("bytes")?,
        files: number("files")?,
        failed: number("failed")?,
        streams: number("streams_max")?,
        verified: value["verified"].as_str().unwrap_or_default().to_owned(),
        buffer: value["buffer"].as_str().unwrap_or_default().to_owned(),
    })
}

/// The messages on standard error. Lines about progress, of which a slow machine has more, and the summary are none.
#[must_use]
pub fn messages(finished: &FinishedProgram) -> Vec<String> {
    let text = finished.stderr_text();
    let messages = text.lines().filter(|line| line.starts_with("longhaul: "));
    messages.map(str::to_owned).collect()
}

/// The warnings of a copy.
#[must_use]
pub fn warnings(finished: &FinishedProgram) -> Vec<String> {
    let text = finished.stdout_text();
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    events
        .filter(|event: &Value| event["event"] == "warning")
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .collect()
}

/// The error message in the summary of a failed copy.
#[must_use]
pub fn failure_message(finished: &FinishedProgram) -> Option<String> {
    let text = finished.stdout_text();
    let value: Value = serde_json::from_str(text.lines().last()?).ok()?;
    value["error"].as_str().map(str::to_owned)
}
