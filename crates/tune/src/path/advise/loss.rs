//! Losses of the path itself, and what they ask for.

use super::{KnownPath, LOSS_TOLERANT_STREAMS, MAX_STREAMS, PAYLOAD};
use crate::congestion::loss_tolerant_alternative;
use crate::path::facts::{ENOUGH_TRANSFERS, PathFacts, whole};

/// Smallest loss ratio that counts, as in [`streams::auto`](crate::streams::auto).
const MIN_LOSS: f64 = 3e-5;
/// Tests, or transfers, from which on a loss is persistent: a single one may have met a burst.
const PERSISTENT: u32 = 2;
/// Part of the path that a loss-tolerant control fills: it probes, and its rate varies.
const LOSS_TOLERANT_SHARE: f64 = 0.93;

/// Losses of a path and the control that suits them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PathLoss {
    /// Part of the packets, 0..=1.
    pub(super) ratio: f64,
    /// Mean congestion window of a CUBIC stream under these losses, bytes.
    pub(super) window: f64,
    /// Whether these losses keep the initial streams from filling the path.
    pub(super) is_limiting: bool,
    /// Loss-tolerant congestion control, if it is needed and offered.
    pub(super) congestion_control: Option<String>,
}

impl PathLoss {
    /// `initial`: streams that fill the path if nothing is lost.
    pub(super) fn of(facts: &PathFacts, path: &KnownPath, initial: u32) -> Self {
        let valid = |ratio: &f64| ratio.is_finite() && (0.0..=1.0).contains(ratio);
        let tested = facts.loss.filter(valid);
        // Retransmissions contain the losses that a transfer causes itself when it fills the queue: they count
        // only where transfers do not fill the path.
        let fills = facts.goodput.is_some_and(|goodput| {
            goodput.median_bps as f64 >= path.bandwidth_bps as f64 * super::FILLED_SHARE
        });
        let retransmitted = facts.retransmits.filter(valid).filter(|_| !fills);
        let ratio = tested.into_iter().chain(retransmitted).fold(0.0, f64::max);
        let transfers = facts.goodput.map_or(0, |goodput| goodput.count);
        let is_persistent = facts.loss_tests.max(transfers) >= PERSISTENT;
        let window = cubic_window(ratio, path.rtt.as_secs_f64()) * PAYLOAD;
        let is_limiting = ratio >= MIN_LOSS
            && is_persistent
            && window * f64::from(initial) < path.bdp_bytes as f64;
        let offered = loss_tolerant_alternative("", &facts.congestion_controls);
        Self {
            ratio,
            window,
            is_limiting,
            congestion_control: offered.filter(|_| is_limiting).map(str::to_owned),
        }
    }

    /// Streams for the path: more where losses limit each one.
    pub(super) fn streams(&self, facts: &PathFacts, path: &KnownPath, initial: u32) -> u32 {
        if !self.is_limiting {
            return initial;
        }
        let transfers = facts.goodput.map_or(0, |goodput| goodput.count);
        let observed = facts
            .streams
            .filter(|streams| *streams > 0 && transfers >= ENOUGH_TRANSFERS);
        let needed = match (&self.congestion_control, observed) {
            (_, Some(observed)) => observed,
            (Some(_), None) => initial.max(LOSS_TOLERANT_STREAMS),
            (None, None) => {
                let needed = (path.bdp_bytes as f64 / self.window.max(1.0)).ceil();
                u32::try_from(whole(needed)).unwrap_or(u32::MAX)
            }
        };
        needed.clamp(1, MAX_STREAMS)
    }

    /// Rate that the losses allow, packets per second.
    pub(super) fn packets_per_second(&self, path: &KnownPath, streams: u32) -> f64 {
        if !self.is_limiting {
            return f64::INFINITY;
        }
        let delivered = 1.0 - self.ratio;
        if self.congestion_control.is_some() {
            let packets = path.usable_bps as f64 / 8.0 / super::PACKET;
            return packets * delivered * LOSS_TOLERANT_SHARE;
        }
        f64::from(streams) * self.window / PAYLOAD / path.rtt.as_secs_f64() * delivered
    }
}

/// Mean window of CUBIC at a loss ratio and a round trip in seconds, packets (RFC 9438 §5.1): no less than
/// that of Reno (RFC 3649 §3).
fn cubic_window(ratio: f64, rtt: f64) -> f64 {
    if ratio <= 0.0 {
        return f64::INFINITY;
    }
    let cubic = 1.054 * (rtt / ratio).powf(0.75);
    let reno = (1.5 / ratio).sqrt();
    cubic.max(reno)
}
