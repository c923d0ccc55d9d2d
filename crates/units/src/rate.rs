//! Rates: bits per second for people, bytes per second where bytes are counted.

use std::fmt;
use std::time::Duration;

/// A rate in bits per second. 0 is valid: a link in a trace may stop.
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

    /// Bandwidth-delay product of this rate and `rtt`, in whole bytes.
    pub fn bytes_in(self, rtt: Duration) -> u64 {
        let bits = u128::from(self.0).saturating_mul(rtt.as_nanos()) / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

/// Bytes that move in `time` at this rate; saturates.
pub fn bytes_in(bytes_per_second: u64, time: Duration) -> u64 {
    // 128 bits hold the product for times up to 500 000 years.
    let bytes = u128::from(bytes_per_second) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Rate of `bytes` in `time`, bytes per second; 0 for times below a microsecond.
pub fn bytes_per_second(bytes: u64, time: Duration) -> u64 {
    let rate = (u128::from(bytes) * 1_000_000).checked_div(time.as_micros());
    rate.map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// A whole number with the largest possible decimal prefix, such as `1500kbit`.
/// [`rate_in_table`](crate::rate_in_table) parses it back to the same value.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = [
            (1_000_000_000, "gbit"),
            (1_000_000, "mbit"),
            (1_000, "kbit"),
        ];
        let (factor, unit) = prefixes
            .into_iter()
            .find(|(factor, _)| self.0 != 0 && self.0.is_multiple_of(*factor))
            .unwrap_or((1, "bit"));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bandwidth_delay_product_is_in_whole_bytes() {
        let gigabit = Rate::bits_per_second(1_000_000_000);
        assert_eq!(gigabit.bytes_in(Duration::from_millis(100)), 12_500_000);
        assert_eq!(gigabit.bytes_in(Duration::ZERO), 0);
        assert_eq!(
            Rate::bits_per_second(u64::MAX).bytes_in(Duration::MAX),
            u64::MAX
        );
    }

    #[test]
    fn rates_are_displayed_exactly() {
        let shown = |bits| Rate::bits_per_second(bits).to_string();
        assert_eq!(shown(0), "0bit");
        assert_eq!(shown(1_000_000_000), "1gbit");
        assert_eq!(shown(28_500_000), "28500kbit");
        assert_eq!(shown(999), "999bit");
    }

    #[test]
    fn a_zero_time_gives_a_zero_rate() {
        assert_eq!(bytes_per_second(5, Duration::ZERO), 0);
        assert_eq!(
            bytes_per_second(u64::MAX, Duration::from_micros(1)),
            u64::MAX
        );
    }

    proptest! {
        #[test]
        fn a_rate_times_its_time_gives_the_bytes_back(bytes in 0_u64..1 << 50, ms in 1_u64..1 << 20) {
            let time = Duration::from_millis(ms);
            let back = bytes_in(bytes_per_second(bytes, time), time);
            // Rates are rounded down to whole bytes per second.
            prop_assert!(back <= bytes && bytes - back <= ms / 1000 + 2, "{bytes} {back}");
        }
    }
}
