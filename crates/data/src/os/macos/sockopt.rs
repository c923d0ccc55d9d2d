//! Socket options that socket2 does not support.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::Socket;

use super::unsupported;
pub use crate::os::posix::sockopt::{SocketBuffer, get, set_int, set_receive_low_water};
use crate::os::posix::sockopt::{get_int, int};

/// The flag with which a send to a closed peer is an error and no SIGPIPE: none, since programs in Rust ignore SIGPIPE.
pub const NO_SIGNAL: i32 = 0;

/// The flag with which the kernel may wait for the bytes that follow: there is none.
pub const MORE_FOLLOWS: i32 = 0;

/// TCP_NOTSENT_LOWAT of netinet/tcp.h; libc has no name for it.
const TCP_NOTSENT_LOWAT: i32 = 0x201;

/// The kernel takes no rate for one connection, so none is limited.
///
/// # Errors
/// `Unsupported` for any limit.
pub fn set_max_pacing_rate(_fd: BorrowedFd<'_>, rate: Option<u64>) -> io::Result<()> {
    rate.map_or(Ok(()), |_| Err(unsupported()))
}

/// # Errors
/// `Unsupported`: the window follows the buffer.
pub fn set_window_clamp(_fd: BorrowedFd<'_>, _bytes: i32) -> io::Result<()> {
    Err(unsupported())
}

/// Does nothing: the window follows the buffer.
pub fn raise_window_clamp(_fd: BorrowedFd<'_>, _bytes: i32) -> io::Result<()> {
    Ok(())
}

/// Limits the unsent bytes in the send queue (TCP_NOTSENT_LOWAT), bytes.
///
/// # Errors
/// The system's.
pub fn limit_unsent(socket: &Socket, bytes: u32) -> io::Result<()> {
    let bytes = int(bytes.into());
    set_int(socket.as_fd(), libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes)
}

/// # Errors
/// `Unsupported`: connections are accepted before their first bytes.
pub fn defer_accept(_listener: &Socket, _seconds: i32) -> io::Result<()> {
    Err(unsupported())
}

/// # Errors
/// `Unsupported`: only the last close(2) can reset.
pub fn reset(_socket: &Socket) -> io::Result<()> {
    Err(unsupported())
}

/// Does nothing: the kernel's own limit is 64 s (`tcp_timer.h`, TCPTV_REXMTMAX), and cannot be changed for one connection.
pub fn set_max_retransmission_timeout(_fd: BorrowedFd<'_>, _time: Duration) -> io::Result<()> {
    Ok(())
}

/// Twice a buffer's size, bytes: Linux reports it so, and the program counts in its sizes.
pub fn buffer_size(fd: BorrowedFd<'_>, buffer: SocketBuffer) -> io::Result<u64> {
    let size = get_int(fd, libc::SOL_SOCKET, buffer.option())?;
    Ok(u64::try_from(size).unwrap_or(0).saturating_mul(2))
}

/// Requests a buffer of `bytes`, which also ends its autotuning. Returns the size as [`buffer_size`] has it. The kernel
/// refuses what exceeds `kern.ipc.maxsockbuf`, so the request is halved until it does not.
pub fn set_buffer(fd: BorrowedFd<'_>, buffer: SocketBuffer, bytes: u64) -> io::Result<u64> {
    let mut size = int(bytes);
    loop {
        match set_int(fd, libc::SOL_SOCKET, buffer.option(), size) {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && size > 1 => size /= 2,
            set => break set?,
        }
    }
    buffer_size(fd, buffer)
}

/// # Errors
/// `PermissionDenied`: nobody may exceed the system's limit.
pub fn force_buffer(_fd: BorrowedFd<'_>, _buffer: SocketBuffer, _bytes: u64) -> io::Result<u64> {
    Err(io::ErrorKind::PermissionDenied.into())
}

/// # Errors
/// `Unsupported`: a buffer that was set is not autotuned again.
pub fn unlock_buffer(_fd: BorrowedFd<'_>, _buffer: SocketBuffer) -> io::Result<()> {
    Err(unsupported())
}

/// # Errors
/// `Unsupported`: as [`unlock_buffer`].
pub fn grow_receive_buffer(_fd: BorrowedFd<'_>, _bytes: u64) -> io::Result<()> {
    Err(unsupported())
}
