//! Direction, buffer, window and limiter of streams, derived from TCP_INFO and SO_MEMINFO samples.

use data::job::StreamSample;
use data::os::TcpInfo;
use tune::limiter::{Limiter, Role};

/// Direction of the stream's data. `None` before any byte moved.
pub(crate) fn role(info: &TcpInfo) -> Option<Role> {
    // The kernel counts the SYN of the connection as one acknowledged byte.
    let sent = info.bytes_sent.max(info.bytes_acked.saturating_sub(1));
    match sent.cmp(&info.bytes_received) {
        std::cmp::Ordering::Greater => Some(Role::Sender),
        std::cmp::Ordering::Less => Some(Role::Receiver),
        std::cmp::Ordering::Equal => None,
    }
}

/// Size of the socket buffer for the stream's direction as granted by the kernel, bytes. 0 before
/// any byte moved.
pub(crate) fn buffer(sample: &StreamSample) -> u64 {
    match role(&sample.info) {
        Some(Role::Sender) => sample.memory.sndbuf.into(),
        Some(Role::Receiver) => sample.memory.rcvbuf.into(),
        None => 0,
    }
}

/// Congestion window of a sender. Window announced by a receiver, limited to what its window scale
/// can express (RFC 7323 section 2.2). Bytes.
pub(crate) fn window(info: &TcpInfo) -> u64 {
    match role(info) {
        Some(Role::Sender) => u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
        _ => u64::from(info.rcv_wnd).min(0xffff << info.rcv_wscale),
    }
}

/// Limiter of the streams as seen from this end. A sender's kernel accounts for its waiting time
/// (tcpi_busy_time, tcpi_rwnd_limited, tcpi_sndbuf_limited). A receiver only sees whether received
/// bytes wait to be written to the store.
pub(crate) fn limiter(streams: &[StreamSample]) -> Limiter {
    match streams.iter().find_map(|stream| role(&stream.info)) {
        None => Limiter::Unknown,
        Some(Role::Sender) => sender_limiter(streams),
        Some(Role::Receiver) => receiver_limiter(streams),
    }
}

fn sender_limiter(streams: &[StreamSample]) -> Limiter {
    let sum = |field: fn(&TcpInfo) -> u64| streams.iter().map(|s| field(&s.info)).sum::<u64>();
    let busy = sum(|s| s.busy_us);
    let (rwnd, sndbuf) = (sum(|s| s.rwnd_limited_us), sum(|s| s.sndbuf_limited_us));
    // A limiter counts if it was active for half of the busy time.
    if busy == 0 {
        Limiter::Unknown
    } else if rwnd >= sndbuf && rwnd * 2 >= busy {
        // The receive window wins a tie: a full window also fills the send buffer.
        Limiter::ReceiveWindow
    } else if sndbuf * 2 >= busy {
        Limiter::SendBuffer
    } else if sum(|s| u64::from(s.total_retrans)) > 0 {
        // The congestion window limits in both cases. Retransmissions show why it is small.
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    }
}

/// The store is the limiter if the receive buffers of most streams are full, because this end does
/// not read while it writes. Linux uses about half of the buffer for the window (tcp_adv_win_scale,
/// tcp(7)).
fn receiver_limiter(streams: &[StreamSample]) -> Limiter {
    let is_full = |s: &&StreamSample| s.memory.rmem_alloc > s.memory.rcvbuf / 2;
    let full = streams.iter().filter(is_full).count();
    if full * 2 > streams.len() {
        Limiter::StoreWrite
    } else {
        Limiter::Unknown
    }
}

#[cfg(test)]
mod tests {
    use data::os::tcp_info::SocketMemory;

    use super::*;

    const MEMORY: SocketMemory = SocketMemory {
        rmem_alloc: 1,
        rcvbuf: 20,
        sndbuf: 300,
        wmem_queued: 4000,
    };

    fn sample(bytes_acked: u64, bytes_received: u64) -> StreamSample {
        StreamSample {
            stream: 7,
            info: TcpInfo {
                bytes_acked,
                bytes_received,
                snd_cwnd: 10,
                snd_mss: 1000,
                rcv_wnd: 1 << 20,
                rcv_wscale: 1,
                ..TcpInfo::default()
            },
            memory: MEMORY,
        }
    }

    #[test]
    fn buffer_and_window_depend_on_the_direction() {
        let sender = sample(5001, 0);
        assert_eq!((buffer(&sender), window(&sender.info)), (300, 10_000));
        let receiver = sample(1, 5000);
        assert_eq!((buffer(&receiver), window(&receiver.info)), (20, 131_070));
    }

    #[test]
    fn the_limiter_of_a_sender_comes_from_its_kernels_accounting() {
        let with = |rwnd, sndbuf, retransmits| {
            let mut stream = sample(5001, 0);
            stream.info.busy_us = 100;
            stream.info.rwnd_limited_us = rwnd;
            stream.info.sndbuf_limited_us = sndbuf;
            stream.info.total_retrans = retransmits;
            limiter(&[stream])
        };
        assert_eq!(with(60, 10, 3), Limiter::ReceiveWindow);
        assert_eq!(with(10, 60, 3), Limiter::SendBuffer);
        assert_eq!(with(10, 10, 3), Limiter::Loss);
        assert_eq!(with(10, 10, 0), Limiter::CongestionWindow);
        assert_eq!(limiter(&[]), Limiter::Unknown);
    }

    #[test]
    fn a_receiver_with_full_buffers_is_limited_by_its_store() {
        let with = |queued| {
            let mut stream = sample(1, 5000);
            stream.memory.rmem_alloc = queued;
            stream
        };
        assert_eq!(limiter(&[with(20), with(20), with(0)]), Limiter::StoreWrite);
        assert_eq!(limiter(&[with(20), with(0)]), Limiter::Unknown);
    }

    #[test]
    fn a_connection_has_no_role_before_a_byte_moved() {
        let fresh = sample(1, 0);
        assert_eq!(role(&fresh.info), None);
        assert_eq!(buffer(&fresh), 0);
    }
}
