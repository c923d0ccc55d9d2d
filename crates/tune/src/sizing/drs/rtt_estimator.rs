//! The round trip that a buffer is reckoned from.
//!
//! Echoes share the path's queue with the data, and the queue is as long as the window makes it: a
//! buffer that follows them upwards without question grows until the queue overflows. The smallest
//! round trip is the one to reckon with, until the path itself becomes longer. The two cannot be told
//! apart by a round trip alone, but by what a larger window brings: on a longer path more bytes, and
//! on a longer queue nothing. So a longer round trip is tried, and kept if it won something.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Round trips that are reckoned with. Below a millisecond hosts need longer than paths.
const RECKONED: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;
/// A longer echo is not believed.
const LONGEST: Duration = Duration::from_secs(60);
/// The papers' path, while nothing is known.
const UNKNOWN: Duration = Duration::from_millis(100);
/// The smallest of so many echoes is how long the round trip is now.
const ECHOES: usize = 4;
/// How long after buffers grew the queue may still fill up.
const SETTLING: Duration = Duration::from_secs(3);
/// How long a trial lasts at least, at most, and in round trips.
const TRIAL: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(6));
const TRIAL_ROUND_TRIPS: u32 = 8;
/// When a round trip is tried again that is explained by the queue, at first and at last.
const AGAIN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(240));

/// Estimates a path's round trip.
#[derive(Debug, Clone)]
pub(super) struct RttEstimator {
    reckoned: Option<Duration>,
    /// The latest, oldest first.
    echoes: VecDeque<Duration>,
    /// The longest that the round trip became after buffers grew last: what the queue explains.
    explained: Duration,
    grown: Duration,
    trial: Option<RttTrial>,
    /// When a trial may begin in any case.
    again: Duration,
    pause: Duration,
}

/// A longer round trip on trial.
#[derive(Debug, Clone, Copy)]
struct RttTrial {
    begun: Duration,
    lasts: Duration,
    /// The round trip reckoned with before.
    shorter: Option<Duration>,
    /// Bytes that came in [`RttEstimator::window`] before.
    brought: u64,
    window: Duration,
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RttTrialEvent {
    /// It begins.
    Started,
    /// It is over.
    Ended {
        /// More came than before.
        won: bool,
    },
}

impl RttEstimator {
    pub(super) fn new() -> Self {
        Self {
            reckoned: None,
            echoes: VecDeque::with_capacity(ECHOES + 1),
            explained: Duration::ZERO,
            grown: Duration::ZERO,
            trial: None,
            again: AGAIN.0,
            pause: AGAIN.0,
        }
    }

    /// The round trip of a handshake, if known.
    pub(super) fn on_handshake(&mut self, rtt: Duration) {
        if !rtt.is_zero() && rtt <= LONGEST {
            self.shorten(rtt);
        }
    }

    /// The round trip of a message, if it can be.
    pub(super) fn on_echo(&mut self, rtt: Duration) {
        if rtt.is_zero() || rtt > LONGEST {
            return;
        }
        self.echoes.push_back(rtt);
        if self.echoes.len() > ECHOES {
            self.echoes.pop_front();
        }
        self.shorten(rtt);
    }

    /// A buffer has grown.
    pub(super) fn on_growth(&mut self, at: Duration) {
        self.grown = at;
        self.explained = Duration::ZERO;
    }

    /// The round trip reckoned with, if anything was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.reckoned
    }

    /// The round trip reckoned with.
    pub(super) fn estimate(&self) -> Duration {
        self.reckoned.unwrap_or(UNKNOWN)
    }

    /// How long it is now, queue included.
    pub(super) fn current(&self) -> Duration {
        self.now().unwrap_or_default().max(self.estimate())
    }

    /// Whether it is time for a trial to begin or end. `limited` says whether the window limits
    /// some stream at a round trip, `came` how many bytes came in the latest time.
    pub(super) fn update_trial(
        &mut self,
        at: Duration,
        limited: impl Fn(Duration) -> bool,
        came: impl Fn(Duration) -> u64,
    ) -> Option<RttTrialEvent> {
        let now = self.now()?;
        if let Some(trial) = self.trial {
            return self.judge(at, trial, came(trial.window), now);
        }
        if at.saturating_sub(self.grown) < SETTLING {
            self.explained = self.explained.max(now);
        }
        let explained = now <= longer(self.explained) && at < self.again;
        if explained || now <= longer(self.estimate()) || !limited(now) {
            return None;
        }
        let window = 2 * now;
        self.trial = Some(RttTrial {
            begun: at,
            lasts: (TRIAL_ROUND_TRIPS * now).clamp(TRIAL.0, TRIAL.1),
            shorter: self.reckoned,
            brought: came(window),
            window,
        });
        self.reckoned = Some(now);
        Some(RttTrialEvent::Started)
    }

    fn judge(
        &mut self,
        at: Duration,
        trial: RttTrial,
        came: u64,
        now: Duration,
    ) -> Option<RttTrialEvent> {
        let lasted = at.saturating_sub(trial.begun);
        let won = lasted > trial.window && came > trial.brought.saturating_add(trial.brought / 10);
        if !won && lasted < trial.lasts {
            return None;
        }
        self.trial = None;
        self.explained = now;
        if won {
            self.pause = AGAIN.0;
        } else {
            self.reckoned = self.reckoned.min(trial.shorter);
            self.pause = (2 * self.pause).min(AGAIN.1);
        }
        self.again = at.saturating_add(self.pause);
        Some(RttTrialEvent::Ended { won })
    }

    /// How long the round trip is now, queue included.
    fn now(&self) -> Option<Duration> {
        let least = self.echoes.iter().min().copied();
        least.filter(|_| self.echoes.len() == ECHOES)
    }

    fn shorten(&mut self, rtt: Duration) {
        let rtt = rtt.clamp(*RECKONED.start(), *RECKONED.end());
        self.reckoned = Some(self.reckoned.map_or(rtt, |known| known.min(rtt)));
    }
}

/// Bound above which a round trip is no longer the same.
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

    /// With a handshake of 100 ms, and so many milliseconds in every echo since.
    fn measured(echo: u64) -> RttEstimator {
        let mut rtt = RttEstimator::new();
        rtt.on_handshake(ms(100));
        hear(&mut rtt, echo);
        rtt
    }

    fn hear(rtt: &mut RttEstimator, echo: u64) {
        for _ in 0..ECHOES {
            rtt.on_echo(ms(echo));
        }
    }

    /// Asked at a time, with a full window; so many bytes came lately.
    fn ask(rtt: &mut RttEstimator, at: Duration, came: u64) -> Option<RttTrialEvent> {
        rtt.update_trial(at, |_| true, |_| came)
    }

    #[test]
    fn the_smallest_is_reckoned_with_and_the_present_one_is_known() {
        let mut rtt = measured(180);
        assert_eq!((rtt.estimate(), rtt.current()), (ms(100), ms(180)));
        rtt.on_echo(ms(80));
        assert_eq!((rtt.estimate(), rtt.current()), (ms(80), ms(80)));
        let unknown = RttEstimator::new();
        assert_eq!((unknown.measured(), unknown.estimate()), (None, ms(100)));
    }

    #[test]
    fn a_longer_path_is_tried_and_kept_if_more_comes() {
        let mut rtt = measured(400);
        assert_eq!(
            ask(&mut rtt, seconds(10), 1000),
            Some(RttTrialEvent::Started)
        );
        assert_eq!(rtt.estimate(), ms(400));
        assert_eq!(ask(&mut rtt, ms(10_500), 2000), None, "too early to tell");
        assert_eq!(ask(&mut rtt, seconds(11), 1050), None, "not yet more");
        assert_eq!(
            ask(&mut rtt, seconds(12), 1200),
            Some(RttTrialEvent::Ended { won: true })
        );
        assert_eq!(rtt.estimate(), ms(400));
    }

    #[test]
    fn a_trial_that_wins_nothing_is_over_and_not_soon_repeated() {
        let mut rtt = measured(400);
        assert_eq!(
            ask(&mut rtt, seconds(10), 1000),
            Some(RttTrialEvent::Started)
        );
        let over = Some(RttTrialEvent::Ended { won: false });
        assert_eq!(ask(&mut rtt, seconds(14), 1050), over);
        assert_eq!(rtt.estimate(), ms(100));
        assert_eq!(ask(&mut rtt, seconds(73), 1000), None);
        hear(&mut rtt, 480);
        assert_eq!(ask(&mut rtt, seconds(73), 1000), None, "still explained");
        assert_eq!(
            ask(&mut rtt, seconds(74), 1000),
            Some(RttTrialEvent::Started)
        );
        assert_eq!(ask(&mut rtt, seconds(80), 1000), over);
        assert_eq!(ask(&mut rtt, seconds(199), 1000), None, "twice as long");
        hear(&mut rtt, 900);
        let longer = ask(&mut rtt, seconds(199), 1000);
        assert_eq!(longer, Some(RttTrialEvent::Started), "longer again");
    }

    #[test]
    fn a_queue_that_came_with_a_larger_buffer_is_explained() {
        let mut rtt = measured(100);
        rtt.on_growth(seconds(5));
        hear(&mut rtt, 200);
        assert_eq!(ask(&mut rtt, seconds(6), 1000), None);
        assert_eq!(ask(&mut rtt, seconds(20), 1000), None);
        hear(&mut rtt, 300);
        assert_eq!(
            ask(&mut rtt, seconds(21), 1000),
            Some(RttTrialEvent::Started)
        );
    }

    #[test]
    fn nothing_is_tried_while_the_window_does_not_limit() {
        let mut rtt = measured(400);
        assert_eq!(rtt.update_trial(seconds(100), |_| false, |_| 0), None);
    }

    #[test]
    fn an_echo_shorter_than_the_trials_counts_at_once() {
        let mut rtt = measured(400);
        ask(&mut rtt, seconds(10), 1000);
        rtt.on_echo(ms(120));
        assert_eq!(rtt.estimate(), ms(120));
        ask(&mut rtt, seconds(20), 1000);
        assert_eq!(rtt.estimate(), ms(100));
    }
}
