//! Runs a program to its end, within a time limit, with everything it said kept.

use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::ProcessGuard;

/// Long enough for 100 MB through a debug build on a busy machine of two cores.
pub const LIMIT: Duration = Duration::from_secs(180);

/// How much of each output an error message repeats, bytes.
const EXCERPT: usize = 6_000;

/// A program that ended.
#[derive(Debug)]
pub struct FinishedProgram {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Wall time.
    pub elapsed: Duration,
}

impl FinishedProgram {
    /// Itself when the program ended with `code`, else an error that shows what it said.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(
            self.code == Some(code),
            "wanted exit code {code}, got {self}"
        );
        Ok(self)
    }

    /// Itself when the program ended with 0.
    pub fn expect_success(self) -> Result<Self> {
        self.expect_code(0)
    }

    /// Itself when the program ended with anything but 0.
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
            None => write!(f, "death by signal")?,
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

/// The end of `bytes` as text: what matters is mostly said last.
#[must_use]
pub fn excerpt(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(EXCERPT);
    let text = String::from_utf8_lossy(&bytes[start..]);
    let text = text.trim_end().replace('\n', "\n    ");
    if start > 0 {
        format!("[...]{text}")
    } else {
        text
    }
}

/// Runs `command` with no input; an error if it cannot be started or outlives [`LIMIT`].
pub fn run(command: &mut Command) -> Result<FinishedProgram> {
    run_within(command, LIMIT)
}

/// As [`run`], with another limit.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<FinishedProgram> {
    run_with_input(command, &[], limit)
}

/// As [`run_within`], with `input` on standard input.
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
    let stdout = collect(guard.child().stdout.take());
    let stderr = collect(guard.child().stderr.take());
    if let Some(mut pipe) = guard.child().stdin.take() {
        use std::io::Write;
        // A program that ends without reading its input says why on standard error.
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

/// The command as one would type it (without quoting).
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
            // A read error is the end of what there is to show.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn take(collector: JoinHandle<Vec<u8>>) -> Vec<u8> {
    collector.join().unwrap_or_default()
}
