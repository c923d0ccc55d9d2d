//! Write-back of a file's dirty pages, begun and awaited range by range, and the errors that
//! close(2) tells.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};

/// Begins to write the dirty pages of `len` bytes at `offset` to disk; does not wait for them, except
/// for room in the device's queue.
///
/// # Errors
/// EINVAL, ESPIPE or ENOSYS where the file or the system has no such thing; what the disk says (EIO,
/// ENOSPC, EDQUOT).
pub(crate) fn start_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    sync_range(file, offset, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until the pages of `len` bytes at `offset` are written. Neither metadata nor the disk's own
/// cache is flushed: that takes fdatasync(2).
///
/// # Errors
/// As [`start_writeback`]. The kernel tells a write-back error once per open file: the caller must remember it.
pub(crate) fn wait_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, len, flags)
}

/// Whether a page of the file could not be written back since it was opened, or before that and
/// nobody was told. Neither begins write-back nor waits for any.
///
/// # Errors
/// As [`start_writeback`]. Told once per open file.
pub(crate) fn check_writeback_errors(file: BorrowedFd<'_>) -> io::Result<()> {
    // A range that no file reaches has no page to wait for; the errors are looked at all the same.
    sync_range(file, BEYOND, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// An offset that no file has.
const BEYOND: u64 = 1 << 62;

fn sync_range(file: BorrowedFd<'_>, offset: u64, len: u64, flags: u32) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = i64::try_from(offset).map_err(too_large)?;
    let len = i64::try_from(len).map_err(too_large)?;
    loop {
        // SAFETY: the descriptor is open for as long as it is borrowed, and no memory is passed.
        let done = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reports what close(2) would report (network file systems write back and tell errors there), and
/// leaves the file open: the flush of a file belongs to each descriptor that is closed, so that of a
/// duplicate does it.
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
        // Linux has closed the descriptor all the same (close(2), "Dealing with error returns").
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}
