//! Printers for people: three digits and a suitable prefix.

use std::fmt::Display;
use std::time::Duration;

/// A number of things, whose plural ends with `s`: `1 file`, `2 files`.
pub fn count(number: impl Display, one: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// A size with a decimal prefix: `999 B`, `1.23 MB`, `240 MB`.
pub fn bytes(bytes: u64) -> String {
    with_prefix(bytes, "B")
}

/// A rate: `94.2 Mbit/s`.
pub fn bits(bits_per_second: u64) -> String {
    with_prefix(bits_per_second, "bit/s")
}

/// As [`bits`], for a computed rate. NaN and negative rates are printed as 0.
pub fn rate(bits_per_second: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are not negative and far below 2^64, and the cast saturates"
    )]
    let whole = bits_per_second.max(0.0) as u64;
    bits(whole)
}

/// A time: `12 us`, `1.5 ms`, `133 ms`, `2.5 s`; from 100 s on `12 min 4 s`, from an hour on `3 h 20 min`.
/// Trailing zeros of a fraction are omitted.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        // The bounds are where rounding to three digits would print 1000 of the smaller unit.
        s if s < 0.999_5e-6 => format!("{} ns", time.as_nanos()),
        s if s < 0.999_5e-3 => three_digits(s * 1e6, "us"),
        s if s < 0.999_5 => three_digits(s * 1e3, "ms"),
        s if s < 99.95 => three_digits(s, "s"),
        _ => {
            // Integers keep times of any length exact; an f64 would not.
            let whole = time.saturating_add(Duration::from_millis(500)).as_secs();
            match whole {
                0..3600 => format!("{} min {} s", whole / 60, whole % 60),
                _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
            }
        }
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let written = format!("{value:.decimals$}");
    let shortest = match decimals {
        0 => &written,
        _ => written.trim_end_matches('0').trim_end_matches('.'),
    };
    format!("{shortest} {unit}")
}

fn with_prefix(value: u64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut scaled = value as f64;
    let mut prefix = 0;
    // 999.5 would be printed as 1000.
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    match (prefix, scaled) {
        (0, _) => format!("{value} {unit}"),
        (_, s) if s < 9.995 => format!("{s:.2} {}{unit}", PREFIXES[prefix]),
        (_, s) if s < 99.95 => format!("{s:.1} {}{unit}", PREFIXES[prefix]),
        (_, s) => format!("{s:.0} {}{unit}", PREFIXES[prefix]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(0_u64, "file"), "0 files");
        assert_eq!(count("2 or 3", "run"), "2 or 3 runs");
    }

    #[test]
    fn sizes_and_rates_have_three_digits() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_567), "1.23 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        // The printed size is within the limit of the parser.
        assert_eq!(
            crate::size(&bytes(999_900_000_000_000)),
            Ok(1_000_000_000_000_000)
        );
        assert_eq!(bits(223_696_000), "224 Mbit/s");
        assert_eq!(rate(942_000_000.0), "942 Mbit/s");
        assert_eq!(rate(94_200_000.0), "94.2 Mbit/s");
        assert_eq!(rate(f64::NAN), "0 bit/s");
    }

    #[test]
    fn the_longest_possible_time_is_printed() {
        assert!(time(Duration::MAX).ends_with(" h 0 min"));
    }

    #[test]
    fn times_have_three_digits_at_most() {
        for (nanoseconds, shown) in [
            (0, "0 s"),
            (80, "80 ns"),
            (12_000, "12 us"),
            (80_400, "80.4 us"),
            (999_900, "1 ms"),
            (1_420_000, "1.42 ms"),
            (1_500_000, "1.5 ms"),
            (50_000_000, "50 ms"),
            (133_400_000, "133 ms"),
            (999_900_000, "1 s"),
            (70_000_000_000, "70 s"),
            (99_990_000_000, "1 min 40 s"),
            (724_900_000_000, "12 min 5 s"),
            (12_000_000_000_000, "3 h 20 min"),
        ] {
            assert_eq!(time(Duration::from_nanos(nanoseconds)), shown);
        }
    }

    proptest! {
        #[test]
        fn a_printed_time_below_100_s_parses_back_to_three_digits(ns in 1_u64..99_000_000_000) {
            let exact = Duration::from_nanos(ns);
            let read = crate::time(&time(exact)).unwrap();
            prop_assert!(read.abs_diff(exact) <= exact.mul_f64(0.005_01) + Duration::from_nanos(1));
        }

        #[test]
        fn a_printed_size_parses_back_to_three_digits(size in 0_u64..1_000_000_000_000_000) {
            let read = crate::size(&bytes(size)).unwrap();
            prop_assert!(read.abs_diff(size) <= size / 199);
        }
    }
}
