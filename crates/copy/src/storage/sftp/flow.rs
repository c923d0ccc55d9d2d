//! How many bytes of a file are asked for ahead of their arrival, and over how many connections.
//!
//! A request that waits for its reply moves nothing meanwhile, so the bytes in flight must reach the product of bandwidth and
//! round trip. Neither is known. The bytes in flight of a connection are doubled while the rate grows by it; when it grows no more,
//! one more connection is tried, while each gains: OpenSSH has at most 2 MiB in flight in a channel, and one sender of TCP. On a
//! long path that limit is certain, and each trial lasts: a large file begins with all connections.

use std::time::Duration;

/// Bytes in flight of a connection at first.
const FIRST_WINDOW: u64 = 2 << 20;
/// Most bytes in flight, of all connections: they may all have to be kept in memory.
const MAX_IN_FLIGHT: u64 = 64 << 20;
/// Growth of the rate that shows a gain.
const GAIN: f64 = 1.1;
/// Shortest time over which a rate is measured.
const MIN_PERIOD: Duration = Duration::from_millis(200);
/// Periods without gain after which the bytes in flight suffice: a disk or another transfer may have disturbed one.
const PATIENT_PERIODS: u32 = 2;
/// Round trip and size from which a file begins with all its connections.
const LONG_PATH: Duration = Duration::from_millis(15);
const LARGE_FILE: u64 = 64 << 20;
/// Longest useful life of a transfer that is too short for one more login.
const SHORT_REST: f64 = 2.0;

/// The quantity that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// Bytes in flight; the number of periods without gain.
    Window(u32),
    /// One more connection is to be opened.
    Asked,
    /// It is open, and begins.
    Begins,
    /// It is open, and is measured.
    Measured,
    /// Nothing gains.
    Settled,
}

/// Decides by the bytes that have moved.
#[derive(Debug, Clone)]
pub(super) struct FlowTuner {
    /// Bytes in flight of each connection.
    window: u64,
    connections: u64,
    max_connections: u64,
    trial: Trial,
    /// Highest rate so far, bytes a second.
    best: f64,
    period: Duration,
    period_began: Duration,
    moved_before: u64,
}

/// Connections with which a transfer begins that may have `most`; `left`: its bytes, if they are known.
pub(super) fn first_connections(most: u64, rtt: Duration, left: Option<u64>) -> u64 {
    match rtt >= LONG_PATH && left.is_none_or(|left| left >= LARGE_FILE) {
        true => most,
        false => 1,
    }
}

impl FlowTuner {
    /// For a transfer that begins with one connection and may have as many.
    pub(super) fn new(max_connections: u64, rtt: Duration) -> Self {
        Self {
            window: FIRST_WINDOW,
            connections: 1,
            max_connections: max_connections.max(1),
            trial: Trial::Window(0),
            best: 0.0,
            period: MIN_PERIOD.max(rtt * 4),
            period_began: Duration::ZERO,
            moved_before: 0,
        }
    }

    /// Most bytes in flight of each connection.
    pub(super) fn window(&self) -> u64 {
        self.window.min(MAX_IN_FLIGHT / self.connections)
    }

    /// Whether one more connection is to be opened now.
    pub(super) fn wants_connection(&self) -> bool {
        self.trial == Trial::Asked
    }

    /// One more connection is open. The bytes in flight may still grow, of one that was not asked for.
    pub(super) fn connection_opened(&mut self) {
        self.connections += 1;
        if self.trial == Trial::Asked {
            self.trial = Trial::Begins;
        }
    }

    /// One connection is lost, and no other one takes its place.
    pub(super) fn connection_lost(&mut self) {
        self.connections = self.connections.saturating_sub(1).max(1);
        self.connection_refused();
    }

    /// No further connection can be opened.
    pub(super) fn connection_refused(&mut self) {
        self.max_connections = self.connections;
        if self.trial == Trial::Asked {
            self.trial = Trial::Settled;
        }
    }

    /// Notes the bytes that have moved until `now`; `left` are to come, if that is known.
    pub(super) fn note(&mut self, now: Duration, moved: u64, left: Option<u64>) {
        let elapsed = now.saturating_sub(self.period_began);
        if elapsed < self.period {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let (rate, left) = (
            moved.saturating_sub(self.moved_before) as f64 / elapsed.as_secs_f64(),
            left.map_or(f64::INFINITY, |left| left as f64),
        );
        self.period_began = now;
        self.moved_before = moved;
        let has_gained = rate > self.best * GAIN;
        let pays = left > rate * SHORT_REST;
        self.trial = match self.trial {
            Trial::Window(_) if has_gained => {
                self.window = (self.window * 2).min(MAX_IN_FLIGHT);
                Trial::Window(0)
            }
            Trial::Window(periods) if periods + 1 < PATIENT_PERIODS => Trial::Window(periods + 1),
            Trial::Window(_) => self.next_connection(pays),
            // The rate of what there is may still change.
            Trial::Asked => Trial::Asked,
            // It takes its time to reach its rate.
            Trial::Begins => Trial::Measured,
            Trial::Measured if has_gained => self.next_connection(pays),
            Trial::Measured | Trial::Settled => Trial::Settled,
        };
        if !matches!(self.trial, Trial::Measured) {
            self.best = self.best.max(rate);
        }
    }

    fn next_connection(&self, pays: bool) -> Trial {
        match self.connections < self.max_connections && pays {
            true => Trial::Asked,
            false => Trial::Settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The tuner after a minute in which the path moves `rate(window, connections)` MiB a second.
    fn tuned(max: u64, rate: impl Fn(u64, u64) -> u64) -> FlowTuner {
        let mut tuner = FlowTuner::new(max, Duration::from_millis(50));
        let mut moved = 0;
        for tick in 1..600 {
            moved += rate(tuner.window() / MIB, tuner.connections) * MIB / 10;
            tuner.note(Duration::from_millis(tick * 100), moved, None);
            if tuner.wants_connection() {
                tuner.connection_opened();
            }
        }
        tuner
    }

    #[test]
    fn bytes_in_flight_grow_to_the_product_of_bandwidth_and_round_trip() {
        // 100 MiB/s and 0.2 s.
        let tuner = tuned(1, |window, _| (window * 5).min(100));
        assert!((20..=64).contains(&(tuner.window() / MIB)), "{tuner:?}");
        let near = tuned(1, |_, _| 100);
        assert_eq!(near.window(), 2 * FIRST_WINDOW);
    }

    #[test]
    fn connections_are_added_while_each_gains() {
        // A channel moves 20 MiB/s, and the path 90.
        let tuner = tuned(8, |_, connections| (connections * 20).min(90));
        assert!((5..=6).contains(&tuner.connections), "{tuner:?}");
        assert!(tuner.window() * tuner.connections <= MAX_IN_FLIGHT);
        assert_eq!(tuned(3, |_, connections| connections * 20).connections, 3);
        assert!(tuned(8, |_, _| 90).connections <= 2);
    }

    #[test]
    fn a_large_file_begins_with_all_connections_on_a_long_path() {
        let [near, far] = [14, 100].map(Duration::from_millis);
        assert_eq!(first_connections(8, far, Some(LARGE_FILE)), 8);
        assert_eq!(first_connections(8, far, None), 8);
        assert_eq!(first_connections(8, far, Some(LARGE_FILE - 1)), 1);
        assert_eq!(first_connections(8, near, Some(u64::MAX)), 1);
        // They join while the bytes in flight are tried. What is not to be had is not asked for again.
        let mut tuner = FlowTuner::new(8, far);
        tuner.connection_opened();
        assert_eq!(tuner.trial, Trial::Window(0));
        tuner.connection_refused();
        for tick in 1..20 {
            tuner.note(Duration::from_millis(tick * 500), tick * MIB, None);
            assert!(!tuner.wants_connection());
        }
    }

    #[test]
    fn a_short_rest_is_not_worth_a_login() {
        let mut tuner = FlowTuner::new(8, Duration::ZERO);
        for tick in 1..20 {
            tuner.note(Duration::from_millis(tick * 200), tick * MIB, Some(MIB));
        }
        assert!(!tuner.wants_connection());
    }
}
