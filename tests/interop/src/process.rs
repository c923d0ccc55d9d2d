//! Child processes that are killed when their value is dropped.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::run;

/// A child in its own process group; the whole group is killed on drop.
#[derive(Debug)]
pub struct ProcessGuard {
    child: Child,
}

impl ProcessGuard {
    /// Starts `command` as the leader of a new process group.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        // A group of its own, so that `kill` also ends the children of servers that fork.
        command.process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start: {}", run::command_line(command)))?;
        Ok(Self { child })
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Process ID, which is also the ID of the group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the child alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid(), signal).context("cannot signal a child")
    }

    /// Kills the whole group with SIGKILL and reaps the child.
    pub fn kill(&mut self) {
        // Both fail only if the child has ended already.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Waits for the end of the child, at most `limit`; `None` if it is still running.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(4));
        }
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server process. Its output goes to files, so that it never blocks on a full pipe.
#[derive(Debug)]
pub struct ServerProcess {
    guard: ProcessGuard,
    stdout: PathBuf,
    stderr: PathBuf,
    line: String,
}

impl ServerProcess {
    /// Starts `command`, with its output in `NAME.out` and `NAME.err` in `folder`.
    pub fn spawn(command: &mut Command, folder: &Path, name: &str) -> Result<Self> {
        let stdout = folder.join(format!("{name}.out"));
        let stderr = folder.join(format!("{name}.err"));
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("cannot create {}", path.display()))
        };
        command
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?);
        let line = run::command_line(command);
        Ok(Self {
            guard: ProcessGuard::spawn(command)?,
            stdout,
            stderr,
            line,
        })
    }

    /// Polls `ready` until it returns a value. Fails if the process ends first or at the time limit.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            // The process state is read before its output, so that the last output is not missed.
            let ended = self.guard.wait(Duration::ZERO)?;
            if let Some(value) = ready(&self.output()) {
                return Ok(value);
            }
            if let Some(status) = ended {
                bail!(
                    "ended with {status} before {what}: {}\n{}",
                    self.line,
                    self.log()
                );
            }
            if Instant::now() >= deadline {
                bail!(
                    "no {what} within {} s: {}\n{}",
                    limit.as_secs(),
                    self.line,
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    /// Standard error so far.
    #[must_use]
    pub fn messages(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// Both outputs so far, shortened, for error messages.
    #[must_use]
    pub fn log(&self) -> String {
        let stdout = std::fs::read(&self.stdout).unwrap_or_default();
        let stderr = std::fs::read(&self.stderr).unwrap_or_default();
        format!(
            "  stdout: {}\n  stderr: {}",
            run::excerpt(&stdout),
            run::excerpt(&stderr)
        )
    }

    /// Process ID.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.guard.pid()
    }

    /// The process.
    pub fn guard(&mut self) -> &mut ProcessGuard {
        &mut self.guard
    }
}
