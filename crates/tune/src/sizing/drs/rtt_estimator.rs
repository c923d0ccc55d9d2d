//! Estimates the round trip from which buffer sizes are computed.
//!
//! Echoes wait in the same queue as the data, and a larger window makes that queue longer. A buffer that
//! always follows the echoes would grow until the queue overflows. The smallest round trip is therefore the
//! estimate, until the route itself becomes longer. A larger window tells the two cases apart: on a longer route
//! it brings more bytes, with a longer queue it does not. So a longer round trip is tried, and kept if more
//! bytes arrive.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Range of the estimate. Below a millisecond the hosts' own delays dominate.
const ESTIMATE_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;
/// Longest echo that counts.
const LONGEST: Duration = Duration::from_secs(60);
/// Estimate while nothing is known: the papers' path.
const UNKNOWN: Duration = Duration::from_millis(100);
/// Number of echoes whose smallest is the current round trip.
const CURRENT_ECHOES: usize = 4;
/// Time for which a queue may still grow after a buffer has grown.
const QUEUE_SETTLING: Duration = Duration::from_secs(3);
/// Shortest and longest trial; between them it lasts [`TRIAL_ROUND_TRIPS`].
const TRIAL_TIME: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(6));
const TRIAL_ROUND_TRIPS: u32 = 8;
/// First and longest time after which a round trip that a queue explains is tried again.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(240));

/// Estimator of a path's round trip.
#[derive(Debug, Clone)]
pub(super) struct RttEstimator {
    estimated: Option<Duration>,
    /// The latest echoes, oldest first.
    echoes: VecDeque<Duration>,
    /// Longest round trip since the buffers last grew: a queue explains it.
    queue_explains: Duration,
    last_growth: Duration,
    trial: Option<RttTrial>,
    /// Time from which on a trial may begin in any case.
    retry_at: Duration,
    retry_after: Duration,
}

/// A trial of a longer round trip.
#[derive(Debug, Clone, Copy)]
struct RttTrial {
    started: Duration,
    length: Duration,
    /// Estimate before the trial.
    shorter: Option<Duration>,
    /// Bytes that arrived in a time of `window` before the trial.
    bytes_before: u64,
    window: Duration,
}

/// Start or end of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RttTrialEvent {
    /// A trial begins.
    Started,
    /// A trial has ended.
    Ended {
        /// Whether more bytes arrived than before.
        gained: bool,
    },
}

impl RttEstimator {
    pub(super) fn new() -> Self {
        Self {
            estimated: None,
            echoes: VecDeque::with_capacity(CURRENT_ECHOES + 1),
            queue_explains: Duration::ZERO,
            last_growth: Duration::ZERO,
            trial: None,
            retry_at: RETRY_AFTER.0,
            retry_after: RETRY_AFTER.0,
        }
    }

    /// Takes the round trip of a handshake; zero if unknown.
    pub(super) fn on_handshake(&mut self, rtt: Duration) {
        if !rtt.is_zero() && rtt <= LONGEST {
            self.shorten(rtt);
        }
    }

    /// Takes the round trip of a message; impossible values are ignored.
    pub(super) fn on_echo(&mut self, rtt: Duration) {
        if rtt.is_zero() || rtt > LONGEST {
            return;
        }
        self.echoes.push_back(rtt);
        if self.echoes.len() > CURRENT_ECHOES {
            self.echoes.pop_front();
        }
        self.shorten(rtt);
    }

    /// Notes that a buffer has grown.
    pub(super) fn on_growth(&mut self, at: Duration) {
        self.last_growth = at;
        // The larger buffer may build a longer queue, whose length is not known yet.
        self.queue_explains = Duration::ZERO;
    }

    /// The estimate, if anything was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.estimated
    }

    /// The estimate, or the papers' round trip.
    pub(super) fn estimate(&self) -> Duration {
        self.estimated.unwrap_or(UNKNOWN)
    }

    /// Current round trip, queue included; at least the estimate.
    pub(super) fn current(&self) -> Duration {
        self.now().unwrap_or_default().max(self.estimate())
    }

    /// Begins or ends a trial if it is time to. `limited` tells whether the window limits some stream at a
    /// round trip, `arrived_bytes` how many bytes arrived in the latest time.
    pub(super) fn update_trial(
        &mut self,
        at: Duration,
        limited: impl Fn(Duration) -> bool,
        arrived_bytes: impl Fn(Duration) -> u64,
    ) -> Option<RttTrialEvent> {
        // Single echoes vary with the queue. A trial needs the smallest of several.
        let now = self.now()?;
        if let Some(trial) = self.trial {
            return self.end_trial_if_over(at, trial, arrived_bytes(trial.window), now);
        }
        // A larger buffer fills the queue first: a longer round trip in this time is no evidence of a
        // longer route.
        if at.saturating_sub(self.last_growth) < QUEUE_SETTLING {
            self.queue_explains = self.queue_explains.max(now);
        }
        let queue_explains = now <= longer(self.queue_explains) && at < self.retry_at;
        if queue_explains || now <= longer(self.estimate()) || !limited(now) {
            return None;
        }
        // Two round trips even out the flights in them.
        let window = 2 * now;
        self.trial = Some(RttTrial {
            started: at,
            length: (TRIAL_ROUND_TRIPS * now).clamp(TRIAL_TIME.0, TRIAL_TIME.1),
            shorter: self.estimated,
            bytes_before: arrived_bytes(window),
            window,
        });
        self.estimated = Some(now);
        Some(RttTrialEvent::Started)
    }

    fn end_trial_if_over(
        &mut self,
        at: Duration,
        trial: RttTrial,
        arrived_bytes: u64,
        now: Duration,
    ) -> Option<RttTrialEvent> {
        let lasted = at.saturating_sub(trial.started);
        // 10 % more is beyond the noise of arrivals.
        let gained = lasted > trial.window
            && arrived_bytes > trial.bytes_before.saturating_add(trial.bytes_before / 10);
        if !gained && lasted < trial.length {
            return None;
        }
        self.trial = None;
        self.queue_explains = now;
        if gained {
            self.retry_after = RETRY_AFTER.0;
        } else {
            // `min` keeps an echo during the trial that was shorter than the old estimate.
            self.estimated = self.estimated.min(trial.shorter);
            self.retry_after = (2 * self.retry_after).min(RETRY_AFTER.1);
        }
        self.retry_at = at.saturating_add(self.retry_after);
        Some(RttTrialEvent::Ended { gained })
    }

    /// Current round trip, queue included, once there are enough echoes.
    fn now(&self) -> Option<Duration> {
        let least = self.echoes.iter().min().copied();
        least.filter(|_| self.echoes.len() == CURRENT_ECHOES)
    }

    fn shorten(&mut self, rtt: Duration) {
        let rtt = rtt.clamp(*ESTIMATE_RANGE.start(), *ESTIMATE_RANGE.end());
        self.estimated = Some(self.estimated.map_or(rtt, |known| known.min(rtt)));
    }
}

/// Bound above which a round trip counts as longer.
fn longer(rtt: Duration) -> Duration {
    rtt + rtt / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// An estimator after a handshake of 100 ms and echoes of `echo` milliseconds.
    fn measured(echo: u64) -> RttEstimator {
        let mut rtt = RttEstimator::new();
        rtt.on_handshake(ms(100));
        echo_repeatedly(&mut rtt, echo);
        rtt
    }

    fn echo_repeatedly(rtt: &mut RttEstimator, echo: u64) {
        for _ in 0..CURRENT_ECHOES {
            rtt.on_echo(ms(echo));
        }
    }

    /// Updates the trial with a full window; `arrived_bytes` arrived lately.
    fn update(rtt: &mut RttEstimator, at: Duration, arrived_bytes: u64) -> Option<RttTrialEvent> {
        rtt.update_trial(at, |_| true, |_| arrived_bytes)
    }

    #[test]
    fn the_estimate_is_the_smallest_round_trip_and_the_current_one_is_known() {
        let mut rtt = measured(180);
        assert_eq!((rtt.estimate(), rtt.current()), (ms(100), ms(180)));
        rtt.on_echo(ms(80));
        assert_eq!((rtt.estimate(), rtt.current()), (ms(80), ms(80)));
        let unknown = RttEstimator::new();
        assert_eq!((unknown.measured(), unknown.estimate()), (None, ms(100)));
    }

    #[test]
    fn a_longer_round_trip_is_tried_and_kept_if_more_bytes_arrive() {
        let mut rtt = measured(400);
        assert_eq!(
            update(&mut rtt, seconds(10), 1000),
            Some(RttTrialEvent::Started)
        );
        assert_eq!(rtt.estimate(), ms(400));
        assert_eq!(
            update(&mut rtt, ms(10_500), 2000),
            None,
            "too early to tell"
        );
        assert_eq!(update(&mut rtt, seconds(11), 1050), None, "not yet more");
        assert_eq!(
            update(&mut rtt, seconds(12), 1200),
            Some(RttTrialEvent::Ended { gained: true })
        );
        assert_eq!(rtt.estimate(), ms(400));
    }

    #[test]
    fn a_trial_without_gain_is_repeated_only_after_a_long_time() {
        let mut rtt = measured(400);
        assert_eq!(
            update(&mut rtt, seconds(10), 1000),
            Some(RttTrialEvent::Started)
        );
        let over = Some(RttTrialEvent::Ended { gained: false });
        assert_eq!(update(&mut rtt, seconds(14), 1050), over);
        assert_eq!(rtt.estimate(), ms(100));
        assert_eq!(update(&mut rtt, seconds(73), 1000), None);
        echo_repeatedly(&mut rtt, 480);
        assert_eq!(update(&mut rtt, seconds(73), 1000), None, "still explained");
        assert_eq!(
            update(&mut rtt, seconds(74), 1000),
            Some(RttTrialEvent::Started)
        );
        assert_eq!(update(&mut rtt, seconds(80), 1000), over);
        assert_eq!(update(&mut rtt, seconds(199), 1000), None, "twice as long");
        echo_repeatedly(&mut rtt, 900);
        let longer = update(&mut rtt, seconds(199), 1000);
        assert_eq!(longer, Some(RttTrialEvent::Started), "longer again");
    }

    #[test]
    fn a_queue_that_follows_a_larger_buffer_starts_no_trial() {
        let mut rtt = measured(100);
        rtt.on_growth(seconds(5));
        echo_repeatedly(&mut rtt, 200);
        assert_eq!(update(&mut rtt, seconds(6), 1000), None);
        assert_eq!(update(&mut rtt, seconds(20), 1000), None);
        echo_repeatedly(&mut rtt, 300);
        assert_eq!(
            update(&mut rtt, seconds(21), 1000),
            Some(RttTrialEvent::Started)
        );
    }

    #[test]
    fn no_trial_begins_while_the_window_does_not_limit() {
        let mut rtt = measured(400);
        assert_eq!(rtt.update_trial(seconds(100), |_| false, |_| 0), None);
    }

    #[test]
    fn an_echo_shorter_than_the_trial_counts_at_once() {
        let mut rtt = measured(400);
        update(&mut rtt, seconds(10), 1000);
        rtt.on_echo(ms(120));
        assert_eq!(rtt.estimate(), ms(120));
        update(&mut rtt, seconds(20), 1000);
        assert_eq!(rtt.estimate(), ms(100));
    }
}
