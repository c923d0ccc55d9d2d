//! Write-back of a file's dirty pages by range, which macOS has not, and the errors that close(2) reports.

use std::io;
use std::os::fd::BorrowedFd;

use super::unsupported;
pub(crate) use crate::os::posix::writeback::flush_as_close;

/// # Errors
/// `Unsupported`: only a whole file is written back.
pub(crate) fn start_writeback(_file: BorrowedFd<'_>, _offset: u64, _len: u64) -> io::Result<()> {
    Err(unsupported())
}

/// # Errors
/// `Unsupported`: as [`start_writeback`].
pub(crate) fn wait_writeback(_file: BorrowedFd<'_>, _offset: u64, _len: u64) -> io::Result<()> {
    Err(unsupported())
}

/// # Errors
/// `Unsupported`: only the next sync reports errors.
pub(crate) fn check_writeback_errors(_file: BorrowedFd<'_>) -> io::Result<()> {
    Err(unsupported())
}
