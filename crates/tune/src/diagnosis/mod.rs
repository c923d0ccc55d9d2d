//! Finds the limiter of a finished transfer in its [`Evidence`].
//!
//! At a sender, TCP_INFO tells how long the peer's window or the send buffer was full (`tcpi_busy_time`,
//! `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`; tcp(7), linux/tcp.h). A receiver only knows how long it waited for
//! the wire and for its store, whether its round trips were long, and whether one window per round trip explains the
//! rate. That the path was full it cannot know: see [`has_long_round_trip`].

use crate::evidence::Evidence;
use crate::limiter::{Limiter, Role};
use crate::observation::Rtt;
use crate::sample::TcpSample;

/// A limiter and the share of the transfer's time that it explains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimiterShare {
    /// Limiter of most of the time.
    pub limiter: Limiter,
    /// Share of the transfer's time, 0..=1.
    pub share: f64,
}

/// Smallest share of the time for which a full window or send buffer counts as the limiter.
const MIN_SHARE: f64 = 0.2;

/// Share of a receiver's time with long round trips from which on they explain the rate, and windows do not.
pub const MIN_LONG_RTT_SHARE: f64 = 0.5;

/// The limiter that explains most of the transfer's time. The verdict of the policy
/// ([`Evidence::verdict`]) is not used.
pub fn dominant_limiter(evidence: &Evidence) -> LimiterShare {
    let seconds = evidence.elapsed.as_secs_f64();
    let Some(role) = evidence
        .role
        .filter(|_| evidence.bytes > 0 && seconds > 0.0)
    else {
        return share_of(Limiter::Unknown, 0.0);
    };
    let rate = evidence.bytes as f64 / seconds;
    let thread_seconds = thread_seconds(evidence);
    let store = evidence.store_time.as_secs_f64() / thread_seconds;
    let wire = evidence.wire_time.as_secs_f64() / thread_seconds;
    let throttled = evidence.throttle_time.as_secs_f64() / thread_seconds;
    // A thread that waits neither for the store, nor for the socket, nor for a rate limit computes.
    let computing = 1.0 - store - wire - throttled;
    // The other end waits meanwhile, and what its kernel says of that is a consequence.
    if throttled > 0.0 && throttled >= store && throttled >= wire && throttled >= computing {
        return share_of(Limiter::RateLimit, throttled);
    }
    match role {
        Role::Sender => limiter_of_sender(evidence, seconds, store, wire, computing),
        Role::Receiver => limiter_of_receiver(evidence, rate, store, wire, computing),
    }
}

/// Whether a receiver's round trip is half as long again as the smallest: packets queue on the path, or the sender pauses.
///
/// The kernel measures from an acknowledgement to the first data that was sent after it (RFC 7323 timestamps), so a pause of
/// the sender makes the round trip as long as a queue does: streams that get 128 KiB every 100 ms have long ones for 83 to
/// 95 % of the time, those that fill a path for 75 %. A round trip below a millisecond shows the programs at both ends.
pub fn has_long_round_trip(sample: &TcpSample) -> bool {
    let rtt = Rtt::of_sample(sample, Role::Receiver);
    !rtt.is_local() && rtt.is_congested()
}

/// Share of a receiver's time with long round trips, 0..=1.
pub fn long_rtt_share(evidence: &Evidence) -> f64 {
    let share = evidence.long_rtt_time.as_secs_f64() / thread_seconds(evidence);
    share.clamp(0.0, 1.0)
}

fn limiter_of_sender(
    evidence: &Evidence,
    seconds: f64,
    store: f64,
    wire: f64,
    computing: f64,
) -> LimiterShare {
    // The kernel's accounts go first, while threads also wait for other reasons. `sndbuf_limited` may be far
    // too small, but is never too large.
    let rwnd = evidence.rwnd_limited.as_secs_f64() / seconds;
    let sndbuf = evidence.sndbuf_limited.as_secs_f64() / seconds;
    if rwnd >= MIN_SHARE && rwnd >= sndbuf && rwnd >= store {
        return share_of(Limiter::ReceiveWindow, rwnd);
    }
    if sndbuf >= MIN_SHARE && sndbuf >= store {
        return share_of(Limiter::SendBuffer, sndbuf);
    }
    if store >= wire && store >= computing {
        return share_of(Limiter::StoreRead, store);
    }
    if computing >= wire {
        return share_of(Limiter::SenderCpu, computing);
    }
    let limiter = if evidence.retransmits > 0 {
        Limiter::Loss
    } else {
        Limiter::CongestionWindow
    };
    share_of(limiter, wire)
}

fn limiter_of_receiver(
    evidence: &Evidence,
    rate: f64,
    store: f64,
    wire: f64,
    computing: f64,
) -> LimiterShare {
    if store >= wire && store >= computing {
        return share_of(Limiter::StoreWrite, store);
    }
    if computing >= wire {
        return share_of(Limiter::ReceiverCpu, computing);
    }
    // The smallest round trip: with a queue in it the window would not be the limiter.
    let rtt = evidence.min_rtt.as_secs_f64();
    let streams = thread_seconds(evidence) / evidence.elapsed.as_secs_f64();
    let in_flight = rate * rtt / streams.max(1.0);
    // Linux offers about half of the buffer as window (tcp_adv_win_scale). A rate that needs a third of
    // the buffer in flight is therefore close to the window limit.
    let explains_rate = in_flight >= 0.35 * evidence.buffer_bytes as f64;
    if evidence.buffer_bytes > 0 && explains_rate && long_rtt_share(evidence) < MIN_LONG_RTT_SHARE {
        return share_of(Limiter::ReceiveWindow, wire);
    }
    share_of(Limiter::ServerCap, wire)
}

/// Time of all stream threads together, seconds.
fn thread_seconds(evidence: &Evidence) -> f64 {
    if evidence.stream_time.is_zero() {
        evidence.elapsed.as_secs_f64() * evidence.streams.max(1) as f64
    } else {
        evidence.stream_time.as_secs_f64()
    }
}

fn share_of(limiter: Limiter, share: f64) -> LimiterShare {
    LimiterShare {
        limiter,
        share: share.clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests;
