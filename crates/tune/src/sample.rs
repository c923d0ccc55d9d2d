//! One sample of a stream, as its kernel shows it, and the difference of two samples.

use std::time::Duration;

use units::bytes_per_second;

use crate::limiter::Role;

/// Number of a stream, unique in this process.
pub type StreamId = u64;

/// MSS of a stream whose kernel does not report it: Ethernet's 1500 bytes less IPv4, TCP and the
/// timestamp option.
const DEFAULT_MSS: u64 = 1448;

/// One reading of a stream's kernel state: TCP_INFO, SO_MEMINFO and SIOCINQ (tcp(7)). A field that the
/// kernel does not report is zero. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TcpSample {
    /// The stream.
    pub stream: StreamId,
    /// Time since the transfer began.
    pub at: Duration,
    /// Bytes that the peer acknowledged (`tcpi_bytes_acked`). The end that connected counts its SYN, too.
    pub bytes_acked: u64,
    /// Payload received in order (`tcpi_bytes_received`).
    pub bytes_received: u64,
    /// Payload sent, retransmissions included; Linux 4.19 and newer (`tcpi_bytes_sent`).
    pub bytes_sent: u64,
    /// Smoothed round trip (`tcpi_rtt`). A receiver sends nothing that would be timed: its value is that
    /// of the handshake.
    pub smoothed_rtt: Duration,
    /// Smallest round trip of the last five minutes (`tcpi_min_rtt`).
    pub min_rtt: Duration,
    /// A receiver's own estimate of the round trip (`tcpi_rcv_rtt`).
    pub receiver_rtt: Duration,
    /// Send buffer as reported: twice what was asked for (socket(7)).
    pub send_buffer: u64,
    /// Memory of everything queued to send that is not acknowledged yet, sent or not.
    pub send_queue_memory: u64,
    /// Payload written and not sent yet (`tcpi_notsent_bytes`).
    pub unsent: u64,
    /// Payload sent and not acknowledged (`tcpi_unacked`).
    pub unacked: u64,
    /// Payload in the network: `unacked` without what was selectively acknowledged or lost (the `pipe`
    /// of RFC 6675).
    pub in_flight: u64,
    /// Congestion window.
    pub cwnd: u64,
    /// The stream is in its first slow start: no loss has set `ssthresh` yet.
    pub in_slow_start: bool,
    /// Receive window that the peer announced.
    pub peer_window: u64,
    /// Time with data outstanding (`tcpi_busy_time`).
    pub busy_time: Duration,
    /// Part of `busy_time` in which the peer's window was full.
    pub rwnd_limited: Duration,
    /// Part of `busy_time` in which the send buffer was full.
    pub sndbuf_limited: Duration,
    /// Segments retransmitted (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Maximum segment size.
    pub mss: u64,
    /// Latest delivery rate sample of the kernel, bytes per second (sender).
    pub delivery_rate: u64,
    /// The rate at which the congestion control lets segments leave, bytes per second (`tcpi_pacing_rate`).
    pub pacing_rate: u64,
    /// Receive buffer as reported: twice what was asked for (socket(7)).
    pub receive_buffer: u64,
    /// Memory of everything received and not read yet, in order or not.
    pub receive_queue_memory: u64,
    /// Payload received in order and not read yet (SIOCINQ).
    pub readable: u64,
    /// Largest read of the program since the last sample, bytes. Known only where single reads count
    /// ([`crate::sizing::drs1::Drs1Reads`]).
    pub largest_read: u64,
    /// Receive window announced to the peer, or the largest that would be; never more than
    /// `max_receive_window`.
    pub receive_window: u64,
    /// Largest window that the window scale can express: 65535 << scale (RFC 7323 §2.3).
    pub max_receive_window: u64,
}

impl TcpSample {
    /// Payload that this end has moved: acknowledged for a sender, received for a receiver.
    pub fn bytes(&self, role: Role) -> u64 {
        match role {
            Role::Sender => self.bytes_acked,
            Role::Receiver => self.bytes_received,
        }
    }

    /// The role that this end has had so far, by its byte counts; `None` before any payload moved.
    pub fn role(&self) -> Option<Role> {
        // Linux before 4.19 does not count what was sent, and the end that connected counts its SYN as
        // acknowledged.
        let sent = self.bytes_sent.max(self.bytes_acked.saturating_sub(1));
        match sent.cmp(&self.bytes_received) {
            std::cmp::Ordering::Greater => Some(Role::Sender),
            std::cmp::Ordering::Less => Some(Role::Receiver),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// Round trip of the path without queues, as far as a receiver knows it: the smallest, else that of
    /// the handshake; zero if unknown.
    pub fn rtt_without_queue(&self) -> Duration {
        if self.min_rtt.is_zero() {
            self.smoothed_rtt
        } else {
            self.min_rtt
        }
    }

    /// Memory that both queues of the socket hold now.
    pub fn socket_memory(&self) -> u64 {
        self.receive_queue_memory
            .saturating_add(self.send_queue_memory)
    }

    /// Difference to an earlier sample of the same stream, whose end has this role.
    pub fn since(&self, earlier: &Self, role: Role) -> IntervalStats {
        let mss = if self.mss == 0 { DEFAULT_MSS } else { self.mss };
        // The kernel's counters never fall. Saturation gives zeros for samples out of order.
        let retransmits = self.retransmits.saturating_sub(earlier.retransmits);
        IntervalStats {
            time: self.at.saturating_sub(earlier.at),
            bytes: self.bytes(role).saturating_sub(earlier.bytes(role)),
            retransmitted: retransmits.saturating_mul(mss),
            busy_time: self.busy_time.saturating_sub(earlier.busy_time),
            rwnd_limited: self.rwnd_limited.saturating_sub(earlier.rwnd_limited),
            sndbuf_limited: self.sndbuf_limited.saturating_sub(earlier.sndbuf_limited),
        }
    }
}

/// Difference of two samples, of a stream or of a whole transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IntervalStats {
    /// Time between the samples.
    pub time: Duration,
    /// Payload moved, bytes.
    pub bytes: u64,
    /// Payload retransmitted, bytes.
    pub retransmitted: u64,
    /// Time with data outstanding (one stream).
    pub busy_time: Duration,
    /// Part of `busy_time` in which the peer's window was full (one stream).
    pub rwnd_limited: Duration,
    /// Part of `busy_time` in which the send buffer was full (one stream).
    pub sndbuf_limited: Duration,
}

impl IntervalStats {
    /// Mean goodput, bytes per second.
    pub fn rate(&self) -> u64 {
        bytes_per_second(self.bytes, self.time)
    }

    /// Whether segments were retransmitted.
    pub fn has_losses(&self) -> bool {
        self.retransmitted > 0
    }

    /// Part of all sent bytes that was retransmitted, 0..=1.
    pub fn loss_ratio(&self) -> f64 {
        let (moved, retransmitted) = (self.bytes as f64, self.retransmitted as f64);
        if retransmitted > 0.0 {
            retransmitted / (moved + retransmitted)
        } else {
            0.0
        }
    }
}

/// Bytes that a send buffer keeps in flight: writers are woken only when a third of it is free.
pub fn max_in_flight(send_buffer: u64) -> u64 {
    send_buffer / 3 * 2
}

/// Window that a receive buffer offers, bytes. Linux measures how much of the buffer is payload, and
/// with full segments it offers about two thirds.
pub fn window_of_buffer(receive_buffer: u64) -> u64 {
    receive_buffer / 100 * 66
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_found_on_kernels_that_do_not_count_sent_bytes() {
        let role = |bytes_sent, bytes_acked, bytes_received| {
            let sample = TcpSample {
                bytes_sent,
                bytes_acked,
                bytes_received,
                ..TcpSample::default()
            };
            sample.role()
        };
        assert_eq!(role(500, 1, 0), Some(Role::Sender));
        assert_eq!(role(0, 501, 20), Some(Role::Sender));
        assert_eq!(role(0, 1, 0), None);
        assert_eq!(role(0, 1, 500), Some(Role::Receiver));
        assert_eq!(role(20, 21, 500), Some(Role::Receiver));
    }

    #[test]
    fn a_difference_counts_from_the_earlier_sample() {
        let ms = Duration::from_millis;
        let first = TcpSample {
            at: ms(100),
            bytes_acked: 1_000,
            retransmits: 2,
            busy_time: ms(80),
            ..TcpSample::default()
        };
        let second = TcpSample {
            at: ms(300),
            bytes_acked: 21_000,
            retransmits: 5,
            busy_time: ms(250),
            mss: 1_000,
            ..first
        };
        let stats = second.since(&first, Role::Sender);
        assert_eq!(
            (stats.time, stats.bytes, stats.busy_time),
            (ms(200), 20_000, ms(170))
        );
        assert_eq!((stats.rate(), stats.retransmitted), (100_000, 3_000));
        assert!((stats.loss_ratio() - 3.0 / 23.0).abs() < 1e-9);
        assert_eq!(second.since(&first, Role::Receiver).bytes, 0);
        // A kernel that does not report the MSS: full segments of Ethernet count.
        let unknown = TcpSample { mss: 0, ..second };
        assert_eq!(unknown.since(&first, Role::Sender).retransmitted, 3 * 1448);
        // A sample that is not newer has moved nothing.
        assert_eq!(first.since(&second, Role::Sender), IntervalStats::default());
    }
}
