//! The errors that close(2) reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};

/// Reports the errors that close(2) would report (network file systems write back on close), and
/// leaves the file open: each closed descriptor flushes, so closing a duplicate is enough.
///
/// # Errors
/// Those of dup(2) and close(2).
pub(crate) fn flush_as_close(file: BorrowedFd<'_>) -> io::Result<()> {
    let duplicate = file.as_fd().try_clone_to_owned()?.into_raw_fd();
    // SAFETY: the descriptor was just made, nothing else knows it, and it is used no more.
    if unsafe { libc::close(duplicate) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Linux has closed the descriptor in spite of the error (close(2), "Dealing with error
        // returns").
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}
