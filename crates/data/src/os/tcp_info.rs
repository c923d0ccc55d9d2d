//! TCP_INFO and SO_MEMINFO, read by the length the running kernel returns.
//!
//! The structs of libc are older than the kernel's; fields are therefore taken from the raw bytes
//! at the offsets of linux/tcp.h, which only ever grows at its end.

use std::io;
use std::os::fd::BorrowedFd;

use super::sockopt;

/// The fields of Linux `tcp_info` that longhaul uses; absent ones (older kernels) are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "named as in linux/tcp.h, without the tcpi_ prefix"
)]
pub struct TcpInfo {
    pub state: u8,
    pub ca_state: u8,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub rcv_rtt_us: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub notsent_bytes: u32,
    pub min_rtt_us: u32,
    pub delivery_rate: u64,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub snd_wnd: u32,
    /// Before Linux 6.2, which does not tell it, `rcv_ssthresh`: the most that it would be.
    pub rcv_wnd: u32,
}

/// Memory of a socket as SO_MEMINFO tells it, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Received and not yet read.
    pub rmem_alloc: u32,
    /// Receive buffer granted.
    pub rcvbuf: u32,
    /// Send buffer granted.
    pub sndbuf: u32,
    /// Queued to send.
    pub wmem_queued: u32,
}

impl SocketMemory {
    /// Memory that the socket's two queues hold now, bytes.
    pub fn held(&self) -> u64 {
        u64::from(self.rmem_alloc) + u64::from(self.wmem_queued)
    }
}

/// `state` of a connection that is open in both directions.
pub const ESTABLISHED: u8 = 1;
/// `state` after our FIN was sent but not acknowledged.
pub const FIN_WAIT1: u8 = 4;
/// `state` after the peer's FIN came before ours.
pub const CLOSE_WAIT: u8 = 8;
/// `state` while our FIN, sent after the peer's, waits for its acknowledgement.
pub const LAST_ACK: u8 = 9;
/// `state` while both ends' FINs crossed and ours waits for its acknowledgement.
pub const CLOSING: u8 = 11;

/// More than any kernel returns today (280 bytes in 6.18).
const ROOM: usize = 512;

/// A raw answer: `tcp_info` is native-endian.
struct RawOptionValue {
    bytes: [u8; ROOM],
    len: usize,
}

impl RawOptionValue {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        if at + N <= self.len {
            out.copy_from_slice(&self.bytes[at..at + N]);
        }
        out
    }

    fn u8(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
}

fn read(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<RawOptionValue> {
    let mut bytes = [0; ROOM];
    let len = sockopt::get(fd, level, name, &mut bytes)?;
    Ok(RawOptionValue { bytes, len })
}

/// TCP_INFO of a socket. One call costs about half a microsecond.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    read(fd, libc::IPPROTO_TCP, libc::TCP_INFO).map(|raw| parse(&raw))
}

fn parse(raw: &RawOptionValue) -> TcpInfo {
    let scales = raw.u8(6);
    TcpInfo {
        state: raw.u8(0),
        ca_state: raw.u8(1),
        snd_wscale: scales & 0x0f,
        rcv_wscale: scales >> 4,
        snd_mss: raw.u32(16),
        rcv_mss: raw.u32(20),
        unacked: raw.u32(24),
        sacked: raw.u32(28),
        lost: raw.u32(32),
        retrans: raw.u32(36),
        rtt_us: raw.u32(68),
        rttvar_us: raw.u32(72),
        snd_ssthresh: raw.u32(76),
        snd_cwnd: raw.u32(80),
        rcv_rtt_us: raw.u32(92),
        rcv_space: raw.u32(96),
        total_retrans: raw.u32(100),
        pacing_rate: raw.u64(104),
        bytes_acked: raw.u64(120),
        bytes_received: raw.u64(128),
        notsent_bytes: raw.u32(144),
        min_rtt_us: raw.u32(148),
        delivery_rate: raw.u64(160),
        busy_us: raw.u64(168),
        rwnd_limited_us: raw.u64(176),
        sndbuf_limited_us: raw.u64(184),
        bytes_sent: raw.u64(200),
        bytes_retrans: raw.u64(208),
        snd_wnd: raw.u32(228),
        rcv_wnd: if raw.len >= 236 {
            raw.u32(232)
        } else {
            raw.u32(64)
        },
    }
}

/// SO_MEMINFO of a socket.
pub fn socket_memory(fd: BorrowedFd<'_>) -> io::Result<SocketMemory> {
    let raw = read(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(SocketMemory {
        rmem_alloc: raw.u32(0),
        rcvbuf: raw.u32(4),
        sndbuf: raw.u32(12),
        wmem_queued: raw.u32(20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_live_connection_shows_its_bytes_and_buffers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        let info = tcp_info(far.as_fd()).unwrap();
        assert_eq!(info.state, ESTABLISHED);
        assert_eq!(info.bytes_received, 5000);
        assert!(tcp_info(near.as_fd()).unwrap().snd_mss > 0);
        let memory = socket_memory(near.as_fd()).unwrap();
        assert!(memory.sndbuf >= 4096 && memory.rcvbuf >= 2304);
    }

    #[test]
    fn fields_beyond_the_returned_length_are_zero() {
        let raw = RawOptionValue {
            bytes: [0xff; ROOM],
            len: 104,
        };
        let info = parse(&raw);
        assert_eq!(info.total_retrans, u32::MAX);
        assert_eq!(info.pacing_rate, 0);
        assert_eq!(info.snd_wnd, 0);
    }

    #[test]
    fn an_old_kernels_window_is_the_most_that_it_would_announce() {
        let mut raw = RawOptionValue {
            bytes: [0; ROOM],
            len: 232,
        };
        raw.bytes[64..68].copy_from_slice(&65_536_u32.to_ne_bytes());
        assert_eq!(parse(&raw).rcv_wnd, 65_536);
        // One that tells it may announce nothing.
        raw.len = 236;
        assert_eq!(parse(&raw).rcv_wnd, 0);
    }
}
