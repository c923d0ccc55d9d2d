//! Copies that tests watch or kill while they run.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use crate::process::ProcessGuard;
use crate::run::{LIMIT, command_line};

/// Interval of progress events.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// A running `longhaul cp --json` whose progress is watched.
#[derive(Debug)]
pub struct RunningCopy {
    guard: ProcessGuard,
    line: String,
    /// Time and safe bytes of each progress event.
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
        let events = Arc::clone(&safe);
        // The pipe must be read all the time, or the copy blocks when it is full.
        std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&text).unwrap_or_default();
                if let (true, Some(bytes)) = (event["event"] == "progress", event["safe"].as_u64())
                    && let Ok(mut events) = events.lock()
                {
                    events.push((Instant::now(), bytes));
                }
            }
        });
        Ok(Self { guard, line, safe })
    }

    /// Maximum number of bytes reported as safe up to this moment.
    #[must_use]
    pub fn safe_at(&self, moment: Instant) -> u64 {
        let Ok(events) = self.safe.lock() else {
            return 0;
        };
        events
            .iter()
            .filter(|(at, _)| *at <= moment)
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0)
    }

    /// Maximum number of bytes reported as safe at least `lag` before a moment. The events of that time
    /// must have followed as well, because a process that was not scheduled did not write its journal.
    #[must_use]
    pub fn safe_before(&self, moment: Instant, lag: Duration) -> u64 {
        let Ok(events) = self.safe.lock() else {
            return 0;
        };
        let since = lag.as_millis() / PROGRESS_PERIOD.as_millis();
        let before: Vec<_> = events.iter().filter(|(at, _)| *at <= moment).collect();
        let old = before
            .iter()
            .rev()
            .skip(usize::try_from(since).unwrap_or(usize::MAX));
        old.filter(|(at, _)| *at + lag <= moment)
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0)
    }

    /// Waits until this many bytes are safe; fails if the copy ends before.
    pub fn wait_until_safe(&mut self, bytes: u64) -> Result<()> {
        self.wait_until_safe_for(bytes, Duration::ZERO)
    }

    /// Waits until this many bytes have been safe for a time; fails if the copy ends before.
    fn wait_until_safe_for(&mut self, bytes: u64, lag: Duration) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.safe_before(Instant::now(), lag) < bytes {
            // Polling the process also limits the rate of this loop.
            if let Some(status) = self.guard.wait(Duration::from_millis(20))? {
                bail!(
                    "ended with {status} before {bytes} bytes were safe: {}",
                    self.line
                );
            }
            if Instant::now() > deadline {
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

    /// Sends a signal to the copy.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.guard.signal(signal)
    }

    /// Kills the copy with SIGKILL.
    pub fn kill(&mut self) {
        self.guard.kill();
    }

    /// Waits until the copy ends by itself.
    pub fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let ended = self.guard.wait(LIMIT)?;
        ended.with_context(|| format!("no end within {} s: {}", LIMIT.as_secs(), self.line))
    }
}

/// Starts a copy and kills it when this many bytes have been safe for a time. Returns the number of bytes
/// that had been safe for that time.
pub fn kill_when_safe(command: Command, bytes: u64, lag: Duration) -> Result<u64> {
    let mut copy = RunningCopy::start(command)?;
    copy.wait_until_safe_for(bytes, lag)?;
    let killed = Instant::now();
    copy.kill();
    Ok(copy.safe_before(killed, lag))
}
