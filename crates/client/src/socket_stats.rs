//! Facts that a look at one stream's socket tells.

use std::time::Duration;

use tune::limiter::{Limiter, Role};
use tune::sample::TcpSample;

/// The buffer that the stream's direction uses, as granted by the kernel, bytes; 0 before any
/// byte moved.
pub(crate) fn buffer(sample: &TcpSample) -> u64 {
    match sample.role() {
        Some(Role::Sender) => sample.send_buffer,
        Some(Role::Receiver) => sample.receive_buffer,
        None => 0,
    }
}

/// Congestion window of a sender; of a receiver the window that it announces, no more than the
/// window scale can express (RFC 7323 §2.2). Bytes.
pub(crate) fn window(sample: &TcpSample) -> u64 {
    match sample.role() {
        Some(Role::Sender) => sample.cwnd,
        _ => sample.receive_window,
    }
}

/// Limiter of the streams as far as this end sees. A sender's kernel keeps accounts of what it waited
/// for so far; a receiver only sees whether bytes wait to be written to the store.
pub(crate) fn limiter(streams: &[TcpSample]) -> Limiter {
    match streams.iter().find_map(TcpSample::role) {
        None => Limiter::Unknown,
        Some(Role::Sender) => of_sender(streams),
        Some(Role::Receiver) => of_receiver(streams),
    }
}

fn of_sender(streams: &[TcpSample]) -> Limiter {
    let sum = |time: fn(&TcpSample) -> Duration| streams.iter().map(time).sum::<Duration>();
    let busy = sum(|s| s.busy_time);
    let (rwnd, sndbuf) = (sum(|s| s.rwnd_limited), sum(|s| s.sndbuf_limited));
    if busy.is_zero() {
        Limiter::Unknown
    } else if rwnd >= sndbuf && rwnd * 2 >= busy {
        Limiter::ReceiveWindow
    } else if sndbuf * 2 >= busy {
        Limiter::SendBuffer
    } else if streams.iter().any(|s| s.retransmits > 0) {
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    }
}

/// Most of the streams' receive memory is full: this end does not read, since it writes. (Linux gives
/// about half of the buffer to the window, tcp_adv_win_scale.)
fn of_receiver(streams: &[TcpSample]) -> Limiter {
    let waits = |s: &&TcpSample| s.receive_queue_memory > s.receive_buffer / 2;
    let waiting = streams.iter().filter(waits).count();
    if waiting * 2 > streams.len() {
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
    fn each_direction_has_its_buffer_and_its_window() {
        let sender = sample(5001, 0);
        assert_eq!((buffer(&sender), window(&sender)), (300, 10_000));
        let receiver = sample(1, 5000);
        assert_eq!((buffer(&receiver), window(&receiver)), (20, 131_070));
    }

    #[test]
    fn a_senders_kernel_tells_what_it_waits_for() {
        let us = Duration::from_micros;
        let with = |rwnd, sndbuf, retransmits| {
            let mut one = sample(5001, 0);
            one.busy_time = us(100);
            one.rwnd_limited = us(rwnd);
            one.sndbuf_limited = us(sndbuf);
            one.retransmits = retransmits;
            limiter(&[one])
        };
        assert_eq!(with(60, 10, 3), Limiter::ReceiveWindow);
        assert_eq!(with(10, 60, 3), Limiter::SendBuffer);
        assert_eq!(with(10, 10, 3), Limiter::Loss);
        assert_eq!(with(10, 10, 0), Limiter::CongestionWindow);
        assert_eq!(limiter(&[]), Limiter::Unknown);
    }

    #[test]
    fn a_receiver_sees_its_own_store() {
        let with = |queued| {
            let mut one = sample(1, 5000);
            one.receive_queue_memory = queued;
            one
        };
        assert_eq!(limiter(&[with(20), with(20), with(0)]), Limiter::StoreWrite);
        assert_eq!(limiter(&[with(20), with(0)]), Limiter::Unknown);
    }

    #[test]
    fn a_connection_is_nobodys_before_a_byte_moved() {
        let fresh = sample(1, 0);
        assert_eq!(fresh.role(), None);
        assert_eq!(buffer(&fresh), 0);
    }
}
