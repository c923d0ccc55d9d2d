//! Limiter of a transfer: the kernel's and the pump's accounts of waiting, read together.
//!
//! A sender is told by TCP itself (`tcp_info`: time with data outstanding, of which so much
//! limited by the peer's window or by the send buffer; see tcp(7) and linux/tcp.h). A receiver
//! only knows how long it waited for the wire and for its store, and whether one window a round
//! trip explains the rate it saw.

use crate::evidence::Evidence;
use crate::limiter::{Limiter, Role};

/// A limiter and the share of the time it explains, 0..=1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimiterShare {
    /// The limiter.
    pub limiter: Limiter,
    /// Share of the transfer's time.
    pub share: f64,
}

/// Below this share, time lost to the kernel's limits is not worth naming.
const NOTABLE: f64 = 0.2;

/// Names the limiter that explains most of the transfer's time. The policy's own verdict
/// ([`Evidence::verdict`]) is not asked.
pub fn dominant_limiter(m: &Evidence) -> LimiterShare {
    let seconds = m.elapsed.as_secs_f64();
    let Some(role) = m.role.filter(|_| m.bytes > 0 && seconds > 0.0) else {
        return judgement(Limiter::Unknown, 0.0);
    };
    let rate = m.bytes as f64 / seconds;
    if let Some(limit) = m.rate_limit
        && rate >= 0.85 * limit as f64
    {
        return judgement(Limiter::RateLimit, rate / limit as f64);
    }
    let thread_seconds = thread_seconds(m);
    let store = m.store_time.as_secs_f64() / thread_seconds;
    let wire = m.wire_time.as_secs_f64() / thread_seconds;
    let computing = 1.0 - store - wire;
    match role {
        Role::Sender => judge_sender(m, seconds, store, wire, computing),
        Role::Receiver => judge_receiver(m, rate, store, wire, computing),
    }
}

fn judge_sender(m: &Evidence, seconds: f64, store: f64, wire: f64, computing: f64) -> LimiterShare {
    let rwnd = m.rwnd_limited.as_secs_f64() / seconds;
    let sndbuf = m.sndbuf_limited.as_secs_f64() / seconds;
    if rwnd >= NOTABLE && rwnd >= sndbuf && rwnd >= store {
        return judgement(Limiter::ReceiveWindow, rwnd);
    }
    if sndbuf >= NOTABLE && sndbuf >= store {
        return judgement(Limiter::SendBuffer, sndbuf);
    }
    if store >= wire && store >= computing {
        return judgement(Limiter::StoreRead, store);
    }
    if computing >= wire {
        return judgement(Limiter::SenderCpu, computing);
    }
    let limiter = if m.retransmits > 0 {
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    };
    judgement(limiter, wire)
}

fn judge_receiver(m: &Evidence, rate: f64, store: f64, wire: f64, computing: f64) -> LimiterShare {
    if store >= wire && store >= computing {
        return judgement(Limiter::StoreWrite, store);
    }
    if computing >= wire {
        return judgement(Limiter::ReceiverCpu, computing);
    }
    let rtt = m.min_rtt.as_secs_f64();
    let streams = thread_seconds(m) / m.elapsed.as_secs_f64();
    let in_flight = rate * rtt / streams.max(1.0);
    // Linux grants about half of the buffer as window (tcp_adv_win_scale).
    if m.buffer_bytes > 0 && in_flight >= 0.35 * m.buffer_bytes as f64 {
        return judgement(Limiter::ReceiveWindow, wire);
    }
    judgement(Limiter::ServerCap, wire)
}

/// Time of the streams' threads, summed.
fn thread_seconds(m: &Evidence) -> f64 {
    if m.stream_time.is_zero() {
        m.elapsed.as_secs_f64() * m.streams.max(1) as f64
    } else {
        m.stream_time.as_secs_f64()
    }
}

fn judgement(limiter: Limiter, share: f64) -> LimiterShare {
    LimiterShare {
        limiter,
        share: share.clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests;
