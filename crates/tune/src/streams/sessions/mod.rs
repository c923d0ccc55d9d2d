//! How many streams fetch one file from a sender that keeps the number it was told: more come with
//! further sessions, while the data of the first one moves.
//!
//! Only the receiver is seen: its goodput, and its estimate of the round trip. Three rules:
//! - While goodput still grows, nothing is changed: slow start is not over.
//! - When it no longer grows, the path is full if the round trip shows a queue. Otherwise losses or windows
//!   limit the streams, and as many again are tried.
//! - A trial that raises goodput too little is the last one. What it opened stays until the file ends:
//!   closing it would cost a slow start.

use std::time::Duration;

use units::show;

use super::describe::{describe_streams, whole_rate};

/// Goodput relative to the interval before from which on it still grows, and relative to fewer streams from
/// which on more of them pay.
const MIN_GAIN: f64 = 1.15;
/// Length of an interval: so many round trips, at least this time.
const ROUND_TRIPS: u32 = 8;
const MIN_INTERVAL: Duration = Duration::from_millis(800);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// Intervals between the opening of streams and their measurement: the login and the slow start.
const WARM_UP_INTERVALS: u32 = 2;
/// A round trip so much longer than the smallest one shows a queue, which only a full path has.
const QUEUE_SHARE: f64 = 1.25;
const MIN_QUEUE: Duration = Duration::from_millis(3);
/// Remaining time, in intervals, below which more streams come too late.
const MIN_LEFT_INTERVALS: f64 = 4.0;

/// A transfer over all its sessions, as the receiver sees it now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReceiverSample {
    /// Time since the transfer began.
    pub at: Duration,
    /// Bytes received so far.
    pub bytes: u64,
    /// Bytes that are missing.
    pub left: u64,
    /// Streams in use; more than were asked for if the server opens more.
    pub streams: u32,
    /// The receiver's estimate of the round trip, the median of its streams; zero if unknown.
    pub rtt: Duration,
}

/// More streams, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoreStreams {
    /// Streams to open in addition; 0 if more would not help.
    pub streams: u32,
    /// The reason, in plain words.
    pub reason: String,
}

/// Phase of the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Goodput may still grow. `before`: that of the last interval, bytes per second.
    Growing { before: f64 },
    /// More streams were opened at goodput `before`; so many intervals are left until it is compared.
    Trial { before: f64, intervals: u32 },
    /// No more streams.
    Settled,
}

/// The policy for one transfer.
#[derive(Debug)]
pub struct SessionPolicy {
    max_streams: u32,
    /// Smallest round trip of the path.
    min_rtt: Duration,
    interval: Duration,
    /// Where the present interval began.
    from: Option<ReceiverSample>,
    phase: Phase,
}

impl SessionPolicy {
    /// A policy for a path with round trip `min_rtt` without a queue, and at most `max_streams` streams.
    pub fn new(max_streams: u32, min_rtt: Duration) -> Self {
        Self {
            max_streams,
            min_rtt,
            interval: (min_rtt.min(MAX_INTERVAL) * ROUND_TRIPS).clamp(MIN_INTERVAL, MAX_INTERVAL),
            from: None,
            phase: Phase::Growing { before: 0.0 },
        }
    }

    /// Takes a sample; samples come several times an interval. Returns a decision, if there is one.
    pub fn on_sample(&mut self, now: ReceiverSample) -> Option<MoreStreams> {
        let Some(from) = self.from else {
            // The time before the first byte is that of commands.
            self.from = Some(now).filter(|now| now.bytes > 0);
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        if time < self.interval || self.phase == Phase::Settled {
            return None;
        }
        self.from = Some(now);
        let goodput = now.bytes.saturating_sub(from.bytes) as f64 / time.as_secs_f64();
        match self.phase {
            Phase::Growing { before } if goodput >= MIN_GAIN * before => {
                self.phase = Phase::Growing { before: goodput };
                None
            }
            Phase::Growing { .. } => self.on_plateau(now, goodput),
            Phase::Trial { before, intervals } if intervals > 0 => {
                self.phase = Phase::Trial {
                    before,
                    intervals: intervals - 1,
                };
                None
            }
            Phase::Trial { before, .. } if goodput >= MIN_GAIN * before => {
                self.on_plateau(now, goodput)
            }
            Phase::Trial { .. } => self.settle(now, goodput, "more do not help"),
            Phase::Settled => None,
        }
    }

    /// The server refused a further session, or there is no room for one.
    pub fn on_refused(&mut self) {
        self.phase = Phase::Settled;
    }

    /// Goodput no longer grows by itself.
    fn on_plateau(&mut self, now: ReceiverSample, goodput: f64) -> Option<MoreStreams> {
        let queue = now.rtt.saturating_sub(self.min_rtt);
        if queue >= MIN_QUEUE && now.rtt.as_secs_f64() >= QUEUE_SHARE * self.min_rtt.as_secs_f64() {
            return self.settle(now, goodput, "the path is full");
        }
        if now.streams >= self.max_streams {
            return self.settle(now, goodput, "no more are allowed");
        }
        let left = now.left as f64 / goodput.max(1.0);
        if left < MIN_LEFT_INTERVALS * self.interval.as_secs_f64() {
            return self.settle(now, goodput, "the file ends soon");
        }
        let streams = now.streams.max(1).min(self.max_streams - now.streams);
        self.phase = Phase::Trial {
            before: goodput,
            intervals: WARM_UP_INTERVALS,
        };
        let reason = format!(
            "{}: {} more",
            describe_goodput(now, goodput),
            describe_streams(streams)
        );
        Some(MoreStreams { streams, reason })
    }

    fn settle(&mut self, now: ReceiverSample, goodput: f64, why: &str) -> Option<MoreStreams> {
        self.phase = Phase::Settled;
        let reason = format!("{}: {why}", describe_goodput(now, goodput));
        Some(MoreStreams { streams: 0, reason })
    }
}

fn describe_goodput(now: ReceiverSample, goodput: f64) -> String {
    format!(
        "{} with {}, round trip {} ms",
        show::bits(whole_rate(goodput * 8.0)),
        describe_streams(now.streams),
        now.rtt.as_millis()
    )
}

#[cfg(test)]
mod tests;
