//! Sending without a copy of memory, which macOS has not.

use std::io;
use std::os::fd::BorrowedFd;

use super::unsupported;

/// # Errors
/// `Unsupported`.
pub fn enable(_fd: BorrowedFd<'_>) -> io::Result<()> {
    Err(unsupported())
}

/// The flag for `send`.
pub const FLAG: i32 = 0;

/// None: no send is without a copy.
pub fn read_completion(_fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    Ok(None)
}
