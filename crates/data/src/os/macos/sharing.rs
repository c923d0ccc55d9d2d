//! Copies within a file system. macOS has none between two open files: clonefile(2) makes a new name, where the program has a
//! partial file that is locked, and fcopyfile(3) of two descriptors reads and writes in this process.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// # Errors
/// ENOSYS.
pub fn copy_range(
    _from: BorrowedFd<'_>,
    _from_offset: u64,
    _to: BorrowedFd<'_>,
    _to_offset: u64,
    _len: usize,
) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

/// # Errors
/// ENOSYS.
pub fn share_blocks(_from: BorrowedFd<'_>, _to: BorrowedFd<'_>) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Whether an error says that the bytes must pass through this process.
pub fn is_unsupported(error: Errno) -> bool {
    error == Errno::NOSYS
}
