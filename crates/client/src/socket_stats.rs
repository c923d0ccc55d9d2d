//! Facts that a look at one stream's socket tells.

use data::job::StreamSample;
use data::os::TcpInfo;
use tune::limiter::{Limiter, Role};

/// Which way the stream's bytes go; `None` before any moved.
pub(crate) fn role(info: &TcpInfo) -> Option<Role> {
    // The kernel counts the connection's SYN as acknowledged.
    let sent = info.bytes_sent.max(info.bytes_acked.saturating_sub(1));
    match sent.cmp(&info.bytes_received) {
        std::cmp::Ordering::Greater => Some(Role::Sender),
        std::cmp::Ordering::Less => Some(Role::Receiver),
        std::cmp::Ordering::Equal => None,
    }
}

/// The buffer that the stream's direction uses, as granted by the kernel, bytes; 0 before any
/// byte moved.
pub(crate) fn buffer(sample: &StreamSample) -> u64 {
    match role(&sample.info) {
        Some(Role::Sender) => sample.memory.sndbuf.into(),
        Some(Role::Receiver) => sample.memory.rcvbuf.into(),
        None => 0,
    }
}

/// Congestion window of a sender; of a receiver the window that it announces, no more than the
/// window scale can express (RFC 7323 §2.2). Bytes.
pub(crate) fn window(info: &TcpInfo) -> u64 {
    match role(info) {
        Some(Role::Sender) => u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
        _ => u64::from(info.rcv_wnd).min(0xffff << info.rcv_wscale),
    }
}

/// Limiter of the streams as far as this end sees. A sender's kernel keeps accounts of what it waited
/// for so far; a receiver only sees whether bytes wait to be written to the store.
pub(crate) fn limiter(streams: &[StreamSample]) -> Limiter {
    match streams.iter().find_map(|one| role(&one.info)) {
        None => Limiter::Unknown,
        Some(Role::Sender) => of_sender(streams),
        Some(Role::Receiver) => of_receiver(streams),
    }
}

fn of_sender(streams: &[StreamSample]) -> Limiter {
    let sum = |field: fn(&TcpInfo) -> u64| streams.iter().map(|s| field(&s.info)).sum::<u64>();
    let busy = sum(|s| s.busy_us);
    let (rwnd, sndbuf) = (sum(|s| s.rwnd_limited_us), sum(|s| s.sndbuf_limited_us));
    if busy == 0 {
        Limiter::Unknown
    } else if rwnd >= sndbuf && rwnd * 2 >= busy {
        Limiter::ReceiveWindow
    } else if sndbuf * 2 >= busy {
        Limiter::SendBuffer
    } else if sum(|s| u64::from(s.total_retrans)) > 0 {
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    }
}

/// Most of the streams' receive memory is full: this end does not read, since it writes. (Linux gives
/// about half of the buffer to the window, tcp_adv_win_scale.)
fn of_receiver(streams: &[StreamSample]) -> Limiter {
    let waits = |s: &&StreamSample| s.memory.rmem_alloc > s.memory.rcvbuf / 2;
    let waiting = streams.iter().filter(waits).count();
    if waiting * 2 > streams.len() {
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
    fn each_direction_has_its_buffer_and_its_window() {
        let sender = sample(5001, 0);
        assert_eq!((buffer(&sender), window(&sender.info)), (300, 10_000));
        let receiver = sample(1, 5000);
        assert_eq!((buffer(&receiver), window(&receiver.info)), (20, 131_070));
    }

    #[test]
    fn a_senders_kernel_tells_what_it_waits_for() {
        let with = |rwnd, sndbuf, retransmits| {
            let mut one = sample(5001, 0);
            one.info.busy_us = 100;
            one.info.rwnd_limited_us = rwnd;
            one.info.sndbuf_limited_us = sndbuf;
            one.info.total_retrans = retransmits;
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
            one.memory.rmem_alloc = queued;
            one
        };
        assert_eq!(limiter(&[with(20), with(20), with(0)]), Limiter::StoreWrite);
        assert_eq!(limiter(&[with(20), with(0)]), Limiter::Unknown);
    }

    #[test]
    fn a_connection_is_nobodys_before_a_byte_moved() {
        let fresh = sample(1, 0);
        assert_eq!(role(&fresh.info), None);
        assert_eq!(buffer(&fresh), 0);
    }
}
