//! Numbers as people read them.

use std::time::Duration;

/// A measured value with about three significant digits: `889`, `41.3`, `8.18`, `0.0052`.
pub(super) fn value(number: f64) -> String {
    grouped(&format!("{number:.*}", decimals(number)))
}

/// A half-width, written as precisely as the value that it belongs to.
pub(super) fn spread(half_width: f64, of: f64) -> String {
    grouped(&format!("{half_width:.*}", decimals(of)))
}

/// `0.93`, `1.80`, `11.9`: how many times one value is of another.
pub(super) fn ratio(number: f64) -> String {
    match number.abs() {
        size if size >= 99.5 => format!("{number:.0}"),
        size if size >= 9.95 => format!("{number:.1}"),
        size if size >= 0.095 => format!("{number:.2}"),
        size if size >= 0.0095 => format!("{number:.3}"),
        0.0 => "0".to_owned(),
        _ => format!("{number:.1e}"),
    }
}

/// A coordinate in a drawing: at most two decimals, no trailing zeros.
pub(super) fn coordinate(number: f64) -> String {
    let written = format!("{number:.2}");
    let trimmed = written.trim_end_matches('0').trim_end_matches('.');
    if trimmed == "-0" {
        "0".to_owned()
    } else {
        trimmed.to_owned()
    }
}

/// Whole seconds, as [`units::show::time`] writes them: `48 s`, `12 min 4 s`, `3 h 20 min`.
pub(super) fn duration(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds.round())
        .map_or_else(|_| "unknown time".to_owned(), units::show::time)
}

/// `2026-11-20 13:55 UTC`; what is no RFC 3339 time stays as it is.
pub(super) fn moment(rfc3339: &str) -> String {
    rfc3339.parse::<jiff::Timestamp>().map_or_else(
        |_| rfc3339.to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}

/// `1 run`, `3 runs`.
pub(super) fn count(number: usize, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

/// A number of five digits and more with narrow spaces between its thousands: `31 638`.
pub(super) fn grouped(number: &str) -> String {
    let digits = number
        .bytes()
        .take_while(|byte| *byte != b'.')
        .filter(u8::is_ascii_digit)
        .count();
    if digits < 5 || number.contains('e') {
        return number.to_owned();
    }
    let mut left = digits;
    let mut out = String::new();
    for character in number.chars() {
        out.push(character);
        if character.is_ascii_digit() && left > 0 {
            left -= 1;
            if left > 0 && left % 3 == 0 {
                out.push('\u{202f}');
            }
        }
    }
    out
}

fn decimals(number: f64) -> usize {
    match number.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        size if size >= 0.1 => 3,
        size if size >= 0.001 => 4,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_three_digits() {
        let written: Vec<String> = [915.22, 99.96, 41.27, 8.18, 0.25, 0.0, -12.345]
            .into_iter()
            .map(value)
            .collect();
        assert_eq!(
            written,
            ["915", "100", "41.3", "8.18", "0.250", "0", "-12.3"]
        );
        assert_eq!(value(31_638.4), "31\u{202f}638");
        assert_eq!(spread(1.234, 915.0), "1");
        assert_eq!(spread(1.234, 41.0), "1.2");
    }

    #[test]
    fn thousands_are_set_apart() {
        let written = ["1000", "40000", "-1234567", "12345.678", "2e9"].map(grouped);
        let expected = ["1000", "40 000", "-1 234 567", "12 345.678", "2e9"];
        assert_eq!(written, expected.map(|text| text.replace(' ', "\u{202f}")));
    }

    #[test]
    fn ratios_say_what_they_can() {
        let written: Vec<String> = [0.931, 1.0, 1.8, 11.94, 250.4, 0.012, 0.0, 0.0001]
            .into_iter()
            .map(ratio)
            .collect();
        assert_eq!(
            written,
            [
                "0.93", "1.00", "1.80", "11.9", "250", "0.012", "0", "1.0e-4"
            ]
        );
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(coordinate(12.0), "12");
        assert_eq!(coordinate(12.50), "12.5");
        assert_eq!(coordinate(-0.001), "0");
        assert_eq!(coordinate(100.0), "100");
    }

    #[test]
    fn durations_and_moments() {
        assert_eq!(duration(48.2), "48 s");
        assert_eq!(duration(724.9), "12 min 5 s");
        assert_eq!(duration(12_000.0), "3 h 20 min");
        assert_eq!(duration(f64::NAN), "unknown time");
        assert_eq!(
            moment("2026-11-20T14:55:31.5+01:00"),
            "2026-11-20 13:55 UTC"
        );
        assert_eq!(moment("yesterday"), "yesterday");
    }
}
