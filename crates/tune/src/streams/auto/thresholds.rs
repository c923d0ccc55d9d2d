//! The numbers that decisions depend on.

use std::time::Duration;

/// Thresholds of the rules, each with its unit, its range and where it comes from. "League" is the sweep over sampled paths
/// (`longhaul lab league`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Queueing delay below which a queue harms nobody; 1 to 20 ms. Half of what interactive traffic notices (ITU-T G.114
    /// allows 150 ms in all).
    pub harmless_queue: Duration,
    /// Separate losses (one per stream and round trip) without a queue that show a lossy path; 2 to 10. Three lie outside what
    /// one event of a neighbour explains (league).
    pub loss_events: u32,
    /// Smallest loss ratio of a path that counts, 0..=1. At 1 in 30 000 the mean window of CUBIC is about 250 segments over
    /// 50 ms, or 60 Mbit/s (RFC 9438 §5.1).
    pub least_loss: f64,
    /// Largest loss ratio of the path itself, 0..=1: more comes from a queue that is too short to be seen. A slow start loses up
    /// to half of its last round.
    pub most_loss: f64,
    /// Round trips that recovery from an overrun takes, in which losses are not counted; 4 to 10 (RFC 6675: one, and as many
    /// again for each lost retransmission).
    pub recovery_round_trips: u32,
    /// Longest time, and number of round trips, that one count of losses covers: a path changes.
    pub loss_window: Duration,
    /// See `loss_window`.
    pub loss_window_round_trips: u32,
    /// Round trips of four doublings: a buffer that the kernel enlarges, and a new stream, have grown after them
    /// (tcp(7), `tcp_moderate_rcvbuf`; RFC 5681 §3.1).
    pub growth_round_trips: u32,
    /// Round trips without loss and queue after which congestion windows are called slow to grow; congestion avoidance adds a
    /// segment in each (RFC 5681 §3.1).
    pub slow_growth_round_trips: u32,
    /// Factor by which streams are multiplied where nothing can be predicted, above 1. Four finds 64 streams in two steps
    /// where windows limit (league).
    pub growth: u32,
    /// Surplus of predicted streams, for what the model leaves out; 1 to 1.5 (league).
    pub prediction_margin: f64,
    /// Gain of a change that costs others something (streams on a path that may be full, another control), above 1. Ten per
    /// cent lie outside the noise of a measurement (measured).
    pub worthwhile_gain: f64,
    /// Factor, above 1, on a gain that was measured while some streams still started (league).
    pub unfinished_gain: f64,
    /// Gain of streams where nothing queues, above 1: they take from nobody.
    pub harmless_gain: f64,
    /// Part of the rate that fewer streams must keep, below 1: 2 % are noise. A rate that varies may be lower, down to the second
    /// value, if Student's t is not below the third, negative.
    pub kept_rate: (f64, f64, f64),
    /// Student's t beyond which the order of two means is decided, 2 to 5: 3 is wrong once in 40 looks at four values each.
    pub clear_t: f64,
    /// Rate of a candidate, as a multiple of that of its neighbour streams, with which it wins, above 1 (league).
    pub candidate_gain: f64,
    /// Round trips in which candidates must win, and after which those that did not are dismissed.
    pub candidate_rounds: (u32, u32),
    /// Losses of another control, as a multiple of those before and in addition to them, that are too many: they hit others.
    pub harmful_loss: (f64, f64),
    /// Shortest time, and round trips, between the last change and a trial with fewer streams: longer where losses make the
    /// rate uneven.
    pub steady: [(Duration, u32); 2],
    /// Time that must be left for an experiment, and for one with fewer streams. An experiment takes 1 to 3 s.
    pub time_left: [Duration; 2],
    /// Time after which a short but lasting queue is drained, too: the smallest round trip may be wrong.
    pub lasting_queue: Duration,
    /// Time for which others must share the path before the control is changed for them: many leave sooner.
    pub yield_after: Duration,
    /// Time after which others that were not seen again are taken to be gone.
    pub others_gone: Duration,
    /// Time after which a pacing rate counts as right.
    pub pace_proved: Duration,
}

impl Thresholds {
    /// The values in use.
    pub const DEFAULT: Self = Self {
        harmless_queue: Duration::from_millis(5),
        loss_events: 3,
        least_loss: 3e-5,
        most_loss: 0.12,
        recovery_round_trips: 6,
        loss_window: Duration::from_secs(10),
        loss_window_round_trips: 100,
        growth_round_trips: 4,
        slow_growth_round_trips: 8,
        growth: 4,
        prediction_margin: 1.1,
        worthwhile_gain: 1.1,
        unfinished_gain: 1.4,
        harmless_gain: 1.05,
        kept_rate: (0.98, 0.95, 1.5),
        clear_t: 3.0,
        candidate_gain: 1.3,
        candidate_rounds: (2, 20),
        harmful_loss: (2.0, 0.01),
        steady: [
            (Duration::from_millis(400), 8),
            (Duration::from_secs(3), 20),
        ],
        time_left: [Duration::from_millis(200), Duration::from_secs(5)],
        lasting_queue: Duration::from_secs(5),
        yield_after: Duration::from_secs(5),
        others_gone: Duration::from_secs(30),
        pace_proved: Duration::from_secs(10),
    };
}

/// The thresholds that the rules use.
pub(super) const LIMITS: Thresholds = Thresholds::DEFAULT;
