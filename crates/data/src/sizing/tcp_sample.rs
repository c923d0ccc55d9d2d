//! A controller's view of a stream, made of what the kernel shows.

use std::time::Duration;

use tune::limiter::Role;
use tune::sample::TcpSample;

use crate::control::StreamSample;

/// `snd_ssthresh` of a connection that never saw a loss (linux/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// `min_rtt` of a connection that knows none.
const UNKNOWN_RTT: u32 = u32::MAX;

/// The look at one end of a stream, `at` since the transfer began, with so much to read, bytes.
pub(super) fn look(role: Role, at: Duration, sample: &StreamSample, readable: u64) -> TcpSample {
    let (info, memory) = (&sample.info, &sample.memory);
    let micros = |us: u32| Duration::from_micros(us.into());
    let segments = |n: u32| u64::from(n) * u64::from(info.snd_mss);
    let out = info.unacked.saturating_add(info.retrans);
    let (bytes, rtt) = match role {
        Role::Sender => (info.bytes_acked, info.rtt_us),
        Role::Receiver => (info.bytes_received, info.rcv_rtt_us),
    };
    // A receiver sends nothing that would be timed: its smoothed round trip is the handshake's.
    let handshake = if role == Role::Receiver {
        info.rtt_us
    } else {
        0
    };
    let min_rtt = Some(info.min_rtt_us).filter(|us| *us != UNKNOWN_RTT && *us != 0);
    let ceiling = 65_535 << info.rcv_wscale;
    TcpSample {
        stream: sample.stream,
        at,
        bytes,
        smoothed_rtt: micros(rtt),
        min_rtt: micros(min_rtt.unwrap_or(handshake)),
        send_buffer: memory.sndbuf.into(),
        send_queue_memory: memory.wmem_queued.into(),
        unsent: info.notsent_bytes.into(),
        in_flight: segments(out.saturating_sub(info.sacked.saturating_add(info.lost))),
        cwnd: segments(info.snd_cwnd),
        in_slow_start: info.snd_ssthresh >= INFINITE_SSTHRESH,
        peer_window: info.snd_wnd.into(),
        busy_time: Duration::from_micros(info.busy_us),
        rwnd_limited: Duration::from_micros(info.rwnd_limited_us),
        retransmits: info.total_retrans.into(),
        mss: info.snd_mss.into(),
        delivery_rate: info.delivery_rate,
        receive_buffer: memory.rcvbuf.into(),
        receive_queue_memory: memory.rmem_alloc.into(),
        readable,
        // What the kernel shows is not yet cut to what the scale can express.
        receive_window: u64::from(info.rcv_wnd).min(ceiling),
        max_receive_window: ceiling,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tcp_info::{SocketMemory, TcpInfo};

    fn sample() -> StreamSample {
        StreamSample {
            stream: 3,
            info: TcpInfo {
                rcv_wscale: 3,
                rcv_wnd: 5_500_000,
                snd_mss: 1000,
                unacked: 10,
                sacked: 2,
                lost: 3,
                retrans: 1,
                snd_cwnd: 20,
                snd_ssthresh: INFINITE_SSTHRESH,
                rtt_us: 50_000,
                rcv_rtt_us: 70_000,
                min_rtt_us: UNKNOWN_RTT,
                bytes_acked: 11,
                bytes_received: 12,
                ..TcpInfo::default()
            },
            memory: SocketMemory {
                rmem_alloc: 1,
                rcvbuf: 2,
                sndbuf: 3,
                wmem_queued: 4,
            },
        }
    }

    #[test]
    fn a_window_is_no_more_than_its_scale_can_express() {
        let look = look(Role::Receiver, Duration::ZERO, &sample(), 5);
        assert_eq!(look.receive_window, 524_280);
        assert_eq!(look.max_receive_window, 524_280);
    }

    #[test]
    fn a_receiver_counts_what_came_and_knows_the_handshake() {
        let look = look(Role::Receiver, Duration::ZERO, &sample(), 5);
        assert_eq!((look.stream, look.bytes), (3, 12));
        assert_eq!(look.smoothed_rtt, Duration::from_millis(70));
        assert_eq!(look.min_rtt, Duration::from_millis(50));
        assert_eq!((look.receive_buffer, look.receive_queue_memory), (2, 1));
        assert_eq!(look.readable, 5);
    }

    #[test]
    fn a_sender_counts_what_was_acknowledged_and_what_is_out() {
        let at = Duration::from_secs(1);
        let look = look(Role::Sender, at, &sample(), 0);
        assert_eq!((look.at, look.bytes), (at, 11));
        assert_eq!((look.in_flight, look.cwnd), (6_000, 20_000));
        assert_eq!(look.min_rtt, Duration::ZERO);
        assert_eq!((look.send_buffer, look.send_queue_memory), (3, 4));
        assert!(look.in_slow_start);
    }
}
