//! Parsers for the values of flags, with the bounds that all flags of a kind share.

use std::time::Duration;

use units::Rate;

/// Longest timeout, about 30 years. Timers overflow with much longer ones.
const MAX_TIMEOUT: Duration = Duration::from_secs(1_000_000_000);

const ZERO_REFUSED: &str = "must be more than 0";

/// Parses the value of a flag that takes one of a few names, in upper or lower case.
pub fn parse_name<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        match names.split_last() {
            Some((last, [])) => format!("use {last}"),
            Some((last, others)) => format!("use {} or {last}", others.join(", ")),
            None => "no value is possible".to_owned(),
        }
    })
}

/// Parses a number of bytes, at least 1: `4096`, `64k`, `8M`, `8Mi`.
pub fn parse_positive_size(text: &str) -> Result<u64, String> {
    match units::size(text) {
        Ok(0) => Err(ZERO_REFUSED.to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a rate above 0: `100M`, `1Gbit/s`.
pub fn parse_positive_rate(text: &str) -> Result<Rate, String> {
    match units::rate(text) {
        Ok(rate) if rate.as_bits_per_second() == 0 => Err(ZERO_REFUSED.to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a rate in bits per second; returns bytes per second, at least 1.
pub fn parse_bytes_per_second(text: &str) -> Result<u64, String> {
    // A rate below 8 bit/s would become 0 bytes per second, which never ends.
    parse_positive_rate(text).map(|rate| (rate.as_bits_per_second() / 8).max(1))
}

/// Parses a time of whole seconds; a number without a unit is in seconds.
pub fn parse_whole_seconds(text: &str) -> Result<u32, String> {
    let time = units::seconds(text).map_err(|error| error.to_string())?;
    match (u32::try_from(time.as_secs()), time.subsec_nanos()) {
        (Ok(seconds), 0) => Ok(seconds),
        _ => Err("not a number of whole seconds".to_owned()),
    }
}

/// Parses a timeout above 0; a number without a unit is in seconds.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    match units::seconds(text) {
        Ok(time) => positive(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a time that may be 0; a number without a unit is in seconds.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    units::seconds(text).map_err(|error| error.to_string())
}

/// Parses a round-trip time above 0; a number without a unit is in milliseconds.
pub fn parse_round_trip(text: &str) -> Result<Duration, String> {
    // ping(8) shows milliseconds, and users copy its numbers.
    match units::milliseconds(text) {
        Ok(time) => positive(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses an age, which needs a unit: `0s`, `24h`, `7d`.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    units::time(text).map_err(|error| error.to_string())
}

/// Parses a time of up to many hours, which needs a unit: `90s`, `45min`, `8h`.
pub fn parse_budget(text: &str) -> Result<Duration, String> {
    match units::time(text) {
        Ok(time) => positive(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the time for which a proxy is valid, a minute to a year; a number without a unit is in hours.
pub fn parse_validity(text: &str) -> Result<Duration, String> {
    const MINUTE: Duration = Duration::from_secs(60);
    const YEAR: Duration = Duration::from_secs(366 * 86_400);
    let time = units::hours(text).map_err(|error| error.to_string())?;
    match (MINUTE..=YEAR).contains(&time) {
        true => Ok(time),
        false => Err("use a time from 1min to 366d".to_owned()),
    }
}

fn positive(time: Duration) -> Result<Duration, String> {
    if time.is_zero() {
        return Err(ZERO_REFUSED.to_owned());
    }
    if time > MAX_TIMEOUT {
        return Err("is too long; the maximum is 30 years".to_owned());
    }
    Ok(time)
}

/// Parses a range of ports, `LO-HI`.
pub fn parse_port_range(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('-')
        .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    match parsed {
        // Port 0 means "any port" to bind(2), so it cannot be part of a range.
        Some((low, high)) if low > 0 && low <= high => Ok((low, high)),
        _ => Err(format!(
            "'{text}' is not a range of ports such as 50000-50100"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_any_case_and_an_unknown_one_is_answered_with_all() {
        let names = [("off", 0), ("try", 1), ("require", 2)];
        assert_eq!(parse_name("Try", &names), Ok(1));
        for text in ["", "on", "tr"] {
            let error = parse_name(text, &names).unwrap_err();
            assert_eq!(error, "use off, try or require");
        }
        assert_eq!(parse_name("x", &names[..1]).unwrap_err(), "use off");
    }

    #[test]
    fn a_size_of_0_is_refused() {
        assert_eq!(parse_positive_size("64Ki"), Ok(65_536));
        assert_eq!(parse_positive_size("1"), Ok(1));
        for text in ["0", "eight", "-1", "8X", "99999999999T"] {
            assert!(parse_positive_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_read_as_bits_per_second() {
        assert_eq!(parse_bytes_per_second("8bit"), Ok(1));
        assert_eq!(parse_bytes_per_second("1bit"), Ok(1));
        assert_eq!(parse_bytes_per_second("100M"), Ok(12_500_000));
        assert_eq!(parse_bytes_per_second("1Gbit/s"), Ok(125_000_000));
        assert!(parse_bytes_per_second("0").is_err());
    }

    #[test]
    fn a_rate_below_1000_needs_a_unit() {
        let refused = parse_bytes_per_second("100").unwrap_err();
        assert!(refused.contains("100mbit or 100bit"), "{refused}");
    }

    #[test]
    fn port_ranges_must_be_ascending() {
        assert_eq!(parse_port_range("50000-50100"), Ok((50000, 50100)));
        assert!(parse_port_range("5-1").is_err());
        assert!(parse_port_range("0-1").is_err());
        assert!(parse_port_range("80").is_err());
    }

    #[test]
    fn a_number_without_a_unit_is_seconds_or_milliseconds_and_0_is_refused() {
        assert_eq!(parse_timeout("60"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_timeout("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_timeout("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_round_trip("60"), Ok(Duration::from_millis(60)));
        assert_eq!(parse_round_trip("0.1s"), Ok(Duration::from_millis(100)));
        for text in ["0", "0s", "soon", "-1", "2e9s", ""] {
            assert!(
                parse_timeout(text).is_err() && parse_round_trip(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_validity_is_in_hours_without_a_unit() {
        assert_eq!(parse_validity("12"), Ok(Duration::from_secs(43_200)));
        assert_eq!(parse_validity("7d"), Ok(Duration::from_secs(604_800)));
        for text in ["0", "59s", "367d", "soon"] {
            assert!(parse_validity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_budget_needs_a_unit() {
        assert_eq!(parse_budget("90min"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_budget("1.5 h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_budget("30s"), Ok(Duration::from_secs(30)));
        for text in ["", "90", "h", "0h", "-1h", "1e99h", "2 days"] {
            assert!(parse_budget(text).is_err(), "{text}");
        }
    }
}
