//! Socket options that socket2 does not know.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads an option into `out`; returns how many bytes the kernel wrote.
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
    let len = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: the pointer is valid for reads of `len` bytes; the kernel copies the value.
    let status =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lifts the bound on the advertised window that a later SO_RCVBUF does not lift by itself on
/// Linux before 7.1 (TCP_WINDOW_CLAMP).
pub fn set_window_clamp(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_int_option_reads_back() {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
        let mut out = [0; 4];
        let n = get(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_KEEPALIVE,
            &mut out,
        );
        assert_eq!(n.unwrap(), 4);
        assert_eq!(i32::from_ne_bytes(out), 1);
        set_window_clamp(socket.as_fd(), 1 << 20).unwrap();
    }

    #[test]
    fn an_unknown_option_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        assert!(set_int(file.as_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).is_err());
    }
}
