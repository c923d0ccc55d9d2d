//! Write-back of a file's dirty pages by range (sync_file_range(2)), and the errors that close(2)
//! reports.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) use crate::os::posix::writeback::flush_as_close;

/// Starts the write-back of `len` bytes at `offset`. Waits only for room in the queue of the
/// device.
///
/// # Errors
/// EINVAL, ESPIPE or ENOSYS if the file or the system does not support it; errors of the disk (EIO,
/// ENOSPC, EDQUOT).
pub(crate) fn start_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    sync_range(file, offset, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until the pages of `len` bytes at `offset` are written. Flushes neither metadata nor the
/// cache of the disk: only fdatasync(2) does.
///
/// # Errors
/// As [`start_writeback`]. The kernel reports a write-back error once per open file: the caller
/// must remember it.
pub(crate) fn wait_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, len, flags)
}

/// Reports a write-back error that occurred since the file was opened, or earlier and was not
/// reported. Starts no write-back and waits for none.
///
/// # Errors
/// As [`start_writeback`]. Reported once per open file.
pub(crate) fn check_writeback_errors(file: BorrowedFd<'_>) -> io::Result<()> {
    // A range beyond every file has no page to wait for, but the call still checks the error state.
    sync_range(
        file,
        OFFSET_BEYOND_ANY_FILE,
        1,
        libc::SYNC_FILE_RANGE_WAIT_BEFORE,
    )
}

/// An offset that no file reaches.
const OFFSET_BEYOND_ANY_FILE: u64 = 1 << 62;

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
        // EINTR is possible on some file systems; the call is idempotent.
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
