//! Waiting for a descriptor, and waking whoever waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes every thread that waits with it (an eventfd). Once rung it stays rung until
/// [`Wake::quiet`].
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Not rung.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Wakes all waiters, present and future.
    pub fn ring(&self) {
        // The only possible failure is a full counter, and a full counter is rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes the ringing back.
    pub fn quiet(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors has one of its events (or an error), or `timeout` passed.
/// Returns which are ready, in order; an interrupted wait returns early with none.
pub fn wait<const N: usize>(
    fds: [(BorrowedFd<'_>, PollFlags); N],
    timeout: Duration,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
    wait_any(&mut polled, timeout)?;
    Ok(polled.map(|p| !p.revents().is_empty()))
}

/// As [`wait`], for a number of descriptors that is only known at run time.
pub fn wait_any(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let limit = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ringing_ends_a_wait_until_it_is_quieted() {
        let wake = Wake::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                wake.ring();
            });
            let hour = Duration::from_secs(3600);
            assert!(wait([(wake.as_fd(), PollFlags::IN)], hour).unwrap()[0]);
        });
        let zero = Duration::ZERO;
        assert!(wait([(wake.as_fd(), PollFlags::IN)], zero).unwrap()[0]);
        wake.quiet();
        assert!(!wait([(wake.as_fd(), PollFlags::IN)], zero).unwrap()[0]);
    }
}
