//! How many streams fetch one file from a sender that keeps the number it was told: more come with
//! further sessions, while the data of the first one moves.
//!
//! Only the receiver is seen: its goodput, and its estimate of the round trip. The rules:
//! - While goodput still grows, nothing is changed: slow start is not over.
//! - When it no longer grows, the path is full if the round trip shows a queue. Otherwise losses or windows
//!   limit the streams, and as many again are tried.
//! - A trial that raises goodput too little ends the search. What it opened stays until the file ends: closing it
//!   would cost a slow start.
//! - When goodput then falls or rises clearly, the path has changed, and the search goes on, unless goodput comes
//!   back. Each such search without gain doubles the time before the next change counts.

use std::time::Duration;

use units::show;

use super::describe::whole_rate;

/// Goodput relative to the interval before from which on it still grows, and relative to fewer streams from
/// which on more of them pay.
const MIN_GAIN: f64 = 1.15;
/// Length of an interval: so many round trips, at least this time.
const ROUND_TRIPS: u32 = 8;
const MIN_INTERVAL: Duration = Duration::from_millis(800);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// Intervals between the opening of streams and their measurement: the login and the slow start.
const WARM_UP_INTERVALS: u32 = 2;
/// A round trip so much longer than the smallest one shows a queue, which only a full path has, or pauses of the server
/// ([`has_long_round_trip`](crate::diagnosis::has_long_round_trip)). Neither needs more streams.
const QUEUE_SHARE: f64 = 1.25;
const MIN_QUEUE: Duration = Duration::from_millis(3);
/// Shares of the settled goodput below and above which the path must have changed.
const FALLEN_SHARE: f64 = 0.75;
const RISEN_SHARE: f64 = 1.0 / FALLEN_SHARE;
/// Weight of an interval in the settled goodput: low, so that it does not follow a fall that takes seconds.
const WEIGHT: f64 = 1.0 / 16.0;
/// Most doublings of the time before a change counts.
const MAX_DOUBLINGS: u32 = 6;
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
    /// More streams did not help at `goodput`, an average, for so many intervals so far.
    Settled { goodput: f64, intervals: u32 },
    /// No further session is possible.
    Closed,
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
    /// Goodput before the change that began this search, bytes per second.
    before_change: Option<f64>,
    /// Consecutive searches after a change that gained nothing.
    failed_searches: u32,
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
            before_change: None,
            failed_searches: 0,
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
        if time < self.interval || self.phase == Phase::Closed {
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
                let decision = self.on_plateau(now, goodput);
                self.failed_searches = 0;
                decision
            }
            Phase::Trial { .. } => self.settle(now, goodput, "more do not help"),
            Phase::Settled {
                goodput: settled,
                intervals,
            } => self.continue_settled(now, goodput, settled, intervals.saturating_add(1)),
            Phase::Closed => None,
        }
    }

    /// The server refused a further session, or there is no room for one.
    pub fn on_refused(&mut self) {
        self.phase = Phase::Closed;
    }

    /// Watches for a change of the `settled` goodput, which has lasted for so many intervals.
    fn continue_settled(
        &mut self,
        now: ReceiverSample,
        goodput: f64,
        settled: f64,
        intervals: u32,
    ) -> Option<MoreStreams> {
        let counts = intervals >= 1 << self.failed_searches && !self.ends_soon(now, goodput);
        if !counts || is_unchanged(goodput, settled) {
            let goodput = settled + (goodput - settled) * WEIGHT;
            self.phase = Phase::Settled { goodput, intervals };
            return None;
        }
        // One more interval shows whether the change lasts.
        self.phase = Phase::Growing { before: goodput };
        self.before_change = Some(settled);
        let way = if goodput < settled { "down" } else { "up" };
        let was = show::bits(whole_rate(settled * 8.0));
        let reason = format!("{}, {way} from {was}", describe_goodput(now, goodput));
        Some(MoreStreams { streams: 0, reason })
    }

    /// Whether more streams would come too late at this goodput.
    fn ends_soon(&self, now: ReceiverSample, goodput: f64) -> bool {
        let left = now.left as f64 / goodput.max(1.0);
        left < MIN_LEFT_INTERVALS * self.interval.as_secs_f64()
    }

    /// Goodput no longer grows by itself.
    fn on_plateau(&mut self, now: ReceiverSample, goodput: f64) -> Option<MoreStreams> {
        let queue = now.rtt.saturating_sub(self.min_rtt);
        if queue >= MIN_QUEUE && now.rtt.as_secs_f64() >= QUEUE_SHARE * self.min_rtt.as_secs_f64() {
            return self.settle(now, goodput, "the path is full, or the server pauses");
        }
        if self
            .before_change
            .is_some_and(|before| is_unchanged(goodput, before))
        {
            return self.settle(now, goodput, "as before");
        }
        if now.streams >= self.max_streams {
            return self.settle(now, goodput, "no more are allowed");
        }
        if self.ends_soon(now, goodput) {
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
            show::count(streams, "stream")
        );
        Some(MoreStreams { streams, reason })
    }

    fn settle(&mut self, now: ReceiverSample, goodput: f64, why: &str) -> Option<MoreStreams> {
        if self.before_change.take().is_some() {
            self.failed_searches = (self.failed_searches + 1).min(MAX_DOUBLINGS);
        }
        self.phase = Phase::Settled {
            goodput,
            intervals: 0,
        };
        let reason = format!("{}: {why}", describe_goodput(now, goodput));
        Some(MoreStreams { streams: 0, reason })
    }
}

/// Whether goodput is still about the `settled` one.
fn is_unchanged(goodput: f64, settled: f64) -> bool {
    (FALLEN_SHARE * settled..=RISEN_SHARE * settled).contains(&goodput)
}

fn describe_goodput(now: ReceiverSample, goodput: f64) -> String {
    format!(
        "{} with {}, round trip {} ms",
        show::bits(whole_rate(goodput * 8.0)),
        show::count(now.streams, "stream"),
        now.rtt.as_millis()
    )
}

#[cfg(test)]
mod tests;
