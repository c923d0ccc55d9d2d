//! Copies that are killed on the way.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use crate::process::ProcessGuard;
use crate::run::{LIMIT, command_line};

/// Between two progress events.
const PERIOD: Duration = Duration::from_millis(200);

/// A running `longhaul cp --json` whose progress is watched.
#[derive(Debug)]
pub struct RunningCopy {
    guard: ProcessGuard,
    line: String,
    /// When each progress event came and how many bytes it called safe.
    safe: Arc<Mutex<Vec<(Instant, u64)>>>,
}

impl RunningCopy {
    /// Starts the copy.
    pub fn start(mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let line = command_line(&command);
        let mut guard = ProcessGuard::spawn(&mut command)?;
        let stdout = guard.child().stdout.take().context("no pipe")?;
        let safe = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&safe);
        std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&text).unwrap_or_default();
                if let (true, Some(bytes)) = (event["event"] == "progress", event["safe"].as_u64())
                    && let Ok(mut seen) = seen.lock()
                {
                    seen.push((Instant::now(), bytes));
                }
            }
        });
        Ok(Self { guard, line, safe })
    }

    /// The most bytes that were called safe up to this moment.
    #[must_use]
    pub fn safe_at(&self, moment: Instant) -> u64 {
        let Ok(seen) = self.safe.lock() else { return 0 };
        seen.iter()
            .filter(|(at, _)| *at <= moment)
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0)
    }

    /// The most bytes that were called safe this long before a moment. As many progress events came since
    /// as do in that time: a program that was not scheduled meanwhile was silent, too.
    #[must_use]
    pub fn safe_before(&self, moment: Instant, lag: Duration) -> u64 {
        let Ok(seen) = self.safe.lock() else { return 0 };
        let since = lag.as_millis() / PERIOD.as_millis();
        let before: Vec<_> = seen.iter().filter(|(at, _)| *at <= moment).collect();
        let old = before
            .iter()
            .rev()
            .skip(usize::try_from(since).unwrap_or(usize::MAX));
        old.filter(|(at, _)| *at + lag <= moment)
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0)
    }

    /// Waits until this many bytes are safe; an error if the copy ends before.
    pub fn wait_until_safe(&mut self, bytes: u64) -> Result<()> {
        self.wait_until_safe_for(bytes, Duration::ZERO)
    }

    /// The same until they have been safe for so long.
    fn wait_until_safe_for(&mut self, bytes: u64, lag: Duration) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.safe_before(Instant::now(), lag) < bytes {
            if let Some(status) = self.guard.wait(Duration::from_millis(20))? {
                bail!(
                    "ended with {status} before {bytes} bytes were safe: {}",
                    self.line
                );
            }
            if Instant::now() > end {
                let safe = self.safe_at(Instant::now());
                bail!(
                    "{safe} bytes safe after {} s: {}",
                    LIMIT.as_secs(),
                    self.line
                );
            }
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.guard.signal(signal)
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.guard.kill();
    }

    /// Waits for the end that comes by itself.
    pub fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let ended = self.guard.wait(LIMIT)?;
        ended.with_context(|| format!("no end within {} s: {}", LIMIT.as_secs(), self.line))
    }
}

/// Starts a copy and kills it once this many bytes have been safe for so long; how many had been.
pub fn kill_when_safe(command: Command, bytes: u64, lag: Duration) -> Result<u64> {
    let mut copy = RunningCopy::start(command)?;
    copy.wait_until_safe_for(bytes, lag)?;
    let killed = Instant::now();
    copy.kill();
    Ok(copy.safe_before(killed, lag))
}
