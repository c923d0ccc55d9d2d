//! What a look at one stream's socket tells.

use data::job::StreamSample;
use data::os::TcpInfo;
use tune::limiter::Role;

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

#[cfg(test)]
mod tests {
    use data::os::tcp_info::MemInfo;

    use super::*;

    const MEMORY: MemInfo = MemInfo {
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
    fn a_connection_is_nobodys_before_a_byte_moved() {
        let fresh = sample(1, 0);
        assert_eq!(role(&fresh.info), None);
        assert_eq!(buffer(&fresh), 0);
    }
}
