//! How often anomalies are sent, and how many at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::anomaly::{AnomalyBatch, AnomalyEvent};

/// Collects anomalies: the first one is due at once, those after it together when the interval since the last digest
/// is over.
#[derive(Debug)]
pub struct Digest {
    interval: Duration,
    most: usize,
    waiting: VecDeque<AnomalyEvent>,
    left_out: u64,
    sent: Option<Instant>,
}

impl Digest {
    /// At most one digest per interval, with at most so many anomalies. Later ones are counted only.
    pub fn new(interval: Duration, most: usize) -> Self {
        Self {
            interval,
            most: most.max(1),
            waiting: VecDeque::new(),
            left_out: 0,
            sent: None,
        }
    }

    /// Adds an anomaly.
    pub fn push(&mut self, event: AnomalyEvent) {
        if self.waiting.len() < self.most {
            self.waiting.push_back(event);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// The time until the next digest; `None`: nothing waits.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let since = self.sent.map(|sent| now.saturating_duration_since(sent));
        Some(since.map_or(Duration::ZERO, |since| self.interval.saturating_sub(since)))
    }

    /// Takes the digest if it is due.
    pub fn take_due(&mut self, now: Instant) -> Option<AnomalyBatch> {
        if self.due_in(now)? > Duration::ZERO {
            return None;
        }
        self.sent = Some(now);
        Some(self.take())
    }

    /// Takes all that waits, due or not, as at the end of the service.
    pub fn take(&mut self) -> AnomalyBatch {
        AnomalyBatch {
            events: self.waiting.drain(..).collect(),
            left_out: std::mem::take(&mut self.left_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Quantity;
    use tune::path::SeriesEvent;

    fn event(to: f64) -> AnomalyEvent {
        AnomalyEvent {
            at: jiff::Timestamp::UNIX_EPOCH,
            client: "192.0.2.1".parse().unwrap(),
            quantity: Quantity::Bandwidth,
            anomaly: SeriesEvent::Shift { from: 1e9, to },
        }
    }

    #[test]
    fn the_first_goes_at_once_and_the_others_together_later() {
        let mut digest = Digest::new(Duration::from_secs(60), 2);
        let now = Instant::now();
        assert_eq!(digest.due_in(now), None);
        digest.push(event(1e6));
        assert_eq!(digest.take_due(now).unwrap().events, [event(1e6)]);
        for to in [2e6, 3e6, 4e6] {
            digest.push(event(to));
        }
        assert_eq!(digest.due_in(now), Some(Duration::from_secs(60)));
        assert_eq!(digest.take_due(now + Duration::from_secs(59)), None);
        let batch = digest.take_due(now + Duration::from_secs(60)).unwrap();
        assert_eq!(batch.events, [event(2e6), event(3e6)]);
        assert_eq!(batch.left_out, 1);
        assert_eq!(batch.subject("dtn1"), "dtn1: 3 changes of paths");
        assert!(
            batch
                .to_text()
                .contains("192.0.2.1: bandwidth went from 1000.0 Mbit/s to 2.0 Mbit/s")
        );
    }
}
