//! Socket options that socket2 does not support.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::Socket;

pub(super) use crate::os::posix::sockopt::set;
pub use crate::os::posix::sockopt::{SocketBuffer, get, set_int, set_receive_low_water};
use crate::os::posix::sockopt::{get_int, int};

/// The flag with which a send to a closed peer is an error and no SIGPIPE (send(2)).
pub const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;

/// The flag with which the kernel may wait for the bytes that follow.
pub const MORE_FOLLOWS: i32 = libc::MSG_MORE;

/// Limits the pacing rate, bytes per second; `None`: no limit (SO_MAX_PACING_RATE, socket(7)). Once
/// set, the kernel continues to pace the connection, without a limit after `None`.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, rate: Option<u64>) -> io::Result<()> {
    // Linux before 4.20, and 32-bit systems, take 32 bits. All ones mean no limit there, too.
    let rate = rate.map_or(libc::c_ulong::MAX, |rate| {
        libc::c_ulong::try_from(rate).unwrap_or(libc::c_ulong::MAX)
    });
    let (level, name) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    set(fd, level, name, &rate.to_ne_bytes())
}

/// See [`set_max_pacing_rate`].
#[cfg(test)]
pub(crate) fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let mut out = [0; size_of::<libc::c_ulong>()];
    get(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut out)?;
    let rate = libc::c_ulong::from_ne_bytes(out);
    Ok((rate != libc::c_ulong::MAX).then_some(rate))
}

/// Limits the advertised window (TCP_WINDOW_CLAMP, tcp(7)).
pub fn set_window_clamp(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)
}

/// Permits the advertised window to grow to `bytes`. On Linux before 7.1 a larger SO_RCVBUF does not lift the limit of a live
/// connection.
pub fn raise_window_clamp(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_window_clamp(fd, bytes)
}

/// Limits the unsent bytes in the send queue (TCP_NOTSENT_LOWAT, tcp(7)), bytes.
///
/// # Errors
/// Older kernels and containers may not support it.
pub fn limit_unsent(socket: &Socket, bytes: u32) -> io::Result<()> {
    socket.set_tcp_notsent_lowat(bytes)
}

/// Lets the kernel hold a connection back, at most this long, until its first bytes arrive (TCP_DEFER_ACCEPT, tcp(7)).
pub fn defer_accept(listener: &Socket, seconds: i32) -> io::Result<()> {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    set_int(listener.as_fd(), level, name, seconds)
}

/// Ends a connection with a reset instead of a FIN, at once, and discards queued bytes (connect(2) with AF_UNSPEC). close(2)
/// would wait for the last owner of the descriptor.
pub fn reset(socket: &Socket) -> io::Result<()> {
    Ok(rustix::net::connect_unspec(socket)?)
}

/// TCP_RTO_MAX_MS of linux/tcp.h, since Linux 6.15; libc has no name for it yet.
const TCP_RTO_MAX_MS: i32 = 44;

/// Sets the longest time after which an unacknowledged segment is sent again, 1 to 120 s (`net.ipv4.tcp_rto_max_ms`).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.15: it is 120 s there.
pub fn set_max_retransmission_timeout(fd: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let time = time.clamp(Duration::from_secs(1), Duration::from_secs(120));
    let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    set_int(fd, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, millis)
}

impl SocketBuffer {
    const fn force_option(self) -> i32 {
        match self {
            Self::Send => libc::SO_SNDBUFFORCE,
            Self::Receive => libc::SO_RCVBUFFORCE,
        }
    }

    /// Its bit in SO_BUF_LOCK (linux/socket.h).
    const fn lock_bit(self) -> i32 {
        match self {
            Self::Send => 1,
            Self::Receive => 2,
        }
    }
}

/// A buffer's size as the kernel reports it, bytes: twice the requested size (socket(7)).
pub fn buffer_size(fd: BorrowedFd<'_>, buffer: SocketBuffer) -> io::Result<u64> {
    get_int(fd, libc::SOL_SOCKET, buffer.option()).map(|n| u64::try_from(n).unwrap_or(0))
}

/// Requests a buffer of `bytes`, which also ends its autotuning. Returns the size that the kernel
/// reports afterwards. The kernel reduces the request to `net.core.wmem_max` or `rmem_max` without
/// an error.
pub fn set_buffer(fd: BorrowedFd<'_>, buffer: SocketBuffer, bytes: u64) -> io::Result<u64> {
    // Read back, because the kernel reduces sizes without an error.
    set_int(fd, libc::SOL_SOCKET, buffer.option(), int(bytes))?;
    buffer_size(fd, buffer)
}

/// As [`set_buffer`], beyond the system's limits (SO_SNDBUFFORCE, SO_RCVBUFFORCE).
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN in the initial user namespace.
pub fn force_buffer(fd: BorrowedFd<'_>, buffer: SocketBuffer, bytes: u64) -> io::Result<u64> {
    set_int(fd, libc::SOL_SOCKET, buffer.force_option(), int(bytes))?;
    buffer_size(fd, buffer)
}

/// Whether a buffer was set explicitly, so that it is not autotuned.
#[cfg(test)]
pub(crate) fn is_locked(fd: BorrowedFd<'_>, buffer: SocketBuffer) -> io::Result<bool> {
    let locked = get_int(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK)?;
    Ok(locked & buffer.lock_bit() != 0)
}

/// Returns a buffer to autotuning (SO_BUF_LOCK). Its size stays until the kernel changes it.
///
/// # Errors
/// Linux before 5.15 does not know the option.
pub fn unlock_buffer(fd: BorrowedFd<'_>, buffer: SocketBuffer) -> io::Result<()> {
    let locked = get_int(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK)?;
    // The options share one bit mask, so the other buffer's bit must be kept.
    let remaining = locked & !buffer.lock_bit();
    set_int(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK, remaining)
}

/// Grows an unlocked receive buffer until it holds a window of `bytes`, at most half of the largest
/// `net.ipv4.tcp_rmem`, and leaves it to autotuning. Setting SO_RCVLOWAT grows the buffer as a side
/// effect; the old value is restored.
pub fn grow_receive_buffer(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, int(bytes))?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_option_reads_back() {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
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

    fn tcp() -> Socket {
        Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap()
    }

    #[test]
    fn buffers_are_reported_as_twice_the_requested_size() {
        for buffer in [SocketBuffer::Send, SocketBuffer::Receive] {
            let socket = tcp();
            let reported = set_buffer(socket.as_fd(), buffer, 50_000).unwrap();
            assert_eq!(reported, 100_000);
            assert_eq!(buffer_size(socket.as_fd(), buffer).unwrap(), 100_000);
            // A size that no system allows is reduced, not refused.
            let largest = set_buffer(socket.as_fd(), buffer, u64::MAX).unwrap();
            assert!((100_000..1 << 31).contains(&largest), "{largest}");
        }
    }

    #[test]
    fn a_forced_size_exceeds_the_limit_or_is_denied() {
        let socket = tcp();
        let cut = set_buffer(socket.as_fd(), SocketBuffer::Send, 1 << 29).unwrap();
        match force_buffer(socket.as_fd(), SocketBuffer::Send, 1 << 29) {
            Ok(forced) => assert!(forced >= cut, "{forced} {cut}"),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn unlocking_one_buffer_leaves_the_other_locked() {
        let socket = tcp();
        for buffer in [SocketBuffer::Send, SocketBuffer::Receive] {
            set_buffer(socket.as_fd(), buffer, 50_000).unwrap();
        }
        unlock_buffer(socket.as_fd(), SocketBuffer::Receive).unwrap();
        assert!(is_locked(socket.as_fd(), SocketBuffer::Send).unwrap());
        assert!(!is_locked(socket.as_fd(), SocketBuffer::Receive).unwrap());
    }

    #[test]
    fn an_unlocked_receive_buffer_grows_without_being_locked() {
        let socket = tcp();
        set_buffer(socket.as_fd(), SocketBuffer::Receive, 20_000).unwrap();
        unlock_buffer(socket.as_fd(), SocketBuffer::Receive).unwrap();
        grow_receive_buffer(socket.as_fd(), 200_000).unwrap();
        assert!(buffer_size(socket.as_fd(), SocketBuffer::Receive).unwrap() >= 200_000);
        let low_water = get_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT).unwrap();
        assert_eq!(low_water, 1);
    }

    #[test]
    fn a_pacing_rate_is_set_and_lifted() {
        let socket = tcp();
        assert_eq!(max_pacing_rate(socket.as_fd()).unwrap(), None);
        // Rates above 32 bits work, too.
        for rate in [1_000_000, 1 << 40] {
            set_max_pacing_rate(socket.as_fd(), Some(rate)).unwrap();
            assert_eq!(max_pacing_rate(socket.as_fd()).unwrap(), Some(rate));
        }
        set_max_pacing_rate(socket.as_fd(), None).unwrap();
        assert_eq!(max_pacing_rate(socket.as_fd()).unwrap(), None);
    }

    #[test]
    fn an_unknown_option_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        assert!(set_int(file.as_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).is_err());
    }
}
