//! Exact serialisation: one packet after the other, at a rate that may change on the way.

use super::Conditions;
use super::schedule::{ConditionInterval, ConditionSchedule};

/// The narrowest hop. It knows to the fraction of a nanosecond when it will have sent all it was
/// given, so billions of packets add up without drift.
///
/// The moment is `at` nanoseconds plus `sent` of what the current rate carries in one nanosecond.
/// Amounts are in units of 10⁻⁹ bit: a rate of *r* bit/s carries exactly *r* of them in a
/// nanosecond, so everything is an integer and the remainder is kept.
#[derive(Debug)]
pub(super) struct Serializer {
    course: ConditionSchedule,
    at: u64,
    sent: u64,
}

/// Units of 10⁻⁹ bit in a byte.
const BYTE: u128 = 8_000_000_000;

impl Serializer {
    pub(super) fn new(conditions: &Conditions) -> Self {
        Self {
            course: ConditionSchedule::new(conditions),
            at: 0,
            sent: 0,
        }
    }

    /// Sends a packet of `bytes` that comes at `now` after all before it: the first whole
    /// nanosecond at which its last bit has left, and the conditions under which it left.
    ///
    /// `u64::MAX`: never.
    pub(super) fn depart(&mut self, now: u64, bytes: u32) -> (u64, ConditionInterval) {
        if now > self.at {
            self.at = now;
            self.sent = 0;
        }
        self.course.seek(self.at);
        self.serialise(u128::from(bytes) * BYTE);
        let departs = self.at.saturating_add(u64::from(self.sent > 0));
        (departs, *self.course.current())
    }

    /// Moves the clock to where `need` more has been sent.
    fn serialise(&mut self, mut need: u128) {
        while let Some(rate) = self.course.current().rate {
            let end = self.course.end();
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
            self.course.seek(end);
            if self.course.begun() == end {
                let Some(rest) = self.course.skip_rounds(need) else {
                    self.at = u64::MAX;
                    return;
                };
                need = rest;
                self.at = self.course.begun();
            }
        }
    }

    /// Moves the clock by `total` / `rate` nanoseconds.
    fn advance(&mut self, total: u128, rate: u64) {
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
