//! The processes that ask PAM about one login each, and what modules start from them.
//!
//! A module may put a program into a session of its own (pam_exec(8) does), which no signal to a group reaches. So this
//! process adopts orphans (prctl(2), PR_SET_CHILD_SUBREAPER): a child that it has not started itself was left
//! behind by a login that has ended, and ends, too.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

/// How often orphans are looked for after a login: each that ends may leave others.
const ROUNDS: u32 = 20;
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// The processes of logins that have not ended.
#[derive(Debug)]
pub(super) struct AttemptProcesses(Mutex<HashSet<Pid>>);

impl AttemptProcesses {
    /// Adopts orphans from now on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn adopting() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self(Mutex::default()))
    }

    /// Starts the process of a login.
    ///
    /// # Errors
    /// As of [`Command::spawn`].
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Locked: a process that is not known yet is not taken for an orphan.
        let mut known = self.known();
        let child = command.spawn()?;
        known.insert(Pid::from_child(&child));
        Ok(child)
    }

    /// Ends the process of a login with all that it has started, and returns its status.
    ///
    /// # Errors
    /// As of [`Child::wait`].
    pub(super) fn end(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let _ = child.kill();
        let status = child.wait();
        let mut known = self.known();
        known.remove(&Pid::from_child(child));
        end_orphans(&known);
        status
    }

    /// Ends all.
    pub(super) fn end_all(&self) {
        let mut known = self.known();
        known.clear();
        end_orphans(&known);
    }

    fn known(&self) -> MutexGuard<'_, HashSet<Pid>> {
        self.0.lock()
    }
}

fn end_orphans(known: &HashSet<Pid>) {
    for _ in 0..ROUNDS {
        let mut orphans = children();
        orphans.retain(|child| !known.contains(child));
        if orphans.is_empty() {
            return;
        }
        for orphan in orphans {
            // A child that was not waited for keeps its number, so it is no other process.
            let _ = kill_process(orphan, Signal::KILL);
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
        thread::sleep(PAUSE);
    }
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let own = getpid();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let found = numbers.filter_map(Pid::from_raw);
    found
        .filter(|process| parent_of(*process) == Some(own))
        .collect()
}

/// The parent of a process (proc(5), `/proc/PID/stat`).
fn parent_of(process: Pid) -> Option<Pid> {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).ok()?;
    // The name, in parentheses, may have any characters.
    let (_, behind) = stat.rsplit_once(')')?;
    let parent = behind.split_whitespace().nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_by_their_parent() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert_eq!(parent_of(pid), Some(getpid()));
        assert!(children().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&pid));
    }
}
