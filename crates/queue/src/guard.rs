//! The process between a worker and the program that copies.
//!
//! It ends the program when the lease ends, also while the worker stands still (SIGSTOP) or waits for a database; when the worker
//! tells it to; and when the worker dies, which ends the guard's standard input. If the guard itself dies, the kernel kills the program
//! (PR_SET_PDEATHSIG, prctl(2)); the guard does not rely on that for the worker's death, because a program with capabilities
//! of its file loses the setting. It holds an exclusive lock on the attempt's file, and the program inherits it as its standard
//! input (flock(2) belongs to the open file), so a later worker of this machine can tell that both are gone.
//!
//! Orders come as lines on standard input: `until STOP KILL`, two times since the machine started in milliseconds, and `stop`. The
//! guard itself prints one line, its last: an object with the event `guard_ended`.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal,
    setsid, waitid,
};
use rustix::time::{ClockId, clock_gettime};

use crate::decisions::lease::LeaseDeadlines;

/// Longest line of an order, bytes.
const LONGEST_ORDER: u64 = 128;
/// Time between SIGTERM and SIGKILL where the worker asked for the end.
const GRACE: Duration = Duration::from_secs(20);
/// Longest wait before the clock is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why the program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The process that started this one has ended.
    #[error("the process that started this one has ended")]
    Orphan,
    /// Another attempt holds the lock.
    #[error("the lock {path} is held by an earlier attempt")]
    Locked {
        /// The file.
        path: String,
    },
    /// The system refused something.
    #[error("{what}: {cause}")]
    System {
        /// The thing that was tried.
        what: &'static str,
        /// The system's reason.
        cause: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> GuardError {
    move |cause| GuardError::System {
        what,
        cause: cause.into(),
    }
}

/// Time since the machine started, with the time that it slept.
pub fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The order with the deadlines of a lease.
pub fn deadline_order(deadlines: LeaseDeadlines) -> String {
    let (stop, kill) = (deadlines.stop.as_millis(), deadlines.kill.as_millis());
    format!("until {stop} {kill}\n")
}

/// The order to end the program.
pub const STOP_ORDER: &str = "stop\n";

/// Becomes a program that ends with the process `parent`, which has started this one.
///
/// # Errors
/// The parent has ended, or the program cannot be executed. Without an error it does not return.
pub fn become_child(parent: u32, command: &[OsString]) -> Result<(), GuardError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(system("cannot ask for the death signal"))?;
    let found = getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    if found != Some(parent) {
        return Err(GuardError::Orphan);
    }
    let (program, words) = command.split_first().ok_or(GuardError::Orphan)?;
    let error = Command::new(program).args(words).exec();
    Err(system("cannot execute the program")(error))
}

/// Runs a program under the lock of a file until it ends, the worker tells so, or the lease is over: at first the one with these
/// deadlines.
///
/// # Errors
/// The lock is held, or the system refuses.
pub fn run(lock: &Path, deadlines: LeaseDeadlines, command: &[OsString]) -> Result<(), GuardError> {
    // Away from the terminal of the worker: its Ctrl-C is the worker's, and the program must not ask there.
    setsid().map_err(system("cannot begin a session of its own"))?;
    let lock_file = locked(lock)?;
    let inherited = lock_file
        .try_clone()
        .map_err(system("cannot share the lock"))?;
    let (events, received) = mpsc::channel();
    read_orders(events.clone())?;
    let mut child = Command::new("/proc/self/exe")
        .args(["guard", "--parent"])
        .arg(std::process::id().to_string())
        .arg("--")
        .args(command)
        .stdin(Stdio::from(inherited))
        .spawn()
        .map_err(system("cannot start the program"))?;
    let pid = Pid::from_child(&child);
    watch_child(pid, events)?;
    let (status, stopped) = supervise(pid, &mut child, &received, deadlines)?;
    report(status, stopped);
    drop(lock_file);
    Ok(())
}

fn locked(path: &Path) -> Result<File, GuardError> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(system("cannot open the attempt's lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(GuardError::Locked {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(cause)) => Err(system("cannot lock the attempt's file")(cause)),
    }
}

/// An event that the guard waits for.
enum GuardEvent {
    Until(LeaseDeadlines),
    Stop,
    /// Standard input has ended: the worker is gone, or sends nonsense.
    InputEnded,
    ChildEnded,
}

/// Reads orders until standard input ends.
fn read_orders(events: mpsc::Sender<GuardEvent>) -> Result<(), GuardError> {
    let read = move || {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = Read::take(&mut input, LONGEST_ORDER).read_until(b'\n', &mut line);
            let order = match read {
                Ok(1..) => parse_order(&line),
                _ => None,
            };
            let is_end = order.is_none();
            if events
                .send(order.unwrap_or(GuardEvent::InputEnded))
                .is_err()
                || is_end
            {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("orders".to_owned());
    thread
        .spawn(read)
        .map_err(system("cannot start a thread"))?;
    Ok(())
}

fn parse_order(line: &[u8]) -> Option<GuardEvent> {
    let line = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let mut words = line.split(' ');
    match (words.next()?, words.next(), words.next()) {
        ("stop", None, None) => Some(GuardEvent::Stop),
        ("until", Some(stop), Some(kill)) => Some(GuardEvent::Until(LeaseDeadlines {
            stop: Duration::from_millis(stop.parse().ok()?),
            kill: Duration::from_millis(kill.parse().ok()?),
        })),
        _ => None,
    }
}

/// Says when the child has ended. It stays a zombie, so that its number remains its own until the guard has heard of it.
fn watch_child(pid: Pid, events: mpsc::Sender<GuardEvent>) -> Result<(), GuardError> {
    let wait = move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(
            waitid(WaitId::Pid(pid), options),
            Err(rustix::io::Errno::INTR)
        ) {}
        let _ = events.send(GuardEvent::ChildEnded);
    };
    let thread = std::thread::Builder::new().name("child".to_owned());
    thread
        .spawn(wait)
        .map_err(system("cannot start a thread"))?;
    Ok(())
}

/// Waits for the end of the child, and brings it about in time. The flag: the guard told it to end.
fn supervise(
    pid: Pid,
    child: &mut Child,
    events: &mpsc::Receiver<GuardEvent>,
    mut deadlines: LeaseDeadlines,
) -> Result<(ExitStatus, bool), GuardError> {
    let mut stopped = false;
    loop {
        let now = boot_time();
        if now >= deadlines.kill {
            stopped = true;
            let _ = kill_process(pid, Signal::KILL);
        } else if now >= deadlines.stop && !stopped {
            stopped = true;
            let _ = kill_process(pid, Signal::TERM);
        }
        let next = match stopped {
            true => deadlines.kill,
            false => deadlines.stop,
        };
        // A sleeping machine stops the time of this wait, and not the clock above.
        let wait = next
            .saturating_sub(now)
            .clamp(Duration::from_millis(10), LOOK_EVERY);
        match events.recv_timeout(wait) {
            // A lease that is renewed after the order to end does not bring the program back.
            Ok(GuardEvent::Until(renewed)) if !stopped => deadlines = renewed,
            Ok(GuardEvent::Until(_)) => {}
            Ok(GuardEvent::Stop) => {
                deadlines.stop = now;
                deadlines.kill = deadlines.kill.min(now + GRACE);
            }
            Ok(GuardEvent::InputEnded) => deadlines.kill = now,
            Ok(GuardEvent::ChildEnded) => {
                let status = child
                    .wait()
                    .map_err(system("cannot wait for the program"))?;
                return Ok((status, stopped));
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The sender of the child's end is gone only after it has sent.
            Err(RecvTimeoutError::Disconnected) => deadlines.kill = now,
        }
    }
}

fn report(status: ExitStatus, stopped: bool) {
    let line = serde_json::json!({
        "event": "guard_ended",
        "exit": status.code(),
        "signal": status.signal(),
        "stopped": stopped,
    });
    // A program that was killed may have left half a line.
    let _ = io::stdout().write_all(format!("\n{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let deadlines = LeaseDeadlines {
            stop: Duration::from_millis(1500),
            kill: Duration::from_millis(1700),
        };
        let order = deadline_order(deadlines);
        let read = parse_order(order.as_bytes());
        assert!(matches!(read, Some(GuardEvent::Until(read)) if read == deadlines));
        assert!(matches!(
            parse_order(STOP_ORDER.as_bytes()),
            Some(GuardEvent::Stop)
        ));
        for nonsense in ["until 1\n", "until x y\n", "stop", "", "go\n"] {
            assert!(parse_order(nonsense.as_bytes()).is_none(), "{nonsense:?}");
        }
    }
}
