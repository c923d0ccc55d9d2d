//! Direction, buffer, window and limiter of streams, derived from TCP_INFO and SO_MEMINFO samples.

use std::time::Duration;

use tune::limiter::{Limiter, Role};
use tune::sample::TcpSample;

/// Size of the socket buffer for the stream's direction as granted by the kernel, bytes. 0 before
/// any byte moved.
pub fn buffer(sample: &TcpSample) -> u64 {
    match sample.role() {
        Some(Role::Sender) => sample.send_buffer,
        Some(Role::Receiver) => sample.receive_buffer,
        None => 0,
    }
}

/// Congestion window of a sender. Window announced by a receiver, limited to what its window scale
/// can express (RFC 7323 section 2.2). Bytes.
pub fn window(sample: &TcpSample) -> u64 {
    match sample.role() {
        Some(Role::Sender) => sample.cwnd,
        _ => sample.receive_window,
    }
}

/// Limiter of the streams as seen from this end. A sender's kernel accounts for its waiting time
/// (tcpi_busy_time, tcpi_rwnd_limited, tcpi_sndbuf_limited). A receiver only sees whether received
/// bytes wait to be written to the store.
pub fn limiter(streams: &[TcpSample]) -> Limiter {
    match streams.iter().find_map(TcpSample::role) {
        None => Limiter::Unknown,
        Some(Role::Sender) => sender_limiter(streams),
        Some(Role::Receiver) => receiver_limiter(streams),
    }
}

fn sender_limiter(streams: &[TcpSample]) -> Limiter {
    let sum = |time: fn(&TcpSample) -> Duration| streams.iter().map(time).sum::<Duration>();
    let busy = sum(|s| s.busy_time);
    let (rwnd, sndbuf) = (sum(|s| s.rwnd_limited), sum(|s| s.sndbuf_limited));
    // A limiter counts if it was active for half of the busy time.
    if busy.is_zero() {
        Limiter::Unknown
    } else if rwnd >= sndbuf && rwnd * 2 >= busy {
        // The receive window wins a tie: a full window also fills the send buffer.
        Limiter::ReceiveWindow
    } else if sndbuf * 2 >= busy {
        Limiter::SendBuffer
    } else if streams.iter().any(|s| s.retransmits > 0) {
        // The congestion window limits in both cases. Retransmissions show why it is small.
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    }
}

/// The store is the limiter if the receive buffers of most streams are full, because this end does
/// not read while it writes. Linux uses about half of the buffer for the window: before 6.6 by
/// tcp_adv_win_scale (tcp(7)), since then by a ratio that it measures for each socket.
fn receiver_limiter(streams: &[TcpSample]) -> Limiter {
    let is_full = |s: &&TcpSample| s.receive_queue_memory > s.receive_buffer / 2;
    let full = streams.iter().filter(is_full).count();
    if full * 2 > streams.len() {
        Limiter::StoreWrite
    } else {
        Limiter::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes_acked: u64, bytes_received: u64) -> TcpSample {
        TcpSample {
            stream: 7,
            bytes_acked,
            bytes_received,
            cwnd: 10_000,
            receive_window: 131_070,
            receive_queue_memory: 1,
            receive_buffer: 20,
            send_buffer: 300,
            send_queue_memory: 4000,
            ..TcpSample::default()
        }
    }

    #[test]
    fn buffer_and_window_depend_on_the_direction() {
        let sender = sample(5001, 0);
        assert_eq!((buffer(&sender), window(&sender)), (300, 10_000));
        let receiver = sample(1, 5000);
        assert_eq!((buffer(&receiver), window(&receiver)), (20, 131_070));
    }

    #[test]
    fn the_limiter_of_a_sender_comes_from_its_kernels_accounting() {
        let us = Duration::from_micros;
        let with = |rwnd, sndbuf, retransmits| {
            let mut stream = sample(5001, 0);
            stream.busy_time = us(100);
            stream.rwnd_limited = us(rwnd);
            stream.sndbuf_limited = us(sndbuf);
            stream.retransmits = retransmits;
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
            stream.receive_queue_memory = queued;
            stream
        };
        assert_eq!(limiter(&[with(20), with(20), with(0)]), Limiter::StoreWrite);
        assert_eq!(limiter(&[with(20), with(0)]), Limiter::Unknown);
    }

    #[test]
    fn a_connection_has_no_role_before_a_byte_moved() {
        let fresh = sample(1, 0);
        assert_eq!(fresh.role(), None);
        assert_eq!(buffer(&fresh), 0);
    }
}
