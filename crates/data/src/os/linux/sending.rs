//! Sending from a file without its bytes passing through this process (sendfile(2)).

use std::io;
use std::os::fd::BorrowedFd;

/// Sends at most `len` bytes of `file` from `offset`. Returns 0 when the file ends there.
///
/// # Errors
/// `WouldBlock`: none fit now. EINVAL, ENOSYS, EOPNOTSUPP, EOVERFLOW: the file cannot be sent so.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}
