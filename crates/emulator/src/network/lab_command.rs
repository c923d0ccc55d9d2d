//! The user's command: starts it in its own PID namespace, waits for it, and ends it if necessary.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::lab_lock::LabLock;
use crate::init::{InitOrders, TERMINATION_GRACE};
use crate::machine_settings::SysctlChanges;
use crate::namespace::HostNamespace;
use crate::signals::CaughtSignals;
use crate::{LabError, exec, privilege};

/// Time for the first process of the namespace to end all others.
const NAMESPACE_END_LIMIT: Duration = TERMINATION_GRACE.saturating_add(Duration::from_secs(2));

/// Parameters for starting the command.
pub(super) struct CommandStart<'a> {
    /// Path of this program, which runs again as the first process of the namespace.
    pub(super) program: PathBuf,
    /// The words that make it the first process.
    pub(super) first_process: &'a [&'a str],
    pub(super) command: &'a [OsString],
    pub(super) environment: Vec<(String, OsString)>,
    pub(super) namespaces: &'a [HostNamespace],
    pub(super) changes: &'a SysctlChanges,
}

/// A running command. Dropping it ends the command and all processes that it started.
pub(super) struct RunningCommand {
    child: Child,
    /// The only write end of a pipe. End of file on the read end tells the first process to end.
    lifeline: Option<OwnedFd>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommandExit {
    /// Exit code; 128 + N if signal N ended the command or the lab.
    pub(super) code: u8,
    /// The signal that ended the lab.
    pub(super) signal: Option<u8>,
}

impl CommandStart<'_> {
    /// Starts the command. All its processes inherit the lock.
    ///
    /// # Errors
    /// [`LabError::Refused`]: the system allows no PID namespace; [`LabError::NotFound`]: this
    /// program's file does not exist any more.
    pub(super) fn start(self, lock: &LabLock) -> Result<RunningCommand, LabError> {
        let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| LabError::system("cannot make a pipe", e))?;
        let plan = InitOrders {
            lifeline: inheritable(&reading)?,
            namespaces: self
                .namespaces
                .iter()
                .map(|n| Ok((n.host.clone(), inheritable(&n.file)?)))
                .collect::<Result<_, LabError>>()?,
            changes: self.changes.clone(),
        };
        // From here on the command's processes hold the lock, even if this process is killed.
        lock.let_children_inherit()?;
        let plan = serde_json::to_string(&plan)
            .map_err(|e| LabError::system("cannot serialise the lab", std::io::Error::from(e)))?;
        let mut init = Command::new(&self.program);
        init.args(self.first_process)
            .arg(plan)
            .args(self.command)
            .envs(self.environment);
        Ok(RunningCommand {
            child: spawn_first(init)?,
            lifeline: Some(writing),
        })
    }
}

impl RunningCommand {
    /// Waits until the command ends. A signal to the lab ends the command.
    ///
    /// # Errors
    /// Waiting failed.
    pub(super) fn wait(mut self, signals: &CaughtSignals) -> Result<CommandExit, LabError> {
        let failed = |e| LabError::system("cannot wait for the command", e);
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())
            .map_err(|e| failed(e.into()))?;
        let mut ending: Option<(u8, Instant)> = None;
        let status = loop {
            let left = ending.map(|(_, since)| NAMESPACE_END_LIMIT.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) {
                // The first process did not end in time. SIGKILL ends it, and with it the whole
                // namespace.
                self.child.kill().map_err(failed)?;
                break self.child.wait().map_err(failed)?;
            }
            wait_readable(&process, signals, left).map_err(failed)?;
            if let Some(signal) = signals.next_signal() {
                // Only the first signal counts; a second Ctrl-C must not extend the grace time.
                ending.get_or_insert((signal, Instant::now()));
                self.lifeline = None;
            }
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                break status;
            }
        };
        let signal = ending.map(|(signal, _)| signal);
        Ok(CommandExit {
            code: signal.map_or_else(|| exit_code(status), |signal| 128 + signal),
            signal,
        })
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.lifeline = None;
        // After `wait` the child has ended, and both calls do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clears close-on-exec, so that processes started later inherit the descriptor. Returns its number,
/// which is the same in those processes.
fn inheritable(descriptor: &impl AsFd) -> Result<i32, LabError> {
    let descriptor = descriptor.as_fd();
    fcntl_setfd(descriptor, FdFlags::empty())
        .map_err(|e| LabError::system("cannot pass on a descriptor", e))?;
    Ok(descriptor.as_raw_fd())
}

/// Starts the first process of a new PID namespace. After unshare(2) with CLONE_NEWPID a thread starts
/// its children in the new namespace and cannot create threads, so a separate thread does this.
fn spawn_first(mut command: Command) -> Result<Child, LabError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("process namespace".into())
            .spawn_scoped(scope, || {
                unshare(CloneFlags::CLONE_NEWPID).map_err(|e| {
                    privilege::no_namespace("process", "user.max_pid_namespaces", e)
                })?;
                let program = command.get_program().to_owned();
                command.spawn().map_err(|e| exec::start_error(&program, &e))
            })
            .map_err(|e| LabError::system("cannot start a thread", e))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn wait_readable(
    process: &OwnedFd,
    signals: &CaughtSignals,
    longest: Option<Duration>,
) -> std::io::Result<()> {
    let mut sources = [
        PollFd::new(process, PollFlags::IN),
        PollFd::new(signals, PollFlags::IN),
    ];
    let longest = longest.and_then(|time| Timespec::try_from(time).ok());
    // A pidfd is readable when the process has ended (pidfd_open(2)), so no SIGCHLD is needed.
    match poll(&mut sources, longest.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or_default()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_of_a_signal_is_128_plus_its_number() {
        // As wait(2) encodes them: the exit code in the second byte, the signal in the first.
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn inheritable_clears_close_on_exec() {
        let (reading, _writing) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let number = inheritable(&reading).unwrap();
        assert_eq!(number, reading.as_raw_fd());
        let flags = rustix::io::fcntl_getfd(&reading).unwrap();
        assert!(!flags.contains(FdFlags::CLOEXEC));
    }
}
