//! Sizes, rates and spans of time as people write them.

use std::time::Duration;

use sim::rate::Rate;
pub(crate) use sim::units::{show_bytes, show_rate};

/// A number of bytes: `4096`, `64k`, `8M`, `8Mi`; powers of ten, or of two with `i`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    sim::units::size(text).map_err(|error| error.to_string())
}

/// A size of at least one byte.
pub(crate) fn positive_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("must be more than 0".into()),
        n => Ok(n),
    }
}

/// A rate in bits per second (`100M`, `1Gbit/s`), returned in bytes per second, at least 1.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    match sim::units::rate(text).map(Rate::as_bits_per_second) {
        Ok(0) => Err("must be more than 0".into()),
        Ok(bits) => Ok((bits / 8).max(1)),
        Err(error) => Err(error.to_string()),
    }
}

/// Seconds, whole or with a fraction, more than 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let bare = text.trim().strip_suffix('s').unwrap_or(text.trim());
    bare.parse::<f64>()
        .ok()
        .filter(|s| *s > 0.0 && *s <= 1e9)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("'{text}' is not a number of seconds above 0"))
}

/// `LO-HI`, two ports.
pub(crate) fn port_range(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('-')
        .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    match parsed {
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
    fn sizes_take_decimal_and_binary_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64k"), Ok(64_000));
        assert_eq!(size("64Ki"), Ok(65_536));
        assert_eq!(size("1.5G"), Ok(1_500_000_000));
        assert_eq!(size("8MiB"), Ok(8 << 20));
        assert!(size("eight").is_err());
        assert!(size("-1").is_err());
        assert!(size("8X").is_err());
        assert!(size("99999999999T").is_err());
        assert!(positive_size("0").is_err());
    }

    #[test]
    fn rates_are_bits_per_second() {
        assert_eq!(rate("8"), Ok(1));
        assert_eq!(rate("100M"), Ok(12_500_000));
        assert_eq!(rate("1Gbit/s"), Ok(125_000_000));
        assert!(rate("0").is_err());
    }

    #[test]
    fn port_ranges_are_ascending() {
        assert_eq!(port_range("50000-50100"), Ok((50000, 50100)));
        assert!(port_range("5-1").is_err());
        assert!(port_range("0-1").is_err());
        assert!(port_range("80").is_err());
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(seconds("0").is_err());
        assert!(seconds("soon").is_err());
    }
}
