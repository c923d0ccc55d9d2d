//! Time: a monotonic clock for intervals and ages, the wall clock for records.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A point on the monotonic clock, milliseconds since the start of the service. Earlier ones are negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    /// So many milliseconds after the start.
    pub const fn from_millis(milliseconds: i64) -> Self {
        Self(milliseconds)
    }

    /// The moment so much later; saturates.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(milliseconds(time)))
    }

    /// The moment so much earlier; saturates.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(milliseconds(time)))
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The clocks, so that tests can set them.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic clock.
    fn moment(&self) -> Moment;

    /// Wall clock; it may jump.
    fn wall(&self) -> Timestamp;
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn moment(&self) -> Moment {
        Moment::default().after(self.started.elapsed())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The wall clock at a point of the monotonic one. Records of an earlier run are placed on the monotonic
/// clock with it, and deletions by age do not believe a wall clock that jumps.
#[derive(Debug, Clone, Copy)]
pub struct WallAnchor {
    wall: Timestamp,
    moment: Moment,
}

/// Age of a record that is dated in the future: a clock was wrong, and its true age is unknown.
const UNKNOWN_AGE: Duration = Duration::from_secs(24 * 3600);
/// Differences of clocks that count as none.
const TOLERANCE: Duration = Duration::from_secs(60);

impl WallAnchor {
    /// The two clocks now.
    pub fn now(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.wall(),
            moment: clock.moment(),
        }
    }

    /// The moment of a recorded time. A time in the future becomes a day ago.
    pub fn moment_of(&self, at: Timestamp) -> Moment {
        let age = self.wall.as_millisecond() - at.as_millisecond();
        if age < -milliseconds(TOLERANCE) {
            return self.moment.before(UNKNOWN_AGE);
        }
        Moment(self.moment.0.saturating_sub(age.max(0)))
    }

    /// Whether a recorded time is later than the wall clock.
    pub fn is_future(&self, at: Timestamp) -> bool {
        at.as_millisecond() - self.wall.as_millisecond() > milliseconds(TOLERANCE)
    }

    /// The wall time of a moment.
    pub fn wall_of(&self, moment: Moment) -> Timestamp {
        let passed = moment.0.saturating_sub(self.moment.0);
        let wall = self.wall.as_millisecond().saturating_add(passed);
        Timestamp::from_millisecond(wall).unwrap_or(self.wall)
    }

    /// The earlier of the wall clock and this anchor's time, so that a jump forward expires nothing.
    pub fn cautious_wall(&self, clock: &dyn Clock) -> Timestamp {
        clock.wall().min(self.wall_of(clock.moment()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedClock(Moment, i64);

    impl Clock for FixedClock {
        fn moment(&self) -> Moment {
            self.0
        }

        fn wall(&self) -> Timestamp {
            Timestamp::from_second(self.1).unwrap()
        }
    }

    #[test]
    fn records_of_an_earlier_run_keep_their_age() {
        let anchor = WallAnchor::now(&FixedClock(Moment::from_millis(500), 10_000));
        let moment = anchor.moment_of(Timestamp::from_second(9_990).unwrap());
        assert_eq!(
            Moment::from_millis(500).since(moment),
            Duration::from_secs(10)
        );
        assert_eq!(
            anchor.wall_of(moment),
            Timestamp::from_second(9_990).unwrap()
        );
    }

    #[test]
    fn a_record_from_the_future_is_a_day_old() {
        let anchor = WallAnchor::now(&FixedClock(Moment::from_millis(0), 10_000));
        let future = Timestamp::from_second(99_000).unwrap();
        assert!(anchor.is_future(future));
        assert_eq!(
            Moment::default().since(anchor.moment_of(future)),
            UNKNOWN_AGE
        );
        // Clocks of two hosts differ a little.
        let near = Timestamp::from_second(10_030).unwrap();
        assert_eq!(anchor.moment_of(near), Moment::default());
    }

    #[test]
    fn a_wall_clock_that_jumps_expires_nothing() {
        let anchor = WallAnchor::now(&FixedClock(Moment::from_millis(0), 10_000));
        let later = Moment::from_millis(5_000);
        for (wall, expected) in [(900_000_000, 10_005), (10, 10), (10_005, 10_005)] {
            let cautious = anchor.cautious_wall(&FixedClock(later, wall));
            assert_eq!(cautious, Timestamp::from_second(expected).unwrap());
        }
    }
}
