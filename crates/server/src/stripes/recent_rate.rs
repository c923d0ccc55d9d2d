//! How many bytes a second something has moved lately. Time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Nothing is known of a rate before this time.
const LEAST_SPAN: Duration = Duration::from_millis(200);
/// Samples that follow each other faster replace each other.
const SPACING: Duration = Duration::from_millis(100);

/// The rate of a sum of bytes that grows, over the last second.
#[derive(Debug, Clone)]
pub(crate) struct RecentRate {
    /// Times and sums, the newest last. Never empty.
    samples: VecDeque<(Instant, u64)>,
}

impl RecentRate {
    /// Nothing has been moved at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            samples: VecDeque::from([(now, 0)]),
        }
    }

    /// Notes the sum.
    pub(crate) fn note(&mut self, bytes: u64, now: Instant) {
        let before = self.samples.iter().rev().nth(1);
        if before.is_some_and(|(at, _)| now.saturating_duration_since(*at) < SPACING) {
            self.samples.pop_back();
        }
        self.samples.push_back((now, bytes));
        let is_old = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) >= WINDOW;
        while self.samples.get(1).is_some_and(is_old) {
            self.samples.pop_front();
        }
    }

    /// Nothing was there to be moved until `now`: the time does not count.
    pub(crate) fn rest_until(&mut self, now: Instant) {
        let idle = now.saturating_duration_since(self.last().0);
        for (at, _) in &mut self.samples {
            *at += idle;
        }
    }

    /// The last sum, and when it was noted.
    pub(crate) fn last(&self) -> (Instant, u64) {
        // There is one from the beginning.
        self.samples
            .back()
            .copied()
            .unwrap_or_else(|| (Instant::now(), 0))
    }

    /// Bytes per second; `None`: too little time has passed.
    pub(crate) fn per_second(&self) -> Option<u64> {
        let ((first, before), (last, bytes)) = (*self.samples.front()?, *self.samples.back()?);
        let span = last.saturating_duration_since(first);
        if span < LEAST_SPAN {
            return None;
        }
        let moved = u128::from(bytes.saturating_sub(before));
        u64::try_from(moved * 1_000_000 / span.as_micros().max(1)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_second() {
        let begin = Instant::now();
        let mut rate = RecentRate::new(begin);
        let at = |ms| begin + Duration::from_millis(ms);
        rate.note(100_000, at(100));
        assert_eq!(rate.per_second(), None);
        rate.note(250_000, at(250));
        assert_eq!(rate.per_second(), Some(1_000_000));
        for n in 2..=40 {
            rate.note(250_000 * n, at(250 * n));
        }
        assert_eq!(rate.per_second(), Some(1_000_000));
        // It stands still.
        for n in 41..=44 {
            rate.note(10_000_000, at(250 * n));
        }
        assert_eq!(
            (rate.per_second(), rate.last()),
            (Some(0), (at(11_000), 10_000_000))
        );
        assert!(rate.samples.len() <= 10, "{rate:?}");
    }

    #[test]
    fn a_rest_does_not_count() {
        let begin = Instant::now();
        let mut rate = RecentRate::new(begin);
        let at = |ms| begin + Duration::from_millis(ms);
        rate.note(1_000_000, at(1000));
        rate.rest_until(at(60_000));
        assert_eq!(rate.per_second(), Some(1_000_000));
        rate.note(1_500_000, at(60_500));
        assert_eq!(rate.per_second(), Some(1_000_000));
    }

    #[test]
    fn many_samples_at_a_time_take_no_memory() {
        let begin = Instant::now();
        let mut rate = RecentRate::new(begin);
        for n in 0..100_000u64 {
            rate.note(n * 10, begin + Duration::from_micros(n * 10));
        }
        assert!(rate.samples.len() < 30);
        assert_eq!(rate.per_second(), Some(1_000_000));
    }
}
