//! The conditions of a link over time, as a repeating table.

use std::time::Duration;

use units::Rate;

use super::Conditions;

/// Conditions that hold for an interval of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConditionInterval {
    /// End of the interval, nanoseconds from the start of the table.
    end: u64,
    /// Rate of the bottleneck, bit/s; `None`: no bottleneck.
    pub(super) rate: Option<u64>,
    /// One-way delay, nanoseconds.
    pub(super) delay: u64,
    /// Probability of independent loss that replaces the link's own loss.
    pub(super) loss: Option<f64>,
}

/// The table of a link and the current position in it. The position only moves forward.
#[derive(Debug)]
pub(super) struct ConditionSchedule {
    intervals: Box<[ConditionInterval]>,
    /// Capacity of the bottleneck during one pass through the table, in units of 10⁻⁹ bit; `None`:
    /// unlimited.
    capacity: Option<u128>,
    /// Index of the current interval.
    index: usize,
    /// Start of the current pass through the table, nanoseconds.
    pass_start: u64,
}

impl ConditionSchedule {
    pub(super) fn new(conditions: &Conditions) -> Self {
        let intervals: Box<[ConditionInterval]> = match &conditions.trace {
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
                    // Each direction of a path has its own link, so it gets half of the RTT.
                    delay: nanoseconds(point.rtt.map_or(conditions.delay, |rtt| rtt / 2)),
                    loss: point.loss,
                })
                .collect(),
        };
        let mut begin = 0;
        let mut capacity = Some(0);
        for interval in &intervals {
            let length = u128::from(interval.end - begin);
            begin = interval.end;
            capacity = capacity
                .zip(interval.rate)
                .map(|(sum, rate)| length * u128::from(rate) + sum);
        }
        Self {
            intervals,
            capacity,
            index: 0,
            pass_start: 0,
        }
    }

    /// Advances to `at`, nanoseconds since the start of the run. An earlier time than before changes
    /// nothing.
    pub(super) fn seek(&mut self, at: u64) {
        let mut elapsed = at.saturating_sub(self.pass_start);
        let period = self.period();
        if elapsed >= period {
            self.pass_start += elapsed / period * period;
            elapsed %= period;
            self.index = 0;
        }
        // Linear search is enough: time moves forward, so each interval is passed once per period.
        while elapsed >= self.intervals[self.index].end {
            self.index += 1;
        }
    }

    /// The current conditions.
    pub(super) fn current(&self) -> &ConditionInterval {
        &self.intervals[self.index]
    }

    /// End of the current interval, nanoseconds since the start of the run.
    pub(super) fn end(&self) -> u64 {
        self.pass_start.saturating_add(self.current().end)
    }

    /// Skips as many whole passes as a packet of `need` · 10⁻⁹ bit fills, so that a huge packet takes
    /// constant time. Returns the rest of the packet for the pass that begins then; `None`: the packet
    /// never leaves, because the capacity is 0. Must be called at the start of a pass.
    pub(super) fn skip_passes(&mut self, need: u128) -> Option<u128> {
        let Some(capacity) = self.capacity else {
            return Some(need);
        };
        // The last pass is not skipped, because the packet may end before that pass does.
        let passes = need.saturating_sub(1).checked_div(capacity)?;
        let passed = passes.saturating_mul(u128::from(self.period()));
        self.pass_start = self
            .pass_start
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        Some(need - passes * capacity)
    }

    /// Start of the current pass, nanoseconds since the start of the run.
    pub(super) fn pass_start(&self) -> u64 {
        self.pass_start
    }

    fn period(&self) -> u64 {
        self.intervals.last().map_or(u64::MAX, |last| last.end)
    }
}

/// A time in whole nanoseconds, at most `u64::MAX` (584 years).
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
