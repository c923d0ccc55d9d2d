//! The first process of a lab's process namespace.
//!
//! When it ends, for whatever reason, the kernel ends every process of the namespace. It ends when
//! the command does, and when the lab does: the lab holds the only writing end of a pipe, the
//! lifeline, whose end of file comes even if the lab was killed.

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

/// How long processes have between being asked to end and being ended.
pub(super) const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// Orders of the lab to this process, as JSON in its first argument; descriptors are inherited.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InitOrders {
    /// The reading end of the lifeline.
    pub(super) lifeline: RawFd,
    /// The hosts' names and network namespaces.
    pub(super) namespaces: Vec<(String, RawFd)>,
    /// To be put back if the lab is killed.
    pub(super) changes: SysctlChanges,
}

/// The first process of a lab's process namespace (`longhaul lab init`, not for users): starts the
/// command, reaps what is orphaned, ends when the lab does. Returns the command's exit code, 128 +
/// N when signal N ended it; everything the command left ends with this process.
///
/// # Errors
/// [`LabError::NotFound`] or [`LabError::Program`]: the command cannot be started (see
/// [`super::start_failure_code`]); [`LabError::Usage`]: it was not the lab that called.
pub fn init(arguments: &[OsString]) -> Result<u8, LabError> {
    let (plan, program, arguments) = parse(arguments)?;
    // The lab blocks signals to take them one by one; the command is not to inherit that.
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
    let code = reap_until(child.id())?;
    while hung_up(&lifeline) {
        // The lab is gone: what is to be put back is put back by the thread that watches, which
        // then ends this process.
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
    LabError::Usage("`lab init` is for `longhaul lab net` alone to call".into())
}

/// An inherited descriptor as one of this process's own, which its children do not inherit.
fn take_descriptor(descriptor: RawFd) -> Result<File, LabError> {
    let failed = |e| LabError::system(format!("cannot take over descriptor {descriptor}"), e);
    let file = File::open(format!("/proc/self/fd/{descriptor}")).map_err(failed)?;
    nix::unistd::close(descriptor).map_err(|e| failed(e.into()))?;
    Ok(file)
}

/// Where the processes of this namespace find this one in `/proc`, of which they get a fresh one.
fn mount_own_proc() -> Result<PathBuf, LabError> {
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|e| super::privilege::no_namespace("mount", "user.max_mnt_namespaces", e))?;
    // Mounts made here must not show outside; mounts made outside later may show here.
    let fresh = mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM,
    )
    .and_then(|()| {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", flags, None)
    });
    match fresh {
        Ok(()) => Ok("/proc/1".into()),
        // Containers that hide parts of /proc forbid another one; there the old one stays, which
        // numbers processes as the caller does.
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

/// Waits for every child, the orphans of the namespace among them, until `command` ends.
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
    // Nothing is ever written: whatever reading brings, it is the end.
    let _ = lifeline.read(&mut [0]);
    changes.revert();
    let everybody_else = Pid::from_raw(-1);
    let asked = Instant::now();
    let _ = kill(everybody_else, Signal::SIGTERM);
    while kill(everybody_else, None).is_ok() && asked.elapsed() < TERMINATION_GRACE {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::process::exit(1);
}

fn hung_up(lifeline: &File) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lab_may_call_it() {
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
    fn the_table_is_what_exec_reads() {
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
    fn a_lifeline_hangs_up_when_its_writer_goes() {
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let lifeline = File::from(reading);
        assert!(!hung_up(&lifeline));
        drop(writing);
        assert!(hung_up(&lifeline));
    }
}
