//! Socket options that socket2 does not support.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads an option into `out`. Returns the number of bytes that the kernel wrote.
pub fn get(fd: BorrowedFd<'_>, level: i32, name: i32, out: &mut [u8]) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(out.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: `out` is valid for writes of `len` bytes and `len` for reads and writes; the kernel
    // writes at most `len` bytes. The descriptor is open for the borrow's lifetime.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            out.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(len).unwrap_or(0).min(out.len()))
}

/// Sets an option that takes a C int.
pub fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(fd, level, name, &value.to_ne_bytes())
}

/// Sets an option to these bytes.
pub(in crate::os) fn set(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the pointer is valid for reads of `len` bytes; the kernel copies the value.
    let status =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets the number of bytes that end a wait for input (SO_RCVLOWAT, socket(7)). The end of the
/// stream always ends it.
pub fn set_receive_low_water(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// One of a socket's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketBuffer {
    /// SO_SNDBUF.
    Send,
    /// SO_RCVBUF.
    Receive,
}

impl SocketBuffer {
    pub(in crate::os) const fn option(self) -> i32 {
        match self {
            Self::Send => libc::SO_SNDBUF,
            Self::Receive => libc::SO_RCVBUF,
        }
    }
}

/// Reads an option that is a C int.
pub(in crate::os) fn get_int(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut out = [0; size_of::<i32>()];
    get(fd, level, name, &mut out)?;
    Ok(i32::from_ne_bytes(out))
}

/// Converts to the C int that options take.
pub(in crate::os) fn int(bytes: u64) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
