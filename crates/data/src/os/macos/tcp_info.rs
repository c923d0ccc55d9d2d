//! Reads TCP_CONNECTION_INFO and the socket's buffers into a [`TcpSample`].
//!
//! The kernel tells less than that of Linux: no smallest round-trip time, no times in which the window or the buffer was the
//! limit, no rates. These fields stay zero, which the policies take for unknown.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use tune::sample::TcpSample;

use super::sockopt::{SocketBuffer, buffer_size};
use crate::os::posix::sockopt::get_int;

/// State of a connection that is open in both directions (`TCPS_ESTABLISHED` of netinet/tcp_fsm.h).
pub const ESTABLISHED: u8 = 4;
/// After the peer's FIN came before ours.
pub const CLOSE_WAIT: u8 = 5;
/// After this end's FIN was sent and before it is acknowledged.
pub const FIN_WAIT1: u8 = 6;
/// After the FINs of both ends crossed, while this end's is not acknowledged.
pub const CLOSING: u8 = 7;
/// While this end's FIN, sent after the peer's, is not acknowledged.
pub const LAST_ACK: u8 = 8;
/// Without a connection.
const CLOSED: u8 = 0;

fn connection_info(fd: BorrowedFd<'_>) -> io::Result<libc::tcp_connection_info> {
    let mut info = MaybeUninit::<libc::tcp_connection_info>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_connection_info>()).unwrap_or(0);
    // SAFETY: `info` is valid for writes of `len` bytes, and the kernel writes no more. The descriptor is open for the
    // borrow's lifetime.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONNECTION_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all fields are integers, for which zero is valid, and the kernel has written others over some of them.
    Ok(unsafe { info.assume_init() })
}

/// Reads TCP_CONNECTION_INFO of a socket.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpSample> {
    let info = connection_info(fd)?;
    let queued = u64::from(info.tcpi_snd_sbbytes);
    let sent = info
        .tcpi_txbytes
        .saturating_sub(info.tcpi_txretransmitbytes);
    let mss = u64::from(info.tcpi_maxseg);
    let max_receive_window = 65_535 << info.tcpi_rcv_wscale.min(14);
    Ok(TcpSample {
        // The queue holds bytes that were not sent, too: this is the least that is acknowledged, and exact at the end.
        bytes_acked: sent.saturating_sub(queued),
        bytes_received: info.tcpi_rxbytes,
        bytes_sent: info.tcpi_txbytes,
        smoothed_rtt: Duration::from_millis(info.tcpi_srtt.into()),
        unacked: queued.min(info.tcpi_snd_cwnd.into()),
        in_flight: queued.min(info.tcpi_snd_cwnd.into()),
        cwnd: info.tcpi_snd_cwnd.into(),
        in_slow_start: info.tcpi_snd_cwnd < info.tcpi_snd_ssthresh,
        peer_window: info.tcpi_snd_wnd.into(),
        retransmits: info.tcpi_txretransmitbytes.checked_div(mss).unwrap_or(0),
        mss,
        receive_window: u64::from(info.tcpi_rcv_wnd).min(max_receive_window),
        max_receive_window,
        ..TcpSample::default()
    })
}

/// Returns the TCP state of a socket.
pub fn tcp_state(fd: BorrowedFd<'_>) -> io::Result<u8> {
    match connection_info(fd) {
        // The kernel has forgotten the connection: both FINs were acknowledged, or it was reset, which leaves an error.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(CLOSED),
        info => info.map(|info| info.tcpi_state),
    }
}

/// Adds the sizes and use of the socket's buffers (SO_NREAD, SO_NWRITE) to a sample.
pub fn add_socket_memory(fd: BorrowedFd<'_>, sample: &mut TcpSample) -> io::Result<()> {
    let queued = |name| {
        let bytes = get_int(fd, libc::SOL_SOCKET, name);
        bytes.map(|bytes| u64::try_from(bytes).unwrap_or(0))
    };
    sample.receive_queue_memory = queued(libc::SO_NREAD)?;
    sample.receive_buffer = buffer_size(fd, SocketBuffer::Receive)?;
    sample.send_buffer = buffer_size(fd, SocketBuffer::Send)?;
    sample.send_queue_memory = queued(libc::SO_NWRITE)?;
    Ok(())
}
