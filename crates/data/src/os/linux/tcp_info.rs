//! Reads TCP_INFO and SO_MEMINFO into a [`TcpSample`].
//!
//! The structs of libc are older than the kernel's. The fields are therefore read from the raw
//! bytes at their offsets in linux/tcp.h, up to the length that the running kernel returns. The
//! kernel adds fields only at the end of the struct.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tune::sample::TcpSample;

use super::sockopt;

/// `tcpi_snd_ssthresh` of a connection without a loss so far (TCP_INFINITE_SSTHRESH in the
/// kernel's net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// `tcpi_min_rtt` of a connection without a measurement.
const UNKNOWN_RTT: u32 = u32::MAX;

/// `tcpi_state` of a connection that is open in both directions.
pub const ESTABLISHED: u8 = 1;
/// `tcpi_state` after this end's FIN was sent and before it is acknowledged.
pub const FIN_WAIT1: u8 = 4;
/// `tcpi_state` after the peer's FIN came before ours.
pub const CLOSE_WAIT: u8 = 8;
/// `tcpi_state` while this end's FIN, sent after the peer's, is not acknowledged.
pub const LAST_ACK: u8 = 9;
/// `tcpi_state` after the FINs of both ends crossed, while this end's is not acknowledged.
pub const CLOSING: u8 = 11;

/// Bytes reserved for an option; more than today's kernels return (280 in Linux 6.18).
const MAX_OPTION_LEN: usize = 512;

/// The bytes of a socket option as the kernel wrote them, in native byte order. A field beyond the
/// returned length, which an older kernel does not have, reads as zero.
struct RawOptionValue {
    bytes: [u8; MAX_OPTION_LEN],
    len: usize,
}

impl RawOptionValue {
    fn read(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<Self> {
        let mut bytes = [0; MAX_OPTION_LEN];
        let len = sockopt::get(fd, level, name, &mut bytes)?;
        Ok(Self { bytes, len })
    }

    fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Self::read(fd, libc::IPPROTO_TCP, libc::TCP_INFO)
    }

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

    /// A 32-bit count.
    fn count(&self, at: usize) -> u64 {
        self.u32(at).into()
    }

    /// A 32-bit time in microseconds.
    fn micros(&self, at: usize) -> Duration {
        Duration::from_micros(self.count(at))
    }

    /// A 64-bit time in microseconds.
    fn long_micros(&self, at: usize) -> Duration {
        Duration::from_micros(self.u64(at))
    }
}

/// Reads TCP_INFO of a socket. The fields of SO_MEMINFO and SIOCINQ stay zero. One call takes about
/// half a microsecond.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpSample> {
    RawOptionValue::tcp_info(fd).map(|raw| sample(&raw))
}

/// Returns the TCP state of a socket (`tcpi_state`).
pub fn tcp_state(fd: BorrowedFd<'_>) -> io::Result<u8> {
    RawOptionValue::tcp_info(fd).map(|raw| raw.u8(0))
}

/// Adds the sizes and memory use of the socket's buffers (SO_MEMINFO) to a sample.
pub fn add_socket_memory(fd: BorrowedFd<'_>, sample: &mut TcpSample) -> io::Result<()> {
    let raw = RawOptionValue::read(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    // Indices of SK_MEMINFO_* in linux/sock_diag.h, four bytes each.
    sample.receive_queue_memory = raw.count(0);
    sample.receive_buffer = raw.count(4);
    sample.send_buffer = raw.count(12);
    sample.send_queue_memory = raw.count(20);
    Ok(())
}

/// Converts a `struct tcp_info` to a sample. The numbers are the offsets of its fields.
fn sample(raw: &RawOptionValue) -> TcpSample {
    let mss = raw.count(16);
    let [unacked, sacked, lost, retrans] = [24, 28, 32, 36].map(|at| raw.u32(at));
    // As the kernel's `tcp_packets_in_flight`; TCP_INFO contains only its terms.
    let sent = unacked.saturating_add(retrans);
    let in_flight = sent.saturating_sub(sacked.saturating_add(lost));
    let min_rtt = Some(raw.u32(148)).filter(|us| *us != UNKNOWN_RTT);
    let max_receive_window = 65_535 << (raw.u8(6) >> 4);
    TcpSample {
        bytes_acked: raw.u64(120),
        bytes_received: raw.u64(128),
        bytes_sent: raw.u64(200),
        smoothed_rtt: raw.micros(68),
        min_rtt: Duration::from_micros(min_rtt.unwrap_or_default().into()),
        receiver_rtt: raw.micros(92),
        unsent: raw.count(144),
        unacked: u64::from(unacked) * mss,
        in_flight: u64::from(in_flight) * mss,
        cwnd: raw.count(80) * mss,
        in_slow_start: raw.u32(76) >= INFINITE_SSTHRESH,
        peer_window: raw.count(228),
        busy_time: raw.long_micros(168),
        rwnd_limited: raw.long_micros(176),
        sndbuf_limited: raw.long_micros(184),
        retransmits: raw.count(100),
        mss,
        delivery_rate: raw.u64(160),
        pacing_rate: raw.u64(104),
        // The kernel's value may exceed what the window scale can express.
        receive_window: announced_window(raw).min(max_receive_window),
        max_receive_window,
        ..TcpSample::default()
    }
}

/// Returns `tcpi_rcv_wnd`. Before Linux 6.2, which does not have it, returns `tcpi_rcv_ssthresh`,
/// the most that the kernel would announce.
fn announced_window(raw: &RawOptionValue) -> u64 {
    if raw.len >= 236 {
        raw.count(232)
    } else {
        raw.count(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use tune::limiter::Role;

    #[test]
    fn a_live_connection_reports_its_bytes_and_buffers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(tcp_state(far.as_fd()).unwrap(), ESTABLISHED);
        let info = tcp_info(far.as_fd()).unwrap();
        assert_eq!(info.bytes(Role::Receiver), 5000);
        let mut info = tcp_info(near.as_fd()).unwrap();
        assert!(info.mss > 0);
        add_socket_memory(near.as_fd(), &mut info).unwrap();
        assert!(info.send_buffer >= 4096 && info.receive_buffer >= 2304);
    }

    /// A `tcp_info` of `len` bytes with 32-bit fields at these offsets.
    fn raw(len: usize, fields: &[(usize, u32)]) -> RawOptionValue {
        let mut raw = RawOptionValue {
            bytes: [0; MAX_OPTION_LEN],
            len,
        };
        for (at, value) in fields {
            raw.bytes[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        raw
    }

    #[test]
    fn fields_beyond_the_returned_length_are_zero() {
        let raw = RawOptionValue {
            bytes: [0xff; MAX_OPTION_LEN],
            len: 104,
        };
        let info = sample(&raw);
        assert_eq!(info.retransmits, u64::from(u32::MAX));
        assert_eq!((info.bytes_acked, info.delivery_rate), (0, 0));
        assert_eq!(info.peer_window, 0);
    }

    #[test]
    fn without_rcv_wnd_the_window_is_rcv_ssthresh() {
        let rcv_ssthresh = [(64, 60_000)];
        assert_eq!(sample(&raw(232, &rcv_ssthresh)).receive_window, 60_000);
        // A kernel that has `tcpi_rcv_wnd` may announce a window of zero.
        assert_eq!(sample(&raw(236, &rcv_ssthresh)).receive_window, 0);
    }

    #[test]
    fn the_receive_window_is_limited_by_the_window_scale() {
        let mut raw = raw(236, &[(232, 5_500_000)]);
        raw.bytes[6] = 3 << 4;
        let info = sample(&raw);
        assert_eq!(
            (info.receive_window, info.max_receive_window),
            (524_280, 524_280)
        );
    }

    #[test]
    fn segments_are_counted_in_bytes() {
        let (unacked, sacked, lost, retrans) = ((24, 10), (28, 2), (32, 3), (36, 1));
        let fields = [(16, 1000), unacked, sacked, lost, retrans, (80, 20)];
        let info = sample(&raw(280, &fields));
        assert_eq!((info.unacked, info.in_flight), (10_000, 6_000));
        assert_eq!(info.cwnd, 20_000);
        assert!(!info.in_slow_start);
        assert!(sample(&raw(280, &[(76, INFINITE_SSTHRESH)])).in_slow_start);
    }

    #[test]
    fn a_receiver_without_min_rtt_uses_the_handshake_rtt() {
        let fields = [(68, 50_000), (92, 70_000), (148, UNKNOWN_RTT)];
        let info = sample(&raw(280, &fields));
        assert_eq!(info.min_rtt, Duration::ZERO);
        assert_eq!(info.rtt_without_queue(), Duration::from_millis(50));
        assert_eq!(info.receiver_rtt, Duration::from_millis(70));
    }
}
