//! Ways of bytes between store and wire, one for each stream thread: a buffer, or a kernel pipe.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Alignment of transfer buffers: a page, so that whole pages are copied.
const PAGE_SIZE: usize = 4096;

/// Bytes that start at a page boundary. Pages are only touched, and so only cost memory, as far
/// as the buffer is used.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBuffer {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE_SIZE];
        // `align_offset` may decline to answer; the buffer is then merely not aligned.
        let start = bytes.as_ptr().align_offset(PAGE_SIZE);
        let start = if start < PAGE_SIZE { start } else { 0 };
        Self { bytes, start, len }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

/// The largest pipe an unprivileged process may ask for (fs.pipe-max-size).
const PIPE_CAPACITY: usize = 1 << 20;

/// Kernel pipe of [`PIPE_CAPACITY`] bytes, through which splice moves pages.
#[derive(Debug)]
pub(crate) struct SplicePipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl SplicePipe {
    /// Fails when the system grants only a small pipe (a user's pipes are bounded in all,
    /// fs.pipe-user-pages-soft): splicing page by page is slower than copying.
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&write, PIPE_CAPACITY)?;
        Ok(Self { read, write })
    }

    /// Most bytes it holds.
    pub(crate) const fn capacity() -> usize {
        PIPE_CAPACITY
    }

    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    pub(crate) fn input(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page() {
        let mut buffer = PageBuffer::new(10_000);
        assert_eq!(buffer.as_mut().len(), 10_000);
        assert_eq!(buffer.as_ref().as_ptr().addr() % PAGE_SIZE, 0);
    }
}
