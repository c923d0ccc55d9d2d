//! Access links: the way between a host and the bottleneck.

use std::time::Duration;

use units::Rate;

/// An access link, the same in both directions; its queue has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// `None`: packets need no time to be sent.
    pub rate: Option<Rate>,
    /// One-way propagation delay.
    pub delay: Duration,
}

/// One direction of an access link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lane {
    free_at: Duration,
}

impl Lane {
    /// When a packet of `bytes` that enters at `now` arrives; calls are in time order.
    pub(super) fn carry(&mut self, access: &Access, now: Duration, bytes: u32) -> Duration {
        let Some(rate) = access.rate else {
            return now + access.delay;
        };
        self.free_at = self.free_at.max(now) + sending_time(rate, bytes);
        self.free_at + access.delay
    }
}

/// The time from one packet of `bytes` to the next at `rate`, never nothing: a source must let time
/// pass.
pub(super) fn interval(rate: Rate, bytes: u32) -> Duration {
    sending_time(rate, bytes).max(Duration::from_nanos(1))
}

/// How long `bytes` occupy a line of `rate`; of a line that stands still, for 584 years at most.
fn sending_time(rate: Rate, bytes: u32) -> Duration {
    let bit_nanoseconds = u64::from(bytes) * 8 * 1_000_000_000;
    Duration::from_nanos(bit_nanoseconds / rate.as_bits_per_second().max(1))
}
