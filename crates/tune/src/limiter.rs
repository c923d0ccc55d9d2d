//! Limiter of a transfer: the kernel's and the pump's accounts of waiting, read together.
//!
//! A sender is told by TCP itself (`tcp_info`: time with data outstanding, of which so much
//! limited by the peer's window or by the send buffer; see tcp(7) and linux/tcp.h). A receiver
//! only knows how long it waited for the wire and for its store, and whether one window a round
//! trip explains the rate it saw.

use std::fmt;
use std::time::Duration;

/// Limiter of a transfer: where its time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// Reading the file at the sender.
    StoreRead,
    /// The sender's processor.
    SenderCpu,
    /// The sender's socket buffer.
    SendBuffer,
    /// TCP's congestion window, which never saw a loss: the path's queue or slow start.
    CongestionWindow,
    /// TCP's congestion window, cut by losses.
    Loss,
    /// The receiver's window.
    ReceiveWindow,
    /// The receiver's processor.
    ReceiverCpu,
    /// Writing the file at the receiver.
    StoreWrite,
    /// The limit that was asked for.
    RateLimit,
    /// The other end or the path, which cannot be told apart from here.
    ServerCap,
    /// Nothing was measured, or too little moved.
    Unknown,
}

impl Limiter {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::StoreRead,
        Self::SenderCpu,
        Self::SendBuffer,
        Self::CongestionWindow,
        Self::Loss,
        Self::ReceiveWindow,
        Self::ReceiverCpu,
        Self::StoreWrite,
        Self::RateLimit,
        Self::ServerCap,
        Self::Unknown,
    ];

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limiter| limiter.name() == name)
    }

    /// The name in summaries and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreRead => "store read",
            Self::SenderCpu => "sender CPU",
            Self::SendBuffer => "send buffer",
            Self::CongestionWindow => "congestion window",
            Self::Loss => "congestion window (loss)",
            Self::ReceiveWindow => "receive window",
            Self::ReceiverCpu => "receiver CPU",
            Self::StoreWrite => "store write",
            Self::RateLimit => "rate limit",
            Self::ServerCap => "server cap",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which end measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This end sent.
    Sender,
    /// This end received.
    Receiver,
}

/// One end's measurements of a transfer (or of several, summed).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Which end.
    pub role: Role,
    /// Payload bytes moved.
    pub bytes: u64,
    /// How long data was moving, per stream: the transfer's duration.
    pub elapsed: Duration,
    /// Streams that moved it.
    pub streams: u64,
    /// How long they were open, summed; zero: each for all of `elapsed`.
    pub open: Duration,
    /// Segments sent again.
    pub retransmits: u64,
    /// Smallest round trip seen; zero: unknown.
    pub min_rtt: Duration,
    /// Largest socket buffer of one stream, bytes.
    pub buffer_bytes: u64,
    /// Time with data outstanding (sender).
    pub busy: Duration,
    /// Of that, limited by the peer's window.
    pub rwnd_limited: Duration,
    /// Of that, limited by the send buffer.
    pub sndbuf_limited: Duration,
    /// Stream threads' time in the store, summed over streams.
    pub store: Duration,
    /// Stream threads' time blocked in the socket, summed over streams.
    pub wire: Duration,
    /// Bytes per second that the user allowed.
    pub rate_limit: Option<u64>,
}

impl Measured {
    /// Time of the streams' threads, summed.
    fn thread_seconds(&self) -> f64 {
        match self.open {
            Duration::ZERO => self.elapsed.as_secs_f64() * self.streams.max(1) as f64,
            open => open.as_secs_f64(),
        }
    }
}

/// A limiter and the share of the time it explains, 0..=1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// What.
    pub limiter: Limiter,
    /// Share of the transfer's time.
    pub share: f64,
}

/// Below this share, time lost to the kernel's limits is not worth naming.
const NOTABLE: f64 = 0.2;

/// Names the limiter that explains most of the transfer's time.
pub fn judge(m: &Measured) -> Verdict {
    let seconds = m.elapsed.as_secs_f64();
    if m.bytes == 0 || seconds <= 0.0 {
        return verdict(Limiter::Unknown, 0.0);
    }
    let rate = m.bytes as f64 / seconds;
    if let Some(limit) = m.rate_limit
        && rate >= 0.85 * limit as f64
    {
        return verdict(Limiter::RateLimit, rate / limit as f64);
    }
    let thread_seconds = m.thread_seconds();
    let store = m.store.as_secs_f64() / thread_seconds;
    let wire = m.wire.as_secs_f64() / thread_seconds;
    let computing = 1.0 - store - wire;
    match m.role {
        Role::Sender => judge_sender(m, seconds, store, wire, computing),
        Role::Receiver => judge_receiver(m, rate, store, wire, computing),
    }
}

fn judge_sender(m: &Measured, seconds: f64, store: f64, wire: f64, computing: f64) -> Verdict {
    let rwnd = m.rwnd_limited.as_secs_f64() / seconds;
    let sndbuf = m.sndbuf_limited.as_secs_f64() / seconds;
    if rwnd >= NOTABLE && rwnd >= sndbuf && rwnd >= store {
        return verdict(Limiter::ReceiveWindow, rwnd);
    }
    if sndbuf >= NOTABLE && sndbuf >= store {
        return verdict(Limiter::SendBuffer, sndbuf);
    }
    if store >= wire && store >= computing {
        return verdict(Limiter::StoreRead, store);
    }
    if computing >= wire {
        return verdict(Limiter::SenderCpu, computing);
    }
    let limiter = if m.retransmits > 0 {
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    };
    verdict(limiter, wire)
}

fn judge_receiver(m: &Measured, rate: f64, store: f64, wire: f64, computing: f64) -> Verdict {
    if store >= wire && store >= computing {
        return verdict(Limiter::StoreWrite, store);
    }
    if computing >= wire {
        return verdict(Limiter::ReceiverCpu, computing);
    }
    let rtt = m.min_rtt.as_secs_f64();
    let streams = m.thread_seconds() / m.elapsed.as_secs_f64();
    let in_flight = rate * rtt / streams.max(1.0);
    // Linux grants about half of the buffer as window (tcp_adv_win_scale).
    if m.buffer_bytes > 0 && in_flight >= 0.35 * m.buffer_bytes as f64 {
        return verdict(Limiter::ReceiveWindow, wire);
    }
    verdict(Limiter::ServerCap, wire)
}

fn verdict(limiter: Limiter, share: f64) -> Verdict {
    Verdict {
        limiter,
        share: share.clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    fn sender() -> Measured {
        Measured {
            role: Role::Sender,
            bytes: 1_000_000_000,
            elapsed: seconds(10.0),
            streams: 1,
            open: Duration::ZERO,
            retransmits: 0,
            min_rtt: Duration::from_millis(50),
            buffer_bytes: 4 << 20,
            busy: seconds(10.0),
            rwnd_limited: Duration::ZERO,
            sndbuf_limited: Duration::ZERO,
            store: seconds(0.5),
            wire: seconds(9.0),
            rate_limit: None,
        }
    }

    #[test]
    fn kernel_accounts_name_the_window() {
        let mut m = sender();
        m.rwnd_limited = seconds(6.0);
        let v = judge(&m);
        assert_eq!(v.limiter, Limiter::ReceiveWindow);
        assert!((v.share - 0.6).abs() < 1e-9);
        m.sndbuf_limited = seconds(8.0);
        assert_eq!(judge(&m).limiter, Limiter::SendBuffer);
    }

    #[test]
    fn congestion_with_and_without_loss() {
        let mut m = sender();
        assert_eq!(judge(&m).limiter, Limiter::CongestionWindow);
        m.retransmits = 3;
        assert_eq!(judge(&m).limiter, Limiter::Loss);
    }

    #[test]
    fn store_and_cpu() {
        let mut m = sender();
        m.store = seconds(8.0);
        m.wire = seconds(1.0);
        assert_eq!(judge(&m).limiter, Limiter::StoreRead);
        m.store = seconds(1.0);
        assert_eq!(judge(&m).limiter, Limiter::SenderCpu);
        m.role = Role::Receiver;
        assert_eq!(judge(&m).limiter, Limiter::ReceiverCpu);
        m.store = seconds(8.0);
        assert_eq!(judge(&m).limiter, Limiter::StoreWrite);
    }

    #[test]
    fn receiver_window_explains_the_rate() {
        let mut m = sender();
        m.role = Role::Receiver;
        // 100 MB/s over 50 ms: 5 MB in flight, more than half of a 4 MiB buffer.
        assert_eq!(judge(&m).limiter, Limiter::ReceiveWindow);
        m.buffer_bytes = 64 << 20;
        assert_eq!(judge(&m).limiter, Limiter::ServerCap);
    }

    #[test]
    fn asked_for_limit_wins() {
        let mut m = sender();
        m.rate_limit = Some(100_000_000);
        assert_eq!(judge(&m).limiter, Limiter::RateLimit);
        m.rate_limit = Some(1_000_000_000);
        assert_ne!(judge(&m).limiter, Limiter::RateLimit);
    }

    #[test]
    fn streams_that_left_early_did_not_compute_since() {
        let m = Measured {
            role: Role::Receiver,
            streams: 16,
            buffer_bytes: 0,
            wire: seconds(24.0),
            store: seconds(1.0),
            ..sender()
        };
        assert_eq!(judge(&m).limiter, Limiter::ReceiverCpu);
        let open = seconds(25.0);
        assert_eq!(judge(&Measured { open, ..m }).limiter, Limiter::ServerCap);
    }

    proptest! {
        #[test]
        fn share_is_a_share(
            bytes: u64, elapsed in 0_u64..1 << 40, streams in 0_u64..100,
            busy in 0_u64..1 << 40, store in 0_u64..1 << 40, wire in 0_u64..1 << 40,
            send: bool,
        ) {
            let us = Duration::from_micros;
            let m = Measured {
                role: if send { Role::Sender } else { Role::Receiver },
                bytes, streams, elapsed: us(elapsed), busy: us(busy),
                rwnd_limited: us(busy / 2), sndbuf_limited: us(busy / 3),
                store: us(store), wire: us(wire),
                ..sender()
            };
            let v = judge(&m);
            prop_assert!((0.0..=1.0).contains(&v.share), "{:?}", v);
        }
    }
}
