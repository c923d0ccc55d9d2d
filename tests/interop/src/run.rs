//! Runs a program to its end, with a time limit, and keeps its output.

use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::ProcessGuard;

/// Default time limit, enough for 100 MB with a debug build on a busy machine with two cores.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Length of the excerpt of each output in error messages, bytes.
const EXCERPT_LENGTH: usize = 6_000;

/// A program that has ended.
#[derive(Debug)]
pub struct FinishedProgram {
    /// The command line, for error messages.
    pub command: String,
    /// Exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Elapsed time.
    pub elapsed: Duration,
}

impl FinishedProgram {
    /// Returns itself if the exit code is `code`, otherwise an error with the output.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(
            self.code == Some(code),
            "wanted exit code {code}, got {self}"
        );
        Ok(self)
    }

    /// Returns itself if the exit code is 0, otherwise an error with the output.
    pub fn expect_success(self) -> Result<Self> {
        self.expect_code(0)
    }

    /// Returns itself if the exit code is not 0, otherwise an error with the output.
    pub fn expect_failure(self) -> Result<Self> {
        ensure!(self.code != Some(0), "wanted a failure, got {self}");
        Ok(self)
    }

    /// Standard output as text.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Display for FinishedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "exit code {code}")?,
            None => write!(f, "killed by a signal")?,
        }
        writeln!(
            f,
            " after {:.2} s of: {}",
            self.elapsed.as_secs_f64(),
            self.command
        )?;
        writeln!(f, "  stdout: {}", excerpt(&self.stdout))?;
        write!(f, "  stderr: {}", excerpt(&self.stderr))
    }
}

/// The end of an output as text; programs usually print the important part last.
#[must_use]
pub fn excerpt(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(EXCERPT_LENGTH);
    let text = String::from_utf8_lossy(&bytes[start..]);
    let text = text.trim_end().replace('\n', "\n    ");
    if start > 0 {
        format!("[...]{text}")
    } else {
        text
    }
}

/// Runs `command` without input; fails if it cannot be started or exceeds [`LIMIT`].
pub fn run(command: &mut Command) -> Result<FinishedProgram> {
    run_within(command, LIMIT)
}

/// Like [`run`], with another time limit.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<FinishedProgram> {
    run_with_input(command, &[], limit)
}

/// Like [`run_within`], with `input` on standard input.
pub fn run_with_input(
    command: &mut Command,
    input: &[u8],
    limit: Duration,
) -> Result<FinishedProgram> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    });
    let line = command_line(command);
    let start = Instant::now();
    let mut guard = ProcessGuard::spawn(command)?;
    // Both pipes are read in threads: a program that fills one of them would block.
    let stdout = collect(guard.child().stdout.take());
    let stderr = collect(guard.child().stderr.take());
    if let Some(mut pipe) = guard.child().stdin.take() {
        use std::io::Write;
        // The write fails if the program ends without reading; its standard error says why.
        let _ = pipe.write_all(input);
    }
    let status = guard
        .wait(limit)
        .with_context(|| format!("waiting for: {line}"))?;
    let elapsed = start.elapsed();
    if status.is_none() {
        drop(guard);
        let (stdout, stderr) = (take(stdout), take(stderr));
        bail!(
            "no end within {} s of: {line}\n  stdout: {}\n  stderr: {}",
            limit.as_secs(),
            excerpt(&stdout),
            excerpt(&stderr)
        );
    }
    Ok(FinishedProgram {
        command: line,
        code: status.and_then(|status| status.code()),
        stdout: take(stdout),
        stderr: take(stderr),
        elapsed,
    })
}

/// The command line as text, without quotes.
#[must_use]
pub fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After a read error the bytes so far are the output.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn take(collector: JoinHandle<Vec<u8>>) -> Vec<u8> {
    collector.join().unwrap_or_default()
}
