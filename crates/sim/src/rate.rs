//! Bit rates.

use std::time::Duration;

/// Bits per second; may be 0 in a trace (the link stands still).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// From bits per second.
    pub const fn bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// Bits per second.
    pub const fn as_bits_per_second(self) -> u64 {
        self.0
    }

    /// Bandwidth-delay product in whole bytes: this rate for `rtt`.
    pub fn bytes_in(self, rtt: Duration) -> u64 {
        let bits = u128::from(self.0) * rtt.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}
