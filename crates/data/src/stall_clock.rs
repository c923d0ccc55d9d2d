//! Detects a stalled transfer: nothing moved on any stream, and no stream was busy at this end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Shared by the streams of a transfer.
#[derive(Debug)]
pub(crate) struct StallClock {
    begin: Instant,
    limit: Duration,
    /// Milliseconds from `begin` to the last movement.
    last_progress_ms: AtomicU64,
    /// Number of streams that are busy at this end: store, rate limit. While there are any, the
    /// wire is not the cause.
    paused: AtomicUsize,
}

impl StallClock {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            begin: Instant::now(),
            limit,
            last_progress_ms: AtomicU64::new(0),
            paused: AtomicUsize::new(0),
        }
    }

    /// Records that something moved now.
    pub(crate) fn note_progress(&self) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_progress_ms.store(now, Ordering::Relaxed);
    }

    /// Marks a stream as busy at this end until the guard is dropped.
    pub(crate) fn pause(&self) -> StallHold<'_> {
        self.paused.fetch_add(1, Ordering::Relaxed);
        StallHold(self)
    }

    /// Time until the transfer counts as stalled; zero when it does.
    pub(crate) fn time_left(&self) -> Duration {
        if self.paused.load(Ordering::Relaxed) > 0 {
            return self.limit;
        }
        let last_progress = Duration::from_millis(self.last_progress_ms.load(Ordering::Relaxed));
        (last_progress + self.limit).saturating_sub(self.begin.elapsed())
    }

    /// The limit in whole seconds, rounded up, for messages.
    pub(crate) fn limit_seconds(&self) -> u64 {
        self.limit.as_secs() + u64::from(self.limit.subsec_nanos() > 0)
    }
}

/// See [`StallClock::pause`].
pub(crate) struct StallHold<'c>(&'c StallClock);

impl Drop for StallHold<'_> {
    fn drop(&mut self) {
        // First the progress: the time of the pause must not count as stalled.
        self.0.note_progress();
        self.0.paused.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_out_without_progress_and_stops_during_a_pause() {
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        let limit = hour - Duration::from_millis(1);
        let mut clock = StallClock::new(limit);
        assert!(clock.time_left() > limit - minute);
        // An hour passes.
        clock.begin -= hour;
        assert_eq!(clock.time_left(), Duration::ZERO);
        let hold = clock.pause();
        assert_eq!(clock.time_left(), limit);
        drop(hold);
        assert!(clock.time_left() > limit - minute);
        clock.begin -= hour;
        assert_eq!(clock.time_left(), Duration::ZERO);
        clock.note_progress();
        assert!(clock.time_left() > limit - minute);
        assert_eq!(clock.limit_seconds(), 3600);
    }
}
