//! Parsers of quantities.

use std::time::Duration;

use crate::Rate;

/// Highest rate that is accepted, bits per second.
const HIGHEST_RATE: f64 = 1e15;
/// Longest time that is accepted, seconds: a thousand years of 365 days.
const LONGEST_TIME: f64 = 1000.0 * 365.0 * 86_400.0;
/// Largest size that is accepted, bytes. An f64 holds every whole number below it exactly.
const GREATEST_SIZE: f64 = 1e15;

/// Reason why a text is not a quantity. The message says how to write one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text has no number, or an unknown unit.
    #[error("'{text}' is not a {quantity}; write it like {example}")]
    Malformed {
        /// The text as written.
        text: String,
        /// The expected quantity.
        quantity: &'static str,
        /// An example of it.
        example: &'static str,
    },
    /// The number is negative.
    #[error("'{text}' is negative")]
    Negative {
        /// The text as written.
        text: String,
    },
    /// The value is above the limit.
    #[error("'{text}' is too large; the maximum is {most}")]
    TooMuch {
        /// The text as written.
        text: String,
        /// The limit.
        most: &'static str,
    },
    /// The rate is in bytes per second.
    #[error("'{text}' is in bytes; rates are bits per second, like 80mbit")]
    BytesPerSecond {
        /// The text as written.
        text: String,
    },
    /// The rate is a small number without a unit, which many mean as Mbit/s.
    #[error("'{text}' would be {text} bit/s; add a unit, for example {text}mbit or {text}bit")]
    BareRate {
        /// The text as written.
        text: String,
    },
    /// The time has no unit where both seconds and milliseconds are usual.
    #[error("'{text}' has no unit; add one, for example {text}s or {text}ms")]
    BareTime {
        /// The text as written.
        text: String,
    },
    /// The probability is a bare 1, which many mean as one per cent.
    #[error("'{text}' may mean 1% or 100%; write one of the two")]
    AmbiguousOne {
        /// The text as written.
        text: String,
    },
}

/// Parses a rate: `1gbit`, `100Mbit/s`, `56kbit`, `10M`, `1.5Gbps`. A number without a unit is bit/s. From
/// 1 to 999 it is refused, since bit/s is hardly ever meant.
///
/// # Errors
/// [`UnitError`].
pub fn rate(text: &str) -> Result<Rate, UnitError> {
    let rate = rate_in_table(text)?;
    let bare = text.trim().parse::<f64>().is_ok();
    match rate.as_bits_per_second() {
        // `--rate 100` usually means 100 Mbit/s.
        1..1000 if bare => Err(UnitError::BareRate { text: shown(text) }),
        _ => Ok(rate),
    }
}

/// As [`rate`], for tables that programs write: any number without a unit is bit/s.
///
/// # Errors
/// [`UnitError`].
pub fn rate_in_table(text: &str) -> Result<Rate, UnitError> {
    let expected = ExpectedQuantity {
        quantity: "rate",
        example: "100mbit",
        most: "1000 Tbit/s",
    };
    let (number, unit) = expected.split(text)?;
    // Case matters only here: `B` is bytes, and rates are in bits.
    if unit.contains('B') {
        return Err(UnitError::BytesPerSecond { text: shown(text) });
    }
    let unit = unit.to_ascii_lowercase();
    // A suffix that contains another one comes first.
    let prefix = ["bits/s", "bit/s", "bits", "bit", "bps", "b/s"]
        .iter()
        .find_map(|suffix| unit.strip_suffix(suffix))
        .unwrap_or(&unit);
    let factor = factor(prefix).ok_or_else(|| expected.malformed(text))?;
    let bits = expected.at_most(text, number * factor, HIGHEST_RATE)?;
    Ok(Rate::bits_per_second(whole(bits)))
}

/// Parses a time with its unit: `7d`, `8h`, `45min` (or `45m`), `90s`, `100ms`, `250us`, `80ns`.
///
/// # Errors
/// [`UnitError`]; a number without a unit is [`UnitError::BareTime`].
pub fn time(text: &str) -> Result<Duration, UnitError> {
    time_of(text, "90s or 100ms", None)
}

/// As [`time`]; a number without a unit is seconds.
///
/// # Errors
/// [`UnitError`].
pub fn seconds(text: &str) -> Result<Duration, UnitError> {
    time_of(text, "90s", Some("s"))
}

/// As [`time`]; a number without a unit is hours.
///
/// # Errors
/// [`UnitError`].
pub fn hours(text: &str) -> Result<Duration, UnitError> {
    time_of(text, "12h", Some("h"))
}

/// As [`time`]; a number without a unit is milliseconds.
///
/// # Errors
/// [`UnitError`].
pub fn milliseconds(text: &str) -> Result<Duration, UnitError> {
    time_of(text, "100ms", Some("ms"))
}

/// Parses a time; `alone` is the unit of a number without one.
fn time_of(text: &str, example: &'static str, alone: Option<&str>) -> Result<Duration, UnitError> {
    let expected = ExpectedQuantity {
        quantity: "time",
        example,
        most: "1000 years",
    };
    let (number, unit) = expected.split(text)?;
    let unit = unit.to_ascii_lowercase();
    let unit = match (unit.as_str(), alone) {
        ("", None) => return Err(UnitError::BareTime { text: shown(text) }),
        ("", Some(alone)) => alone,
        (unit, _) => unit,
    };
    let seconds = match unit {
        "d" => number * 86_400.0,
        "h" => number * 3600.0,
        // Unlike in sizes and rates, `m` is minutes here.
        "min" | "m" => number * 60.0,
        "s" => number,
        "ms" => number / 1e3,
        // The micro sign (U+00B5) and the Greek mu (U+03BC) look the same.
        "us" | "µs" | "μs" => number / 1e6,
        "ns" => number / 1e9,
        _ => return Err(expected.malformed(text)),
    };
    let seconds = expected.at_most(text, seconds, LONGEST_TIME)?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a size in bytes: `64KiB`, `1MB`, `1500B`, `2M`. A number without a unit is bytes.
///
/// # Errors
/// [`UnitError`].
pub fn size(text: &str) -> Result<u64, UnitError> {
    let expected = ExpectedQuantity {
        quantity: "size",
        example: "64KiB",
        most: "1000 TB",
    };
    let (number, unit) = expected.split(text)?;
    let unit = unit.to_ascii_lowercase();
    let prefix = unit.strip_suffix('b').unwrap_or(&unit);
    let factor = factor(prefix).ok_or_else(|| expected.malformed(text))?;
    Ok(whole(expected.at_most(
        text,
        number * factor,
        GREATEST_SIZE,
    )?))
}

/// Parses a probability, 0..=1: `0.5%`, `0.005`. A bare `1` is refused, since many mean 1 %.
///
/// # Errors
/// [`UnitError`].
pub fn probability(text: &str) -> Result<f64, UnitError> {
    let expected = ExpectedQuantity {
        quantity: "probability",
        example: "0.5% or 0.005",
        most: "100%",
    };
    match expected.split(text)? {
        (number, "%") => expected.at_most(text, number / 100.0, 1.0),
        (number, "") if number.total_cmp(&1.0).is_eq() => {
            Err(UnitError::AmbiguousOne { text: shown(text) })
        }
        (number, "") => expected.at_most(text, number, 1.0),
        _ => Err(expected.malformed(text)),
    }
}

/// Parses a number that has no unit and is not negative.
///
/// # Errors
/// [`UnitError`].
pub fn number(text: &str) -> Result<f64, UnitError> {
    let expected = ExpectedQuantity {
        quantity: "number",
        example: "2.5",
        most: "",
    };
    match expected.split(text)? {
        (number, "") => Ok(number),
        _ => Err(expected.malformed(text)),
    }
}

/// Description of the expected quantity, for messages.
struct ExpectedQuantity {
    quantity: &'static str,
    example: &'static str,
    most: &'static str,
}

impl ExpectedQuantity {
    /// Splits a text into its number and its unit.
    fn split<'t>(&self, text: &'t str) -> Result<(f64, &'t str), UnitError> {
        let text = text.trim();
        let (digits, unit) = text.split_at(number_length(text));
        let number: f64 = digits.parse().map_err(|_| self.malformed(text))?;
        // A number like `1e999` parses as infinity.
        if !number.is_finite() {
            return Err(self.malformed(text));
        }
        if number < 0.0 {
            return Err(UnitError::Negative { text: shown(text) });
        }
        // `-0` passes the check above; `abs` makes it 0.
        Ok((number.abs(), unit.trim_start()))
    }

    fn malformed(&self, text: &str) -> UnitError {
        UnitError::Malformed {
            text: shown(text),
            quantity: self.quantity,
            example: self.example,
        }
    }

    fn at_most(&self, text: &str, value: f64, most: f64) -> Result<f64, UnitError> {
        if value <= most {
            Ok(value)
        } else {
            Err(UnitError::TooMuch {
                text: shown(text),
                most: self.most,
            })
        }
    }
}

/// Length in bytes of the decimal number at the start of `text`, exponent included.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits_from = |mut at: usize, also: u8| {
        while bytes
            .get(at)
            .is_some_and(|b| b.is_ascii_digit() || *b == also)
        {
            at += 1;
        }
        at
    };
    let sign = |at: usize| at + usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
    let mantissa = digits_from(sign(0), b'.');
    if !matches!(bytes.get(mantissa), Some(b'e' | b'E')) {
        return mantissa;
    }
    let exponent = sign(mantissa + 1);
    let end = digits_from(exponent, b'0');
    // An `e` without digits after it belongs to the unit.
    if end > exponent { end } else { mantissa }
}

/// Factor of a prefix in lower case.
fn factor(prefix: &str) -> Option<f64> {
    let (letter, step) = match prefix.strip_suffix('i') {
        // `i` alone is not a prefix.
        Some(letter) if !letter.is_empty() => (letter, 1024.0_f64),
        _ => (prefix, 1000.0),
    };
    let power = match letter {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    Some(step.powi(power))
}

/// Rounds to the nearest whole number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers have checked 0..=1e15"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// `text` for a message: one line of bounded length, without control characters.
fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let text = text.trim();
    let mut line: String = text
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().count() > LONGEST {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(text: &str) -> u64 {
        rate(text).unwrap().as_bits_per_second()
    }

    #[test]
    fn rates_are_parsed_or_refused() {
        assert_eq!(bits("1gbit"), 1_000_000_000);
        assert_eq!(bits("100Mbit/s"), 100_000_000);
        assert_eq!(bits("56kbit"), 56_000);
        assert_eq!(bits("10M"), 10_000_000);
        assert_eq!(bits(" 1.5 Gbps "), 1_500_000_000);
        assert_eq!(bits("26e3"), 26_000);
        assert_eq!(bits("1Mibit"), 1_048_576);
        assert_eq!(bits("0"), 0);
        for wrong in [
            "",
            "fast",
            "10 parsecs",
            "10MB/s",
            "-1",
            "NaN",
            "inf",
            "1e400",
            "2e15",
            "ibit",
        ] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert!(
            rate("10MB/s")
                .unwrap_err()
                .to_string()
                .contains("bits per second")
        );
    }

    #[test]
    fn a_small_rate_without_a_unit_is_refused_except_in_tables() {
        let refused = rate("100").unwrap_err().to_string();
        assert!(
            refused.contains("100mbit") && refused.contains("100bit"),
            "{refused}"
        );
        for text in ["100bit", "100 bit/s", "1000", "1e9", "0", "0.1k"] {
            assert_eq!(rate(text), rate_in_table(text), "{text}");
        }
        assert_eq!(rate_in_table("100"), Ok(Rate::bits_per_second(100)));
    }

    #[test]
    fn times_are_parsed_or_refused() {
        for read in [time, seconds, milliseconds, hours] {
            assert_eq!(read("7d"), Ok(Duration::from_secs(604_800)));
            assert_eq!(read("1.5h"), Ok(Duration::from_secs(5400)));
            assert_eq!(read("2 min"), Ok(Duration::from_secs(120)));
            assert_eq!(read("2m"), read("2min"));
            assert_eq!(read("1.5s"), Ok(Duration::from_millis(1500)));
            assert_eq!(read("100ms"), Ok(Duration::from_millis(100)));
            assert_eq!(read("250us"), Ok(Duration::from_micros(250)));
            assert_eq!(read("250 µs"), Ok(Duration::from_micros(250)));
            assert_eq!(read("80ns"), Ok(Duration::from_nanos(80)));
            for wrong in ["", "s", "-1ms", "1e99h", "2 days", "inf", "nan", "1.2.3s"] {
                assert!(read(wrong).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn a_time_without_a_unit_has_the_documented_unit() {
        assert_eq!(milliseconds("76.7"), Ok(Duration::from_micros(76_700)));
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(hours("12"), Ok(Duration::from_secs(43_200)));
        let refused = time("60").unwrap_err().to_string();
        assert!(refused.contains("60s or 60ms"), "{refused}");
    }

    #[test]
    fn sizes_are_parsed_or_refused() {
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1MB"), Ok(1_000_000));
        assert_eq!(size("1500B"), Ok(1500));
        assert_eq!(size("2k"), Ok(2000));
        assert!(size("64 pages").is_err());
    }

    #[test]
    fn probabilities_are_parsed_or_refused() {
        assert_eq!(probability("0.5%"), Ok(0.005));
        assert_eq!(probability("0.005"), Ok(0.005));
        assert_eq!(probability("1e-05"), Ok(1e-5));
        assert_eq!(probability("100%"), Ok(1.0));
        assert!(matches!(
            probability("1"),
            Err(UnitError::AmbiguousOne { .. })
        ));
        assert!(matches!(
            probability("101%"),
            Err(UnitError::TooMuch { .. })
        ));
        assert!(matches!(
            probability("-1%"),
            Err(UnitError::Negative { .. })
        ));
    }

    proptest! {
        #[test]
        fn every_error_message_is_one_line(text in any::<String>()) {
            for error in [rate(&text).err(), time(&text).err(), seconds(&text).err(), size(&text).err(),
                          probability(&text).err(), number(&text).err()].into_iter().flatten() {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }

        #[test]
        fn a_displayed_rate_parses_back(bits in 0u64..=1_000_000_000_000_000) {
            let shown = Rate::bits_per_second(bits).to_string();
            prop_assert_eq!(rate(&shown).unwrap().as_bits_per_second(), bits);
        }
    }
}
