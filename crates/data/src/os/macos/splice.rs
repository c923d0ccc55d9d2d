//! Moving pages between files, pipes and sockets, which macOS cannot: there is no pipe for it, and what has no pipe copies.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::unsupported;

/// # Errors
/// `Unsupported`.
pub(crate) fn pipe_of(_capacity: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    Err(unsupported())
}

/// # Errors
/// EINVAL: the file has no pages to move.
pub(crate) fn file_to_pipe(
    _file: BorrowedFd<'_>,
    _offset: u64,
    _pipe: BorrowedFd<'_>,
    _len: usize,
) -> Result<usize, Errno> {
    Err(Errno::INVAL)
}

/// # Errors
/// EINVAL: the file takes no pages.
pub(crate) fn pipe_to_file(
    _pipe: BorrowedFd<'_>,
    _file: BorrowedFd<'_>,
    _offset: u64,
    _len: usize,
) -> Result<usize, Errno> {
    Err(Errno::INVAL)
}

/// # Errors
/// `Unsupported`.
pub(crate) fn pipe_to_socket(
    _pipe: BorrowedFd<'_>,
    _socket: BorrowedFd<'_>,
    _len: usize,
    _more: bool,
) -> io::Result<usize> {
    Err(unsupported())
}

/// # Errors
/// `Unsupported`.
pub(crate) fn socket_to_pipe(
    _socket: BorrowedFd<'_>,
    _pipe: BorrowedFd<'_>,
    _len: usize,
) -> io::Result<usize> {
    Err(unsupported())
}
