//! Exact serialization: packets leave one after the other at a rate that may change over time.

use super::Conditions;
use super::schedule::{ConditionInterval, ConditionSchedule};

/// The bottleneck. It knows to a fraction of a nanosecond when it will have sent all packets, so no
/// drift accumulates over billions of packets.
///
/// That time is `at` nanoseconds plus the time for `sent` at the current rate. Amounts are in units of
/// 10⁻⁹ bit: a rate of *r* bit/s sends exactly *r* units per nanosecond, so all numbers are integers and
/// remainders are kept.
#[derive(Debug)]
pub(super) struct Serializer {
    schedule: ConditionSchedule,
    at: u64,
    sent: u64,
}

/// Units of 10⁻⁹ bit in a byte.
const BYTE: u128 = 8_000_000_000;

impl Serializer {
    pub(super) fn new(conditions: &Conditions) -> Self {
        Self {
            schedule: ConditionSchedule::new(conditions),
            at: 0,
            sent: 0,
        }
    }

    /// Sends a packet of `bytes` that arrives at `now`, after all packets before it. Returns the first
    /// whole nanosecond at which its last bit has left, and the conditions at that time.
    ///
    /// A time of `u64::MAX` means never.
    pub(super) fn depart(&mut self, now: u64, bytes: u32) -> (u64, ConditionInterval) {
        // The link was idle: the remainder of the last packet's nanosecond is lost.
        if now > self.at {
            self.at = now;
            self.sent = 0;
        }
        self.schedule.seek(self.at);
        self.serialize(u128::from(bytes) * BYTE);
        let departs = self.at.saturating_add(u64::from(self.sent > 0));
        (departs, *self.schedule.current())
    }

    /// Advances the clock until `need` more units have been sent.
    fn serialize(&mut self, mut need: u128) {
        while let Some(rate) = self.schedule.current().rate {
            let end = self.schedule.end();
            let left = u128::from(end.saturating_sub(self.at)) * u128::from(rate);
            let total = need + u128::from(self.sent);
            if total <= left && rate > 0 {
                self.advance(total, rate);
                return;
            }
            need = total - left;
            self.at = end;
            self.sent = 0;
            if end == u64::MAX {
                return;
            }
            self.schedule.seek(end);
            if self.schedule.pass_start() == end {
                let Some(rest) = self.schedule.skip_passes(need) else {
                    self.at = u64::MAX;
                    return;
                };
                need = rest;
                self.at = self.schedule.pass_start();
            }
        }
    }

    /// Advances the clock by `total` / `rate` nanoseconds.
    fn advance(&mut self, total: u128, rate: u64) {
        // Division of 64-bit integers is much faster than of 128-bit ones, and amounts of up to 2 GB
        // fit.
        let (whole, rest) = match u64::try_from(total) {
            Ok(total) => (total / rate, total % rate),
            Err(_) => {
                let wide = u128::from(rate);
                let whole = u64::try_from(total / wide).unwrap_or(u64::MAX);
                (whole, u64::try_from(total % wide).unwrap_or(0))
            }
        };
        self.at = self.at.saturating_add(whole);
        self.sent = rest;
    }
}
