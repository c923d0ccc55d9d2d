//! When a transfer counts as stalled: nothing moved on any stream, and no stream was held up at
//! this end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Shared by the streams of a transfer.
#[derive(Debug)]
pub(crate) struct StallClock {
    begin: Instant,
    limit: Duration,
    /// Milliseconds after `begin` at which something last moved.
    last: AtomicU64,
    /// Streams that are busy at this end: store, rate limit. While there are any, the wire is not
    /// to blame.
    held: AtomicUsize,
}

impl StallClock {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            begin: Instant::now(),
            limit,
            last: AtomicU64::new(0),
            held: AtomicUsize::new(0),
        }
    }

    /// Something moved just now.
    pub(crate) fn note_progress(&self) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// This stream is busy at this end until the guard is dropped.
    pub(crate) fn pause(&self) -> StallHold<'_> {
        self.held.fetch_add(1, Ordering::Relaxed);
        StallHold(self)
    }

    /// Time left before the transfer counts as stalled; zero when it does.
    pub(crate) fn time_left(&self) -> Duration {
        if self.held.load(Ordering::Relaxed) > 0 {
            return self.limit;
        }
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        (last + self.limit).saturating_sub(self.begin.elapsed())
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
        self.0.note_progress();
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_out_unless_touched_or_held() {
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
