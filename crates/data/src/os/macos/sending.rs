//! Sending from a file without its bytes passing through this process (sendfile(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends at most `len` bytes of `file` from `offset`. Returns 0 when the file ends there.
///
/// # Errors
/// `WouldBlock`: none fit now. EINVAL, EOPNOTSUPP: the file cannot be sent so.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = i64::try_from(offset).map_err(too_large)?;
    let wanted = i64::try_from(len).map_err(too_large)?;
    if wanted == 0 {
        // The call takes this for all bytes up to the end.
        return Ok(0);
    }
    let mut count = wanted;
    // SAFETY: both descriptors are open for their borrows' lifetimes; the kernel reads and writes `count` alone, and no
    // headers are given.
    let result = unsafe {
        libc::sendfile(
            file.as_raw_fd(),
            socket.as_raw_fd(),
            offset,
            &raw mut count,
            std::ptr::null_mut(),
            0,
        )
    };
    let error = io::Error::last_os_error();
    match usize::try_from(count) {
        // Some bytes may be sent before the call would block, or is interrupted.
        Ok(sent) if result == 0 || (sent > 0 && count <= wanted && is_pause(&error)) => Ok(sent),
        _ => Err(error),
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
