//! Child processes: waiting for them with a deadline, terminating the orphans that they leave, and the
//! signals that end an experiment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::LabError;
use emulator::signals::terminating_signals;

pub(crate) mod leftovers;

/// How the wait for a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// The process ended.
    Ended(ExitStatus),
    /// The process still runs at the deadline.
    Late,
    /// The process still runs, and the user wants to stop.
    Interrupted,
}

/// Waits for `child` until `deadline`, or until `stop` becomes readable.
///
/// # Errors
/// The process cannot be observed.
pub(crate) fn wait(
    child: &mut Child,
    deadline: Instant,
    stop: Option<BorrowedFd<'_>>,
) -> io::Result<WaitEnd> {
    let process = rustix::process::pidfd_open(pid(child)?, PidfdFlags::empty())?;
    loop {
        let mut events = vec![PollFd::new(&process, PollFlags::IN)];
        events.extend(stop.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut events, Some(&timespec(left))) {
            Ok(0) => return Ok(WaitEnd::Late),
            Ok(_) if !events[0].revents().is_empty() => return Ok(WaitEnd::Ended(child.wait()?)),
            Ok(_) => return Ok(WaitEnd::Interrupted),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until `done` or `stop` becomes readable. Returns whether `done` did.
///
/// # Errors
/// poll(2) fails.
pub(crate) fn wait_for_done_or_stop(
    done: BorrowedFd<'_>,
    stop: BorrowedFd<'_>,
) -> io::Result<bool> {
    loop {
        let mut events = [done, stop].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut events, None) {
            Ok(_) => return Ok(!events[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Starts a thread that exits this process, and with `group` kills its process group, when standard input
/// closes. Standard input is a pipe whose writing end belongs to the process that started this one, so
/// that it closes also when that process is killed.
///
/// # Errors
/// No thread can be started.
pub(crate) fn exit_when_input_closes(group: bool) -> io::Result<()> {
    let watch = move || {
        // Nothing is ever written to the pipe, so that any return of read(2) means its end.
        let _ = io::Read::read(&mut io::stdin(), &mut [0]);
        if group {
            let _ = rustix::process::kill_current_process_group(Signal::KILL);
        }
        std::process::exit(1);
    };
    std::thread::Builder::new()
        .name("lifeline".into())
        .spawn(watch)
        .map(|_| ())
}

/// Whether `fd` is readable at the moment.
pub(crate) fn is_readable(fd: impl AsFd) -> bool {
    let mut events = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    matches!(poll(&mut events, Some(&timespec(Duration::ZERO))), Ok(n) if n > 0)
}

fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

fn pid(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("a process without an id"))
}

/// The time that a process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Sends `child` SIGTERM, and SIGKILL if it still runs after two seconds; then reaps it.
///
/// # Errors
/// The process cannot be observed.
pub(crate) fn terminate(child: &mut Child) -> io::Result<()> {
    terminate_within(child, GRACE)
}

/// Does the same as [`terminate`] with another time between SIGTERM and SIGKILL.
///
/// # Errors
/// The process cannot be observed.
pub(crate) fn terminate_within(child: &mut Child, grace: Duration) -> io::Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    rustix::process::kill_process(pid(child)?, Signal::TERM)?;
    if wait(child, Instant::now() + grace, None)? == WaitEnd::Late {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Makes this process the parent of its descendants whose own parents end (PR_SET_CHILD_SUBREAPER,
/// prctl(2)), so that [`terminate_orphans`] finds them and their processor time is counted here.
///
/// # Errors
/// prctl(2) fails.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // The kernel reads the argument as a flag: any value but zero sets it.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Waits up to two seconds for all children to end, then kills those that remain.
///
/// # Errors
/// A child cannot be waited for.
pub(crate) fn terminate_orphans() -> io::Result<()> {
    let deadline = Instant::now() + GRACE;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => {
                if Instant::now() > deadline {
                    for child in list_children()? {
                        // An error means that the process has ended in the meantime.
                        let _ = rustix::process::kill_process(child, Signal::KILL);
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lists the children of this process.
fn list_children() -> io::Result<Vec<Pid>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if parse_parent(&stat) == Some(own) {
            found.extend(Pid::from_raw(id));
        }
    }
    Ok(found)
}

/// Reads the parent's id from the text of `/proc/PID/stat`: the second field after the name. The name is
/// in parentheses and may itself contain spaces and parentheses (proc(5)).
fn parse_parent(stat: &str) -> Option<i32> {
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the processor seconds, user and system, of all children that have ended and been waited for,
/// and of their children (RUSAGE_CHILDREN, getrusage(2)).
///
/// # Errors
/// getrusage(2) fails.
pub(crate) fn ended_children_cpu() -> io::Result<f64> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |t: nix::sys::time::TimeVal| {
        use nix::sys::time::TimeValLike;
        t.num_microseconds() as f64 / 1e6
    };
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// The state of a listening socket in `/proc/net/tcp`: TCP_LISTEN, 10, in hexadecimal.
const LISTEN: &str = "0A";

/// Whether a socket listens on TCP `port` in the network namespace of process `id`. With
/// `in_other_namespace` that namespace must differ from this process's: a process that has not yet
/// entered its host still has ours, where another program may listen on the same port.
pub(crate) fn is_listening(id: u32, port: u16, in_other_namespace: bool) -> bool {
    if in_other_namespace && network_namespace(&id.to_string()) == network_namespace("self") {
        return false;
    }
    ["tcp", "tcp6"].iter().any(|table| {
        std::fs::read_to_string(format!("/proc/{id}/net/{table}"))
            .is_ok_and(|text| has_listener(&text, port))
    })
}

/// Returns the identity of a process's network namespace. `None`: there is no such process.
fn network_namespace(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

/// Whether a table in the format of `/proc/net/tcp` has a listening socket on `port`.
fn has_listener(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&ending) && fields.nth(1) == Some(LISTEN)
    })
}

/// Blocks the signals that would end this process while it exists. When it is dropped, a pending signal
/// takes effect, so that the caller's shell sees a program that was ended by that signal.
///
/// It changes the signal mask of the calling thread only. The process must have no other thread that
/// accepts these signals.
#[derive(Debug)]
pub(crate) struct Interrupts {
    pending: SignalFd,
    before: SigSet,
}

impl Interrupts {
    /// Blocks the signals.
    ///
    /// # Errors
    /// [`LabError::System`]: the mask cannot be set or no signalfd(2) can be created.
    pub(crate) fn block() -> Result<Self, LabError> {
        let failed = |errno| LabError::system("cannot block signals", errno);
        let before = SigSet::thread_get_mask().map_err(failed)?;
        let held = terminating_signals();
        held.thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let pending = SignalFd::with_flags(&held, flags).map_err(failed)?;
        Ok(Self { pending, before })
    }

    /// Returns the descriptor that becomes readable when a signal arrives.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pending.as_fd()
    }

    /// Whether a signal has arrived.
    pub(crate) fn has_signal(&self) -> bool {
        is_readable(&self.pending)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // sigprocmask(2) fails only for invalid arguments, and this mask was returned by the kernel.
        let _ = self.before.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_parent_is_read_after_the_name() {
        assert_eq!(parse_parent("12 (a b) c) S 7 12 12"), Some(7));
        assert_eq!(parse_parent("12 (x"), None);
        assert_eq!(parse_parent(""), None);
    }

    #[test]
    fn waiting_ends_with_the_process_or_the_deadline() {
        let mut quick = Command::new("true").spawn().unwrap();
        let soon = Instant::now() + Duration::from_secs(10);
        assert!(matches!(wait(&mut quick, soon, None).unwrap(), WaitEnd::Ended(s) if s.success()));

        let mut slow = Command::new("sleep").arg("60").spawn().unwrap();
        let now = Instant::now() + Duration::from_millis(20);
        assert_eq!(wait(&mut slow, now, None).unwrap(), WaitEnd::Late);
        terminate(&mut slow).unwrap();
        assert!(slow.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_readable_stop_descriptor_interrupts_the_wait() {
        let (read, write) = io::pipe().unwrap();
        assert!(!is_readable(&read));
        drop(write);
        assert!(is_readable(&read));
        let mut slow = Command::new("sleep").arg("60").spawn().unwrap();
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(
            wait(&mut slow, late, Some(read.as_fd())).unwrap(),
            WaitEnd::Interrupted
        );
        terminate(&mut slow).unwrap();
    }

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
        0: 0100007F:0AFB 00000000:0000 0A 00000000:00000000 00:00000000 0\n   \
        1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 0\n";

    #[test]
    fn only_listening_sockets_count() {
        assert!(has_listener(TABLE, 2811));
        assert!(!has_listener(TABLE, 8080), "connected, not listening");
        assert!(!has_listener(TABLE, 0xC001), "the other end");
        assert!(!has_listener("", 2811));
    }

    #[test]
    fn a_listener_of_this_namespace_is_not_one_of_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(std::process::id(), port, false));
        assert!(!is_listening(std::process::id(), port, true));
        drop(listener);
        assert!(!is_listening(std::process::id(), port, false));
    }
}
