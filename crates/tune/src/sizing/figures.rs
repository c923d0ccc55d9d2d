//! Rates from bytes and time, and both in plain words.

use std::time::Duration;

/// Bytes that move at `rate`, bytes per second, in `time`.
pub(crate) fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX)
}

/// Bytes per second; of no time at all, 0.
pub(crate) fn rate_of(bytes: u64, time: Duration) -> u64 {
    let rate = (u128::from(bytes) * 1_000_000).checked_div(time.as_micros());
    rate.map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// `8.4 MB`: decimal units, as rates have them.
pub(crate) fn bytes(n: u64) -> String {
    in_units(n as f64, "B")
}

/// `224 Mbit/s`, of a rate in bits per second.
pub(crate) fn bits(rate: u64) -> String {
    in_units(rate as f64, "bit/s")
}

/// `100 ms`.
pub(crate) fn span(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

fn in_units(n: f64, unit: &str) -> String {
    let (value, prefix) = match n {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e3 => (n / 1e3, "k"),
        n => return format!("{n:.0} {unit}"),
    };
    if value < 99.95 {
        format!("{value:.1} {prefix}{unit}")
    } else {
        format!("{value:.0} {prefix}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_words() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4 << 20), "4.2 MB");
        assert_eq!(bits(223_696_000), "224 Mbit/s");
        assert_eq!(bits(1_000_000_000), "1.0 Gbit/s");
        assert_eq!(span(Duration::from_micros(1500)), "1.5 ms");
        assert_eq!(span(Duration::from_millis(200)), "200 ms");
        assert_eq!(span(Duration::from_secs(70)), "70 s");
    }

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(rate_of(5, Duration::ZERO), 0);
        assert_eq!(rate_of(u64::MAX, Duration::from_micros(1)), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_rate_over_its_time_is_the_bytes(bytes in 0_u64..1 << 50, ms in 1_u64..1 << 20) {
            let time = Duration::from_millis(ms);
            let back = bytes_in(rate_of(bytes, time), time);
            // Rounded down to whole bytes per second.
            prop_assert!(back <= bytes && bytes - back <= ms / 1000 + 2, "{bytes} {back}");
        }
    }
}
