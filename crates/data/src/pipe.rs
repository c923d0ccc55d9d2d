//! The kernel pipe through which splice moves pages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// The largest pipe an unprivileged process may ask for (fs.pipe-max-size).
const CAPACITY: usize = 1 << 20;

/// A pipe of [`CAPACITY`] bytes.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// Fails when the system grants only a small pipe (a user's pipes are bounded in all,
    /// fs.pipe-user-pages-soft): splicing page by page is slower than copying.
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&write, CAPACITY)?;
        Ok(Self { read, write })
    }

    /// Most bytes it holds.
    pub(crate) const fn capacity() -> usize {
        CAPACITY
    }

    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    pub(crate) fn input(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }
}
