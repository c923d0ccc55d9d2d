//! The first process of a lab's PID namespace.
//!
//! When it ends, the kernel kills every process of the namespace (pid_namespaces(7)). It ends when the
//! command ends, and when the lab ends: the lab holds the only write end of a pipe, the lifeline, which
//! reaches end of file even if the lab was killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::exec::{NAMESPACES_VARIABLE, start_error};
use super::machine_settings::SysctlChanges;
use crate::LabError;

/// Time between SIGTERM and SIGKILL for the processes of the namespace.
pub(super) const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// Parameters from the lab to this process, as JSON in its first argument. Descriptors are inherited.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InitOrders {
    /// The read end of the lifeline.
    pub(super) lifeline: RawFd,
    /// Names and network namespaces of the hosts.
    pub(super) namespaces: Vec<(String, RawFd)>,
    /// Settings to restore if the lab is killed.
    pub(super) changes: SysctlChanges,
}

/// Runs as the first process of a lab's PID namespace ([`NetRequest::first_process`](crate::NetRequest::first_process)). It starts
/// the command, reaps orphans, and ends when the lab ends. Returns the command's exit code, 128 + N if
/// signal N ended it. Everything that the command left running ends with this process.
///
/// # Errors
/// [`LabError::NotFound`] or [`LabError::Program`]: the command cannot be started (see
/// [`super::start_failure_code`]); [`LabError::Usage`]: the caller is not the lab.
pub fn init(arguments: &[OsString]) -> Result<u8, LabError> {
    let (plan, program, arguments) = parse(arguments)?;
    // The lab blocks signals to read them from a signalfd; the command must not inherit the mask.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|e| LabError::system("cannot unblock signals", e))?;
    let lifeline = take_descriptor(plan.lifeline)?;
    let hosts = plan
        .namespaces
        .into_iter()
        .map(|(host, descriptor)| Ok((host, take_descriptor(descriptor)?)))
        .collect::<Result<Vec<_>, LabError>>()?;
    let this_process = mount_own_proc()?;
    let child = Command::new(program)
        .args(arguments)
        .env(NAMESPACES_VARIABLE, namespace_table(&this_process, &hosts))
        .spawn()
        .map_err(|e| start_error(program, &e))?;
    let watched = lifeline
        .try_clone()
        .map_err(|e| LabError::system("cannot duplicate a descriptor", e))?;
    std::thread::Builder::new()
        .name("lifeline".into())
        .spawn(move || end_with_the_lab(watched, &plan.changes))
        .map_err(|e| LabError::system("cannot start a thread", e))?;
    // PID 1 of a namespace inherits all orphans; without wait(2) they would stay zombies.
    let code = reap_until(child.id())?;
    while has_hung_up(&lifeline) {
        // The lab has ended. The lifeline thread restores the settings and then exits the process;
        // returning earlier would kill it in the middle.
        std::thread::park();
    }
    Ok(code)
}

fn parse(arguments: &[OsString]) -> Result<(InitOrders, &OsStr, &[OsString]), LabError> {
    let [plan, program, arguments @ ..] = arguments else {
        return Err(not_for_users());
    };
    let plan = plan
        .to_str()
        .and_then(|json| serde_json::from_str(json).ok());
    match plan {
        Some(plan) if std::process::id() == 1 => Ok((plan, program, arguments)),
        _ => Err(not_for_users()),
    }
}

fn not_for_users() -> LabError {
    LabError::Usage("`lab init` can only be started by `longhaul lab net`".into())
}

/// Reopens an inherited descriptor with close-on-exec, so that children do not inherit it.
fn take_descriptor(descriptor: RawFd) -> Result<File, LabError> {
    let failed = |e| LabError::system(format!("cannot take over descriptor {descriptor}"), e);
    let file = File::open(format!("/proc/self/fd/{descriptor}")).map_err(failed)?;
    nix::unistd::close(descriptor).map_err(|e| failed(e.into()))?;
    Ok(file)
}

/// Mounts a `/proc` for this PID namespace; returns the path of this process in it.
fn mount_own_proc() -> Result<PathBuf, LabError> {
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|e| super::privilege::no_namespace("mount", "user.max_mnt_namespaces", e))?;
    // Slave propagation: mounts made here stay invisible outside, later mounts outside appear here.
    let mounted = mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM,
    )
    .and_then(|()| {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", flags, None)
    });
    match mounted {
        Ok(()) => Ok("/proc/1".into()),
        // Containers that mask parts of /proc forbid mounting a new one. The old one stays and has
        // the caller's process numbers.
        Err(_) => std::fs::read_link("/proc/self")
            .map(|pid| PathBuf::from("/proc").join(pid))
            .map_err(|e| LabError::system("cannot find this process in /proc", e)),
    }
}

fn namespace_table(this_process: &std::path::Path, hosts: &[(String, File)]) -> String {
    let entries: Vec<String> = hosts
        .iter()
        .map(|(host, file)| format!("{host}={}/fd/{}", this_process.display(), file.as_raw_fd()))
        .collect();
    entries.join(" ")
}

/// Reaps children, including orphans of the namespace, until `command` ends; returns its exit code.
fn reap_until(command: u32) -> Result<u8, LabError> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == command => {
                return Ok(exit_code(status));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(LabError::system("cannot wait for the command", e)),
        }
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    let code = signal.or(status.exit_status()).unwrap_or_default();
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn end_with_the_lab(mut lifeline: File, changes: &SysctlChanges) {
    // Nothing is ever written to the pipe, so `read` returns only at its end or on an error.
    let _ = lifeline.read(&mut [0]);
    changes.revert();
    let every_process = Pid::from_raw(-1);
    let asked_at = Instant::now();
    // kill(2) with -1 reaches every process of this PID namespace except this one.
    let _ = kill(every_process, Signal::SIGTERM);
    while kill(every_process, None).is_ok() && asked_at.elapsed() < TERMINATION_GRACE {
        std::thread::sleep(Duration::from_millis(5));
    }
    // When PID 1 exits, the kernel kills the processes that ignored SIGTERM.
    std::process::exit(1);
}

fn has_hung_up(lifeline: &File) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_refuses_callers_other_than_the_lab() {
        let plan = r#"{"lifeline":3,"namespaces":[],"changes":[]}"#;
        for arguments in [
            vec![],
            vec![plan.into()],
            vec!["{}".into(), "true".into()],
            vec![plan.into(), "true".into()],
        ] {
            assert!(matches!(init(&arguments), Err(LabError::Usage(_))));
        }
    }

    #[test]
    fn the_namespace_table_has_the_format_that_exec_reads() {
        let null = || File::open("/dev/null").unwrap();
        let hosts = [("a".to_owned(), null()), ("b".to_owned(), null())];
        let expected = format!(
            "a=/proc/1/fd/{} b=/proc/1/fd/{}",
            hosts[0].1.as_raw_fd(),
            hosts[1].1.as_raw_fd()
        );
        assert_eq!(
            namespace_table(std::path::Path::new("/proc/1"), &hosts),
            expected
        );
    }

    #[test]
    fn the_lifeline_hangs_up_when_its_write_end_is_closed() {
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let lifeline = File::from(reading);
        assert!(!has_hung_up(&lifeline));
        drop(writing);
        assert!(has_hung_up(&lifeline));
    }
}
