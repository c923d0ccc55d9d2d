//! The numbers that decisions depend on.

use std::time::Duration;

/// A time in round trips, which is at least so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrips {
    /// Round trips.
    pub count: u32,
    /// Shortest time.
    pub least: Duration,
}

impl RoundTrips {
    const fn new(count: u32, least_ms: u64) -> Self {
        Self {
            count,
            least: Duration::from_millis(least_ms),
        }
    }

    /// The time on a path with this round trip.
    pub fn at(self, rtt: Duration) -> Duration {
        rtt.saturating_mul(self.count).max(self.least)
    }
}

/// Thresholds of the rules and the experiments, each with its unit, its range and where it comes from. "Chosen" means set by hand
/// and kept because all of them together did well over sampled paths (`longhaul lab league`); none of these was swept alone. Those
/// of pacing stand in `pacing`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Queueing delay below which a queue harms nobody; 1 to 20 ms. The target of CoDel (RFC 8289).
    pub harmless_queue: Duration,
    /// Separate losses (one per stream and round trip) without a queue that show a lossy path; 2 to 10. Chosen: one may be a
    /// neighbour's event.
    pub loss_events: u32,
    /// Smallest loss ratio of a path that counts, 0..=1. At 1 in 30 000 the mean window of CUBIC is about 250 segments over
    /// 50 ms, or 60 Mbit/s (RFC 9438 §5.1).
    pub least_loss: f64,
    /// Largest loss ratio of the path itself, 0..=1: more comes from a queue that is too short to be seen. A slow start loses up
    /// to half of its last round.
    pub most_loss: f64,
    /// Loss ratio, 0..=1, that lasts only where so many streams share a path that their smallest windows overfill it. Above what
    /// BBR takes from a path that loses by itself (a fifth).
    pub crowded_loss: f64,
    /// Loss ratio, 0..=1, from which on the round trips of a local path are longer without a queue: the few segments of a window wait
    /// for the receiver's delayed acknowledgement (RFC 1122 §4.2.3.2: up to 0.5 s), so that less than `harmless_queue` shows none. Chosen.
    pub delaying_loss: f64,
    /// Time that recovery from an overrun takes, in which losses are not counted; 4 to 10 round trips (RFC 6675: one, and as many
    /// again for each lost retransmission).
    pub recovery: RoundTrips,
    /// Longest time that one count of losses covers: a path changes. Chosen.
    pub loss_window: RoundTrips,
    /// Round trip from which on congestion windows may grow too slowly; 1 to 20 ms. Chosen.
    pub long_path: Duration,
    /// Time without loss, queue and change after which windows are called slow to grow: congestion avoidance adds a segment per
    /// round trip (RFC 5681 §3.1). Chosen.
    pub slow_growth: RoundTrips,
    /// Part of the path's known rate from which on more streams are not tried, below 1. Chosen.
    pub near_rate: f64,
    /// Factor by which streams are multiplied where nothing can be predicted, above 1. Chosen: four finds 64 streams in two or
    /// three steps.
    pub growth: u32,
    /// Surplus of predicted streams, for what the model leaves out; 1 to 1.5. Chosen.
    pub prediction_margin: f64,
    /// Gain of a change that costs others something (streams on a path that may be full, another control), above 1. Ten per
    /// cent lie outside the noise of a measurement (measured).
    pub worthwhile_gain: f64,
    /// Gain of streams where nothing queues, above 1: they take from nobody. Chosen.
    pub harmless_gain: f64,
    /// Part of the rate that fewer streams must keep, below 1: 2 % are noise. A rate that varies may be lower, down to the second
    /// value, if Student's t is not below the third, negative. Chosen.
    pub kept_rate: (f64, f64, f64),
    /// Student's t beyond which the order of two means is decided, 2 to 5: of looks at four values each, 3 is wrong in one of 40.
    pub clear_t: f64,
    /// Gain that is clear without statistics, and loss of rate that is. Chosen.
    pub obvious: (f64, f64),
    /// Rate of a candidate, as a multiple of that of its neighbour streams, with which it wins, above 1. Chosen.
    pub candidate_gain: f64,
    /// Round trips in which candidates must win, and after which those that did not are dismissed. Chosen.
    pub candidate_rounds: (u32, u32),
    /// A round of such a comparison: shorter ones measure bursts.
    pub comparison_round: RoundTrips,
    /// Longest comparison: one side may have lost its streams. Chosen.
    pub longest_comparison: RoundTrips,
    /// Losses of another control, as a multiple of those before and in addition to them, that are too many: they hit others.
    /// Chosen.
    pub harmful_loss: (f64, f64),
    /// Gain with which another control is kept although it loses too much: a path that carries so little without it is of no use to
    /// others, either. Chosen.
    pub gain_despite_loss: f64,
    /// Intervals of two round trips before a change with which it is compared. Chosen.
    pub baseline: usize,
    /// Time after which new streams count, and a buffer that the kernel enlarges has grown: four doublings (tcp(7),
    /// `tcp_moderate_rcvbuf`; RFC 5681 §3.1).
    pub settle_streams: RoundTrips,
    /// Time after which another congestion control counts. Chosen.
    pub settle_control: RoundTrips,
    /// Time over which more streams are measured where windows limit. Chosen.
    pub measure_windows: RoundTrips,
    /// The same where losses do, which make a rate uneven. Chosen.
    pub measure_losses: RoundTrips,
    /// The same where something else does. Chosen.
    pub measure_growth: RoundTrips,
    /// Time over which fewer streams are measured. Chosen.
    pub measure_fewer: RoundTrips,
    /// Time over which another control is measured. Chosen.
    pub measure_control: RoundTrips,
    /// Repetitions of a measurement while streams still start, or a control repairs its own start. Chosen.
    pub repeats: u32,
    /// Longest wait for a stream that is being opened: its SYN was sent three times (RFC 6298: after 1 s and 3 s).
    pub longest_opening: Duration,
    /// Time without a change after which fewer streams are tried. Chosen.
    pub steady: RoundTrips,
    /// The same where losses or a store make the rate uneven. Chosen.
    pub steady_uneven: RoundTrips,
    /// Time that must be left for a change: new streams need some round trips. Chosen.
    pub left_for_change: RoundTrips,
    /// Time that must be left for fewer streams. Chosen.
    pub left_for_fewer: RoundTrips,
    /// Time without more streams after a control that was taken back: its windows are still too large. Chosen.
    pub calm_after_control: RoundTrips,
    /// Time after which a short but lasting queue is drained, too: the smallest round trip may be wrong. Chosen.
    pub lasting_queue: Duration,
    /// Time for which others must share the path before the control is changed for them: many leave sooner. Chosen.
    pub yield_after: Duration,
    /// Time after which others that were not seen again are taken to be gone. Chosen.
    pub others_gone: Duration,
    /// Time after which a pacing rate counts as right. Chosen.
    pub pace_proved: Duration,
}

impl Thresholds {
    /// The values in use.
    pub const DEFAULT: Self = Self {
        harmless_queue: Duration::from_millis(5),
        loss_events: 3,
        least_loss: 3e-5,
        most_loss: 0.12,
        crowded_loss: 0.2,
        delaying_loss: 0.01,
        recovery: RoundTrips::new(6, 100),
        loss_window: RoundTrips::new(100, 10_000),
        long_path: Duration::from_millis(5),
        slow_growth: RoundTrips::new(8, 500),
        near_rate: 0.7,
        growth: 4,
        prediction_margin: 1.1,
        worthwhile_gain: 1.1,
        harmless_gain: 1.05,
        kept_rate: (0.98, 0.95, 1.5),
        clear_t: 3.0,
        obvious: (1.5, 0.85),
        candidate_gain: 1.3,
        candidate_rounds: (2, 20),
        comparison_round: RoundTrips::new(1, 50),
        longest_comparison: RoundTrips::new(40, 4_000),
        harmful_loss: (2.0, 0.01),
        gain_despite_loss: 2.5,
        baseline: 4,
        settle_streams: RoundTrips::new(4, 80),
        settle_control: RoundTrips::new(6, 200),
        measure_windows: RoundTrips::new(2, 50),
        measure_losses: RoundTrips::new(10, 400),
        measure_growth: RoundTrips::new(4, 200),
        measure_fewer: RoundTrips::new(8, 500),
        measure_control: RoundTrips::new(20, 500),
        repeats: 4,
        longest_opening: Duration::from_secs(3),
        steady: RoundTrips::new(8, 400),
        steady_uneven: RoundTrips::new(20, 3_000),
        left_for_change: RoundTrips::new(8, 200),
        left_for_fewer: RoundTrips::new(20, 5_000),
        calm_after_control: RoundTrips::new(30, 3_000),
        lasting_queue: Duration::from_secs(5),
        yield_after: Duration::from_secs(5),
        others_gone: Duration::from_secs(30),
        pace_proved: Duration::from_secs(10),
    };
}

/// The thresholds that the rules use.
pub(super) const LIMITS: Thresholds = Thresholds::DEFAULT;
