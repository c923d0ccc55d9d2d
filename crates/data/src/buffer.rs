//! The buffer of a stream thread between store and wire: memory, or a kernel pipe.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::os::splice;

/// Alignment of transfer buffers: one page, so that copies work on whole pages.
const PAGE_SIZE: usize = 4096;

/// Bytes that start at a page boundary. Pages cost memory only once they are touched.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBuffer {
    pub(crate) fn new(len: usize) -> Self {
        // One page more than requested, so that an aligned part of the length exists.
        let bytes = vec![0; len + PAGE_SIZE];
        // `align_offset` may fail. The buffer is then unaligned, which only costs speed.
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

/// Capacity of a pipe, bytes: the most that an unprivileged process may request (fs.pipe-max-size).
const PIPE_CAPACITY: usize = 1 << 20;

/// A kernel pipe of [`PIPE_CAPACITY`] bytes, through which splice(2) moves pages.
#[derive(Debug)]
pub(crate) struct SplicePipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl SplicePipe {
    /// # Errors
    /// The system grants only a small pipe (fs.pipe-user-pages-soft bounds all pipes of a user), or has none for this.
    /// Splicing page by page is slower than copying.
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = splice::pipe_of(PIPE_CAPACITY)?;
        Ok(Self { read, write })
    }

    /// The capacity, bytes.
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
    fn the_buffer_starts_at_a_page() {
        let mut buffer = PageBuffer::new(10_000);
        assert_eq!(buffer.as_mut().len(), 10_000);
        assert_eq!(buffer.as_ref().as_ptr().addr() % PAGE_SIZE, 0);
    }
}
