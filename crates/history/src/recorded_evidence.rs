//! The record of one transfer: the part of its evidence that a later transfer can use.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tune::diagnosis::dominant_limiter;
use tune::forecast::ExpectedRate;
use tune::limiter::{Limiter, LimiterVerdict};
use tune::path::prior_from_evidence;
use tune::{Evidence, PathRate, Prior};
use units::{bytes_per_second, names};

use crate::path_key::PathKey;

/// Nothing follows from less: it may have fitted into the buffers on the way.
const MIN_BYTES: u64 = 1 << 20;

/// A record of one path, as the file holds it. Times are microseconds, `time` is seconds since 1970, rates are bytes per
/// second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedEvidence {
    #[serde(flatten)]
    pub(crate) key: PathKey,
    /// When the transfer ended.
    pub(crate) time: u64,
    bytes: u64,
    elapsed: u64,
    min_rtt: u64,
    streams: u64,
    peak_streams: u64,
    final_streams: u64,
    retransmits: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    congestion_control: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pacing_rate: Option<u64>,
    /// Rate that the path carried, and whether packets queued at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_rate: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_path_full: bool,
    limited_by: String,
    /// How much the goodput of the transfers so far has differed from one to the next, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spread_percent: Option<u32>,
}

impl RecordedEvidence {
    /// The record of a transfer that ended at `time`. `None` if nothing follows from it: it moved less than 1 MiB, or was short and
    /// limited by something at its ends.
    pub(crate) fn of(key: PathKey, evidence: &Evidence, time: u64) -> Option<Self> {
        if evidence.bytes < MIN_BYTES {
            return None;
        }
        let limiter = evidence
            .verdict
            .as_ref()
            .map_or_else(|| dominant_limiter(evidence).limiter, |v| v.limiter);
        let record = Self {
            key,
            time,
            bytes: evidence.bytes,
            elapsed: micros(evidence.elapsed),
            min_rtt: micros(evidence.min_rtt),
            streams: evidence.streams,
            peak_streams: evidence.peak_streams,
            final_streams: evidence.final_streams,
            retransmits: evidence.retransmits,
            congestion_control: evidence
                .congestion_control
                .clone()
                .filter(|name| names::is_congestion_control(name)),
            pacing_rate: evidence.pacing_rate,
            path_rate: evidence.path_rate.map(|rate| rate.bytes_per_second),
            is_path_full: evidence.path_rate.is_some_and(|rate| rate.is_full),
            limited_by: limiter.name().to_owned(),
            spread_percent: None,
        };
        (record.teaches() > 0).then_some(record)
    }

    /// The start of a transfer `age` after the end of this one.
    pub(crate) fn prior(&self, age: Duration) -> Prior {
        prior_from_evidence(&self.evidence(), age)
    }

    /// The rate of this transfer, whatever limited it, and how much those before have differed. `None` for a short one.
    pub(crate) fn goodput(&self) -> Option<ExpectedRate> {
        let rate = bytes_per_second(self.bytes, Duration::from_micros(self.elapsed));
        let known = ExpectedRate::of_one_transfer(rate);
        // A short transfer is mostly its start.
        (rate > 0 && !self.is_short()).then_some(ExpectedRate {
            spread_percent: self.spread_percent.unwrap_or(known.spread_percent),
            ..known
        })
    }

    /// The record with what the one before it adds: how much goodputs differ.
    pub(crate) fn after(self, before: &Self) -> Self {
        let spread = match (before.goodput(), self.goodput()) {
            (Some(before), Some(own)) => Some(before.after(own).spread_percent),
            _ => before.spread_percent,
        };
        Self {
            spread_percent: spread,
            ..self
        }
    }

    /// Whether the transfer ended before its settings had proved themselves.
    pub(crate) fn is_short(&self) -> bool {
        self.prior(Duration::ZERO).streams.is_none()
    }

    /// How much follows from the transfer: the settings that a path needs take some time, its rate is known only if something
    /// at the ends did not limit, and how much more it carries only if it was full.
    pub(crate) fn teaches(&self) -> usize {
        let prior = self.prior(Duration::ZERO);
        let is_full = prior.path_rate.is_some_and(|rate| rate.is_full);
        usize::from(prior.streams.is_some())
            + usize::from(prior.path_rate.is_some())
            + usize::from(is_full)
    }

    /// Whether it can be that of a transfer of this program. A file may hold anything.
    pub(crate) fn is_sound(&self) -> bool {
        let is_name = |name: &String| names::is_congestion_control(name);
        self.key.is_canonical()
            && Limiter::parse(&self.limited_by).is_some()
            && self.congestion_control.as_ref().is_none_or(is_name)
    }

    fn evidence(&self) -> Evidence {
        let limiter = Limiter::parse(&self.limited_by).unwrap_or(Limiter::Unknown);
        Evidence {
            bytes: self.bytes,
            elapsed: Duration::from_micros(self.elapsed),
            min_rtt: Duration::from_micros(self.min_rtt),
            streams: self.streams,
            peak_streams: self.peak_streams,
            final_streams: self.final_streams,
            retransmits: self.retransmits,
            congestion_control: self.congestion_control.clone(),
            pacing_rate: self.pacing_rate,
            path_rate: self.path_rate.map(|bytes_per_second| PathRate {
                bytes_per_second,
                is_full: self.is_path_full,
            }),
            verdict: Some(LimiterVerdict {
                limiter,
                streams: u32::try_from(self.final_streams).unwrap_or(u32::MAX),
                congestion_control: self.congestion_control.clone().unwrap_or_default(),
                remedy: None,
            }),
            ..Evidence::for_role(self.key.role())
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use tune::limiter::Role;

    use super::*;

    /// The path to a host of 192.0.`site`.0/24.
    pub(crate) fn key(site: u8, role: Role) -> PathKey {
        PathKey::new([10, 0, 0, 1].into(), [192, 0, site, 7].into(), role)
    }

    /// A sender that ended with 20 streams of bbr on a lossy path of 100 ms, which limited it.
    pub(crate) fn evidence() -> Evidence {
        Evidence {
            bytes: 1_000_000_000,
            elapsed: Duration::from_secs(10),
            min_rtt: Duration::from_millis(100),
            streams: 24,
            peak_streams: 24,
            final_streams: 20,
            retransmits: 500,
            congestion_control: Some("bbr".to_owned()),
            verdict: Some(LimiterVerdict {
                limiter: Limiter::CongestionWindow,
                streams: 20,
                congestion_control: "bbr".to_owned(),
                remedy: None,
            }),
            ..Evidence::for_role(Role::Sender)
        }
    }

    #[test]
    fn a_record_gives_the_same_start_as_its_evidence() {
        let mut other = evidence();
        other.pacing_rate = Some(90_000_000);
        other.retransmits = 0;
        let mut unnamed = evidence();
        unnamed.congestion_control = None;
        unnamed.verdict = None;
        unnamed.busy_time = Duration::from_secs(10);
        for evidence in [evidence(), other, unnamed] {
            let record = RecordedEvidence::of(key(2, Role::Sender), &evidence, 5).unwrap();
            assert!(record.is_sound());
            let text = serde_json::to_string(&record).unwrap();
            let read: RecordedEvidence = serde_json::from_str(&text).unwrap();
            assert_eq!(read, record);
            for age in [Duration::ZERO, Duration::from_secs(7200)] {
                assert_eq!(read.prior(age), prior_from_evidence(&evidence, age));
            }
        }
    }

    #[test]
    fn nothing_is_recorded_of_a_small_transfer_or_a_short_one_that_its_ends_limited() {
        let of = |change: fn(&mut Evidence)| {
            let mut evidence = evidence();
            change(&mut evidence);
            RecordedEvidence::of(key(2, Role::Sender), &evidence, 5)
        };
        assert!(of(|_| ()).is_some());
        assert!(of(|e| e.bytes = MIN_BYTES - 1).is_none());
        let short = |limiter: Limiter| {
            let mut evidence = evidence();
            evidence.elapsed = Duration::from_millis(1900);
            evidence.verdict.as_mut().unwrap().limiter = limiter;
            RecordedEvidence::of(key(2, Role::Sender), &evidence, 5)
        };
        assert_eq!(short(Limiter::Loss).unwrap().teaches(), 1);
        assert!(short(Limiter::StoreRead).is_none());
    }
}
