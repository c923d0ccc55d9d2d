//! Waiting for descriptors with poll(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until one of the descriptors has one of its events (or an error), or `timeout` has passed.
/// Returns which ones are ready, in order. An interrupted wait returns early with none.
pub fn wait<const N: usize>(
    fds: [(BorrowedFd<'_>, PollFlags); N],
    timeout: Duration,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
    wait_any(&mut polled, timeout)?;
    Ok(polled.map(|p| !p.revents().is_empty()))
}

/// As [`wait`], for a number of descriptors that is known only at run time.
pub fn wait_any(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let limit = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(fds, Some(&limit)) {
        // A signal handler may run at any time; callers check their condition and wait again.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a read of the socket would return at once: with bytes, at the peer's FIN, or with an error.
pub fn is_readable(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    wait_any(&mut fds, Duration::ZERO).is_ok() && !fds[0].revents().is_empty()
}
