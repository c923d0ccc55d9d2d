//! Waiting for descriptors with poll(2), waking a waiting thread, and detecting that a peer has
//! closed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

pub use crate::os::posix::wake::{is_readable, wait, wait_any};

/// The events of a connection whose peer has closed its side or reset it. Unread input does not hide them (POLLRDHUP, poll(2)).
pub const PEER_CLOSED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);

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

/// Whether the peer of a connected socket has closed its side or reset the connection, as far as
/// this host knows. Unread input does not hide it.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PEER_CLOSED)];
    wait_any(&mut fds, Duration::ZERO).is_ok() && fds[0].revents().intersects(PEER_CLOSED)
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
