//! The conditions of a link over time, as a table that repeats.

use std::time::Duration;

use units::Rate;

use super::Conditions;

/// Values that hold until the next ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConditionInterval {
    /// Nanoseconds from the start of the table until they end.
    end: u64,
    /// Bits per second; `None`: no bottleneck.
    pub(super) rate: Option<u64>,
    /// One-way delay, nanoseconds.
    pub(super) delay: u64,
    /// Independent loss that replaces the link's own.
    pub(super) loss: Option<f64>,
}

/// Where a link is in its table. It only moves forward.
#[derive(Debug)]
pub(super) struct ConditionSchedule {
    stretches: Box<[ConditionInterval]>,
    /// Capacity of the bottleneck in one round of the table, in units of 10⁻⁹ bit; `None`: no
    /// limit.
    capacity: Option<u128>,
    /// The current one.
    index: usize,
    /// When this round of the table began, nanoseconds.
    begun: u64,
}

impl ConditionSchedule {
    pub(super) fn new(conditions: &Conditions) -> Self {
        let stretches: Box<[ConditionInterval]> = match &conditions.trace {
            None => Box::new([ConditionInterval {
                end: u64::MAX,
                rate: conditions.rate.map(Rate::as_bits_per_second),
                delay: nanoseconds(conditions.delay),
                loss: None,
            }]),
            Some(trace) => trace
                .intervals()
                .map(|(point, end)| ConditionInterval {
                    end: nanoseconds(end),
                    rate: point.rate.or(conditions.rate).map(Rate::as_bits_per_second),
                    delay: nanoseconds(point.rtt.map_or(conditions.delay, |rtt| rtt / 2)),
                    loss: point.loss,
                })
                .collect(),
        };
        let mut begin = 0;
        let mut capacity = Some(0);
        for stretch in &stretches {
            let length = u128::from(stretch.end - begin);
            begin = stretch.end;
            capacity = capacity
                .zip(stretch.rate)
                .map(|(sum, rate)| length * u128::from(rate) + sum);
        }
        Self {
            stretches,
            capacity,
            index: 0,
            begun: 0,
        }
    }

    /// Moves on to `at`, nanoseconds since the start of the run; an earlier time than before
    /// changes nothing.
    pub(super) fn seek(&mut self, at: u64) {
        let mut into = at.saturating_sub(self.begun);
        let period = self.period();
        if into >= period {
            self.begun += into / period * period;
            into %= period;
            self.index = 0;
        }
        while into >= self.stretches[self.index].end {
            self.index += 1;
        }
    }

    /// The stretch that holds now.
    pub(super) fn current(&self) -> &ConditionInterval {
        &self.stretches[self.index]
    }

    /// When that ends, nanoseconds since the start of the run.
    pub(super) fn end(&self) -> u64 {
        self.begun.saturating_add(self.current().end)
    }

    /// Passes over as many whole rounds as a packet of `need` · 10⁻⁹ bit fills, and says what is
    /// left of it for the round that then begins. Only at the start of a round; `None`: it never
    /// fits.
    pub(super) fn skip_rounds(&mut self, need: u128) -> Option<u128> {
        let Some(capacity) = self.capacity else {
            return Some(need);
        };
        // Not the round in which it ends: the end may come before the round's.
        let rounds = need.saturating_sub(1).checked_div(capacity)?;
        let passed = rounds.saturating_mul(u128::from(self.period()));
        self.begun = self
            .begun
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        Some(need - rounds * capacity)
    }

    /// When this round of the table began, nanoseconds since the start of the run.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    fn period(&self) -> u64 {
        self.stretches.last().map_or(u64::MAX, |last| last.end)
    }
}

/// A time as whole nanoseconds; beyond 584 years, that long.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
