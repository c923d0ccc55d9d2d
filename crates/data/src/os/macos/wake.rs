//! Waiting for descriptors with poll(2), waking a waiting thread, and detecting that a peer has
//! closed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::pipe;

pub use crate::os::posix::wake::{is_readable, wait, wait_any};

/// The events of a connection whose peer has closed its side or reset it. Unread input does not hide them: here POLLHUP is
/// the peer's FIN alone.
pub const PEER_CLOSED: PollFlags = PollFlags::HUP.union(PollFlags::ERR);

/// Wakes every thread that waits for it (a pipe). It stays set until [`WakeEvent::clear`].
#[derive(Debug)]
pub struct WakeEvent {
    read: OwnedFd,
    write: OwnedFd,
}

impl WakeEvent {
    /// An event that is not set.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe()?;
        for end in [&read, &write] {
            fcntl_setfd(end, FdFlags::CLOEXEC)?;
            fcntl_setfl(end, OFlags::NONBLOCK)?;
        }
        Ok(Self { read, write })
    }

    /// Sets the event: wakes all waiters, present and future.
    pub fn wake(&self) {
        // The only possible error is a full pipe, which is set anyway.
        let _ = rustix::io::write(&self.write, &[1]);
    }

    /// Clears the event.
    pub fn clear(&self) {
        while let Ok(1..) = rustix::io::read(&self.read, &mut [0u8; 64]) {}
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

/// Whether the peer of a connected socket has closed its side or reset the connection, as far as
/// this host knows. Unread input does not hide it.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PEER_CLOSED)];
    wait_any(&mut fds, Duration::ZERO).is_ok() && fds[0].revents().intersects(PEER_CLOSED)
}
