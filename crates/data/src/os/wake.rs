//! Waiting for descriptors with poll(2), waking a waiting thread, and detecting that a peer has
//! closed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes every thread that waits for it (an eventfd). It stays set until [`WakeEvent::clear`].
#[derive(Debug)]
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// An event that is not set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Sets the event: wakes all waiters, present and future.
    pub fn wake(&self) {
        // The only possible error is a full counter, which is set anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears the event.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

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

/// Whether the peer of a connected socket has closed its side or reset the connection, as far as
/// this host knows. Unread input does not hide it (POLLRDHUP, poll(2)).
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(closed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_set_event_ends_waits_until_it_is_cleared() {
        let wake = WakeEvent::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                wake.wake();
            });
            let hour = Duration::from_secs(3600);
            assert!(wait([(wake.as_fd(), PollFlags::IN)], hour).unwrap()[0]);
        });
        let zero = Duration::ZERO;
        assert!(wait([(wake.as_fd(), PollFlags::IN)], zero).unwrap()[0]);
        wake.clear();
        assert!(!wait([(wake.as_fd(), PollFlags::IN)], zero).unwrap()[0]);
    }

    #[test]
    fn a_close_is_detected_behind_unread_input() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"STOR f\r\n").unwrap();
        assert!(!has_hung_up(&server));
        drop(client);
        while !has_hung_up(&server) {
            std::thread::yield_now();
        }
        let mut byte = [0];
        assert_eq!(server.peek(&mut byte).unwrap(), 1);
    }
}
