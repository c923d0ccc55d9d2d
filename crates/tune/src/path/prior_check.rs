//! Checks the knowledge of a path against the first samples of a transfer.
//!
//! A path may have become another: another route, a slower line, losses. One sample says nothing, since
//! round trips jitter and a slow start is slow; a disagreement that lasts for a round trip does. With two
//! samples per round trip, the knowledge is dropped within two round trips of the first disagreement.

use std::time::Duration;

use crate::congestion::is_loss_tolerant;
use crate::prior::Prior;

/// Factor by which the round trip must differ.
const OTHER_ROUND_TRIP: f64 = 1.5;
/// Difference of round trips that is never a disagreement.
const ROUND_TRIP_NOISE: Duration = Duration::from_millis(5);
/// With a queue the path is full: a rate below this part of the known one is then the path's.
const FULL_AND_SLOWER: f64 = 0.7;
/// Part of the known rate that must be reached when there was time to.
const MUCH_SLOWER: f64 = 0.5;
/// Part of the known rate from which on it is confirmed.
const CONFIRMED: f64 = 0.8;
/// Losses without a queue that a loss-based congestion control does not reach the known rate with.
const HARMFUL_LOSS: f64 = 1e-3;
/// Round trips in which a transfer reaches its rate, and the least time for that.
const RAMP_ROUND_TRIPS: u32 = 20;
const MIN_RAMP: Duration = Duration::from_secs(2);
/// Round trips of agreement after which the check ends.
const CONFIRM_ROUND_TRIPS: u32 = 2;
/// The check ends at the latest after so many ramps.
const MAX_RAMPS: u32 = 3;

/// One sample of a transfer, over all its streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorSample {
    /// Time since the transfer began.
    pub at: Duration,
    /// Smallest round trip so far; zero if unknown.
    pub min_rtt: Duration,
    /// Smoothed round trip.
    pub smoothed_rtt: Duration,
    /// Goodput over about the last round trip, bytes per second.
    pub rate: u64,
    /// Part of the sent bytes that was retransmitted so far, 0..=1.
    pub loss: f64,
    /// The sending program, the store or a rate limit holds the transfer back: its rate says nothing.
    pub is_held_back: bool,
}

/// Finding of the samples about the knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorFinding {
    /// Nothing certain yet.
    Undecided,
    /// The knowledge holds: the check is over.
    Keep,
    /// The path is another: the check is over.
    Drop(PriorDisagreement),
}

/// How a path differs from what was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorDisagreement {
    /// Its round trip is another.
    RoundTrip,
    /// It is full, or was given time, at a lower rate.
    SlowerPath,
    /// It loses packets, which the known congestion control does not tolerate.
    Losses,
}

impl PriorDisagreement {
    /// The reason, for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::RoundTrip => "its round trip is another",
            Self::SlowerPath => "it is slower now",
            Self::Losses => "it loses packets now",
        }
    }
}

/// Whether these round trips are not of one path: they differ by more than half and 5 ms.
pub fn is_other_round_trip(one: Duration, other: Duration) -> bool {
    let (short, long) = (one.min(other), one.max(other));
    long > short
        .mul_f64(OTHER_ROUND_TRIP)
        .saturating_add(ROUND_TRIP_NOISE)
}

/// The check of one transfer.
#[derive(Debug, Clone)]
pub struct PriorCheck {
    min_rtt: Option<Duration>,
    rate: Option<u64>,
    tolerates_loss: bool,
    started: Option<Duration>,
    /// Largest rate so far, bytes per second. After an overrun of the queue the count of acknowledged bytes stands
    /// still and jumps; until then it has shown the path's rate.
    best_rate: u64,
    disagreement: Option<(PriorDisagreement, Duration)>,
    agrees_since: Option<Duration>,
    finding: PriorFinding,
}

impl PriorCheck {
    /// A check of `prior`; `None` if it holds neither a rate nor a round trip that could disagree. A
    /// number of streams alone is a rule or a user's choice.
    pub fn new(prior: &Prior) -> Option<Self> {
        let min_rtt = prior.min_rtt.filter(|rtt| !rtt.is_zero());
        let rate = prior.expected_rate.filter(|rate| *rate > 0);
        if rate.is_none() && min_rtt.is_none() {
            return None;
        }
        Some(Self {
            min_rtt,
            rate,
            tolerates_loss: prior
                .congestion_control
                .as_deref()
                .is_some_and(is_loss_tolerant),
            started: None,
            best_rate: 0,
            disagreement: None,
            agrees_since: None,
            finding: PriorFinding::Undecided,
        })
    }

    /// Takes a sample. Once decided, the finding stays.
    pub fn on_sample(&mut self, sample: &PriorSample) -> PriorFinding {
        if self.finding != PriorFinding::Undecided || sample.min_rtt.is_zero() {
            return self.finding;
        }
        self.best_rate = self.best_rate.max(sample.rate);
        let started = *self.started.get_or_insert(sample.at);
        let rtt = sample.smoothed_rtt.max(sample.min_rtt);
        let passed = sample.at.saturating_sub(started);
        let ramp = sample
            .min_rtt
            .saturating_mul(RAMP_ROUND_TRIPS)
            .max(MIN_RAMP);
        self.disagreement = match (
            self.disagreement_of(sample, passed >= ramp),
            self.disagreement,
        ) {
            (None, _) => None,
            (Some(now), Some((before, since))) if now == before => Some((now, since)),
            (Some(now), _) => Some((now, sample.at)),
        };
        if let Some((disagreement, since)) = self.disagreement {
            self.agrees_since = None;
            if sample.at.saturating_sub(since) >= rtt.min(sample.min_rtt.saturating_mul(2)) {
                self.finding = PriorFinding::Drop(disagreement);
            }
            return self.finding;
        }
        if self.is_confirmed() {
            let since = *self.agrees_since.get_or_insert(sample.at);
            if sample.at.saturating_sub(since) >= rtt.saturating_mul(CONFIRM_ROUND_TRIPS) {
                self.finding = PriorFinding::Keep;
            }
        } else {
            self.agrees_since = None;
        }
        if passed >= ramp.saturating_mul(MAX_RAMPS) {
            self.finding = PriorFinding::Keep;
        }
        self.finding
    }

    /// How this sample disagrees. `had_time`: the transfer must have reached its rate.
    fn disagreement_of(&self, sample: &PriorSample, had_time: bool) -> Option<PriorDisagreement> {
        if self
            .min_rtt
            .is_some_and(|known| is_other_round_trip(known, sample.min_rtt))
        {
            return Some(PriorDisagreement::RoundTrip);
        }
        let known = self.rate.filter(|_| !sample.is_held_back)? as f64;
        let rate = self.best_rate as f64;
        let queue = sample.smoothed_rtt.saturating_sub(sample.min_rtt);
        let is_full = queue > (sample.min_rtt / 2).max(ROUND_TRIP_NOISE);
        if (is_full && rate < known * FULL_AND_SLOWER) || (had_time && rate < known * MUCH_SLOWER) {
            // Without a queue, losses may be the reason, and those have another remedy.
            let lossy = !is_full && sample.loss >= HARMFUL_LOSS && !self.tolerates_loss;
            return Some(if lossy {
                PriorDisagreement::Losses
            } else {
                PriorDisagreement::SlowerPath
            });
        }
        let is_lossy = sample.loss >= HARMFUL_LOSS && queue <= ROUND_TRIP_NOISE;
        (is_lossy && !self.tolerates_loss && rate < known * CONFIRMED)
            .then_some(PriorDisagreement::Losses)
    }

    fn is_confirmed(&self) -> bool {
        match self.rate {
            Some(known) => self.best_rate as f64 >= known as f64 * CONFIRMED,
            // The round trip is all that is known, and it agrees.
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KNOWN: u64 = 100_000_000;
    const RTT: Duration = Duration::from_millis(100);

    fn prior() -> Prior {
        Prior {
            congestion_control: Some("bbr".to_owned()),
            expected_rate: Some(KNOWN),
            min_rtt: Some(RTT),
            ..Prior::with_streams(8)
        }
    }

    fn sample(at: Duration, rate: u64) -> PriorSample {
        PriorSample {
            at,
            min_rtt: RTT,
            smoothed_rtt: RTT,
            rate,
            loss: 0.0,
            is_held_back: false,
        }
    }

    /// Samples every half round trip until a finding, for at most ten minutes.
    fn finding(
        prior: &Prior,
        sampled: impl Fn(Duration) -> PriorSample,
    ) -> (Duration, PriorFinding) {
        let mut check = PriorCheck::new(prior).unwrap();
        for n in 1..12_000 {
            let at = RTT / 2 * n;
            let finding = check.on_sample(&sampled(at));
            if finding != PriorFinding::Undecided {
                return (at, finding);
            }
        }
        panic!("no finding");
    }

    /// Slow start from a fiftieth of the rate.
    fn slow_start(at: Duration) -> u64 {
        let doublings = at.as_millis() / 100;
        KNOWN.min((KNOWN / 50) << doublings.min(20))
    }

    #[test]
    fn a_transfer_that_reaches_the_known_rate_keeps_the_knowledge() {
        let (at, found) = finding(&prior(), |at| sample(at, slow_start(at)));
        assert_eq!(found, PriorFinding::Keep);
        assert!(at < RTT * 10, "{at:?}");
    }

    #[test]
    fn another_round_trip_is_found_within_two_round_trips() {
        for other in [20, 60, 200] {
            let min_rtt = Duration::from_millis(other);
            let (at, found) = finding(&prior(), |at| PriorSample {
                min_rtt,
                smoothed_rtt: min_rtt,
                ..sample(at, slow_start(at))
            });
            assert_eq!(found, PriorFinding::Drop(PriorDisagreement::RoundTrip));
            assert!(at <= (RTT / 2 + min_rtt).max(RTT) + RTT / 2, "{at:?}");
        }
    }

    #[test]
    fn a_full_path_at_a_lower_rate_is_found_within_two_round_trips() {
        // The slow start fills a path of a tenth of the known rate after 300 ms.
        let full = Duration::from_millis(300);
        let (at, found) = finding(&prior(), |at| PriorSample {
            smoothed_rtt: if at >= full { RTT * 8 / 5 } else { RTT },
            ..sample(at, slow_start(at).min(KNOWN / 10))
        });
        assert_eq!(found, PriorFinding::Drop(PriorDisagreement::SlowerPath));
        assert!(at <= full + RTT * 2, "{at:?}");
    }

    #[test]
    fn new_losses_are_found_unless_the_known_control_tolerates_them() {
        let lossy = |at| PriorSample {
            loss: 0.02,
            ..sample(at, slow_start(at).min(KNOWN / 3))
        };
        let lossless = Prior {
            congestion_control: None,
            ..prior()
        };
        let (at, found) = finding(&lossless, lossy);
        assert_eq!(found, PriorFinding::Drop(PriorDisagreement::Losses));
        assert!(at <= RTT * 2);
        let (_, found) = finding(&prior(), lossy);
        assert_eq!(found, PriorFinding::Drop(PriorDisagreement::SlowerPath));
    }

    #[test]
    fn a_transfer_that_is_held_back_says_nothing_of_the_rate() {
        let (_, found) = finding(&prior(), |at| PriorSample {
            is_held_back: true,
            ..sample(at, KNOWN / 100)
        });
        assert_eq!(found, PriorFinding::Keep);
    }

    #[test]
    fn a_single_sample_drops_nothing() {
        let (_, found) = finding(&prior(), |at| PriorSample {
            smoothed_rtt: if at == RTT * 2 { RTT * 3 } else { RTT },
            ..sample(at, slow_start(at))
        });
        assert_eq!(found, PriorFinding::Keep);
    }

    #[test]
    fn a_number_of_streams_disagrees_only_with_its_round_trip() {
        assert!(PriorCheck::new(&Prior::with_streams(4)).is_none());
        let with_rtt = Prior {
            min_rtt: Some(RTT),
            ..Prior::with_streams(4)
        };
        assert!(PriorCheck::new(&with_rtt).is_some());
        let with_pace = Prior {
            pacing_rate: Some(KNOWN),
            ..with_rtt
        };
        let (_, found) = finding(&with_pace, |at| sample(at, KNOWN / 100));
        assert_eq!(found, PriorFinding::Keep);
    }

    #[test]
    fn a_rate_that_was_reached_is_confirmed_although_acknowledgements_stall_later() {
        let overrun = Duration::from_millis(800);
        let (_, found) = finding(&prior(), |at| PriorSample {
            smoothed_rtt: if at > overrun { RTT * 8 / 5 } else { RTT },
            ..sample(
                at,
                if at > overrun {
                    KNOWN / 10
                } else {
                    slow_start(at)
                },
            )
        });
        assert_eq!(found, PriorFinding::Keep);
    }

    proptest! {
        #[test]
        fn absurd_samples_are_survived(
            samples in prop::collection::vec((any::<[u64; 4]>(), any::<f64>()), 0..40),
            known in any::<[u64; 2]>(),
        ) {
            let prior = Prior {
                expected_rate: Some(known[0]),
                min_rtt: Some(Duration::from_nanos(known[1])),
                ..Prior::default()
            };
            if let Some(mut check) = PriorCheck::new(&prior) {
                for ([at, min_rtt, smoothed_rtt, rate], loss) in samples {
                    check.on_sample(&PriorSample {
                        at: Duration::from_secs(at),
                        min_rtt: Duration::from_nanos(min_rtt),
                        smoothed_rtt: Duration::from_secs(smoothed_rtt),
                        rate,
                        loss,
                        is_held_back: false,
                    });
                }
            }
        }
    }
}
