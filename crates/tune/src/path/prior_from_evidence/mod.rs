//! Memory of one transfer for the next one over the same path.

use std::time::Duration;

use units::bytes_per_second;

use crate::congestion::is_loss_tolerant;
use crate::diagnosis::dominant_limiter;
use crate::evidence::Evidence;
use crate::limiter::Limiter;
use crate::prior::{PathRate, Prior};
use crate::streams::initial::prior_from_rtt;

/// Evidence that is older than this teaches nothing, so that a store need not keep it.
pub const EVIDENCE_EXPIRES_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Cross traffic comes and goes: an older pacing rate would keep a transfer below what is free now.
const PACE_EXPIRES_AFTER: Duration = Duration::from_secs(3600);
/// A shorter transfer was over before its settings had proved themselves.
const MIN_TIME: Duration = Duration::from_secs(2);
/// The same, in round trips.
const MIN_ROUND_TRIPS: u32 = 20;
/// Most streams to begin with.
const MAX_STREAMS: u32 = 128;
/// Most streams to begin with, as a multiple of [`prior_from_rtt`]'s. In the simulator, the slow starts of four times
/// as many overrun a path that no longer loses packets, which costs 8 % of 13 s; three times cost less than 5 %.
const MAX_TIMES_INITIAL: u32 = 3;
/// The same multiple is at least this.
const MOST_AT_LEAST: u32 = 16;
/// Largest pacing rate and rate, bytes per second.
const LARGEST_RATE: u64 = 12_500_000_000_000;

/// The start of a transfer, from the evidence of one that ended `age` ago over the same path.
///
/// - *Streams*: those with which it ended; the most it had, where losses limited each one, but at most three times
///   [`prior_from_rtt`]'s. [`Prior::first_streams`] adds those that only help to fill the path.
/// - *Congestion control*: a loss-tolerant one, if losses were there to tolerate. Otherwise the system's
///   default stays.
/// - *Pacing rate*: that of the end, for an hour.
/// - *Path rate*: that of the tuner's estimate, or the mean goodput, if the path and not a program, a disk or a rate limit set it.
///
/// A transfer of less than two seconds or twenty round trips teaches only the round trip and the path rate. The send buffer is
/// not taken over, because it may have been set for the lack of autotuning alone.
pub fn prior_from_evidence(evidence: &Evidence, age: Duration) -> Prior {
    if age > EVIDENCE_EXPIRES_AFTER || evidence.bytes == 0 || evidence.elapsed.is_zero() {
        return Prior::default();
    }
    let round_trips = evidence.min_rtt.saturating_mul(MIN_ROUND_TRIPS);
    let is_proved = evidence.elapsed >= MIN_TIME.max(round_trips);
    let teaches = Prior {
        path_rate: path_rate(evidence, is_proved),
        min_rtt: Some(evidence.min_rtt).filter(|rtt| !rtt.is_zero()),
        ..Prior::default()
    };
    if !is_proved {
        return teaches;
    }
    Prior {
        streams: known_streams(evidence),
        congestion_control: control_of(evidence)
            .filter(|name| evidence.retransmits > 0 && is_loss_tolerant(name))
            .map(str::to_owned),
        pacing_rate: evidence
            .pacing_rate
            .filter(|rate| *rate > 0 && age <= PACE_EXPIRES_AFTER)
            .map(|rate| rate.min(LARGEST_RATE)),
        ..teaches
    }
}

/// The rate that the path carried, if it and not something at its ends set it.
fn path_rate(evidence: &Evidence, is_proved: bool) -> Option<PathRate> {
    let mean = PathRate {
        bytes_per_second: bytes_per_second(evidence.bytes, evidence.elapsed),
        is_full: is_proved,
    };
    let rate = evidence.path_rate.unwrap_or(mean);
    (rate.bytes_per_second > 0 && is_rate_of_path(evidence)).then(|| PathRate {
        bytes_per_second: rate.bytes_per_second.min(LARGEST_RATE),
        // In that time a transfer finds what the path carries.
        is_full: rate.is_full || is_proved || limiter_of(evidence) == Limiter::Link,
    })
}

fn known_streams(evidence: &Evidence) -> Option<u32> {
    // Where the end was not seen, the largest number is the best guess. Where losses limit each stream, it is
    // too: streams that were closed while a queue had formed are missed when it has gone.
    let is_loss_limited = limiter_of(evidence) == Limiter::Loss
        && !control_of(evidence).is_some_and(is_loss_tolerant);
    let ended_with = if is_loss_limited || evidence.final_streams == 0 {
        evidence.peak_streams.max(evidence.final_streams)
    } else {
        evidence.final_streams
    };
    let ended_with = [ended_with, evidence.streams]
        .into_iter()
        .find(|streams| *streams > 0)?;
    let ended_with = u32::try_from(ended_with).unwrap_or(MAX_STREAMS);
    let most = match is_loss_limited {
        true => prior_from_rtt(evidence.min_rtt, None, 0, MAX_STREAMS)
            .streams
            .map_or(MAX_STREAMS, |n| (n * MAX_TIMES_INITIAL).max(MOST_AT_LEAST)),
        false => MAX_STREAMS,
    };
    Some(ended_with.min(most).min(MAX_STREAMS))
}

/// Whether the path, and not something at its ends, set the rate.
fn is_rate_of_path(evidence: &Evidence) -> bool {
    let limiter = limiter_of(evidence);
    limiter != Limiter::Unknown && !limiter.is_at_an_end()
}

/// The congestion control that was settled on: at the end, some streams may have had another one to compare.
fn control_of(evidence: &Evidence) -> Option<&str> {
    let settled = evidence
        .verdict
        .as_ref()
        .map(|v| v.congestion_control.as_str());
    let settled = settled.filter(|name| !name.is_empty());
    settled.or(evidence.congestion_control.as_deref())
}

fn limiter_of(evidence: &Evidence) -> Limiter {
    evidence
        .verdict
        .as_ref()
        .map_or_else(|| dominant_limiter(evidence).limiter, |v| v.limiter)
}

#[cfg(test)]
mod tests;
