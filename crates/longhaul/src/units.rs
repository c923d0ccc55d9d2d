//! Sizes, rates and spans of time as people write them.

use std::time::Duration;

/// A number of bytes: `4096`, `64k`, `8M`, `8Mi`; powers of ten, or of two with `i`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let text = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        other => {
            return Err(format!(
                "unknown unit '{other}'; use k M G T or Ki Mi Gi Ti"
            ));
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .ok_or_else(|| format!("{text} is too large"));
    }
    let value: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a number with an optional unit (k M G, Ki Mi Gi)"))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the value is positive and a fraction of a byte does not matter"
    )]
    let bytes = (value * factor as f64) as u64;
    Ok(bytes)
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
    let lower = text.trim().to_ascii_lowercase();
    let bare = ["bits/s", "bit/s", "bps", "bit", "b/s"]
        .iter()
        .find_map(|suffix| lower.strip_suffix(suffix))
        .unwrap_or(&lower);
    let bits = positive_size(bare)?;
    Ok((bits / 8).max(1))
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

/// Bytes for people: `1.5 GB`, powers of ten.
pub(crate) fn show_bytes(bytes: u64) -> String {
    with_prefix(bytes, "B")
}

/// Bits per second for people: `942 Mbit/s`.
pub(crate) fn show_rate(bits_per_second: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are not negative and far below 2^64"
    )]
    let bits = bits_per_second.max(0.0) as u64;
    with_prefix(bits, "bit/s")
}

fn with_prefix(value: u64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut scaled = value as f64;
    let mut prefix = 0;
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
    fn people_see_three_digits() {
        assert_eq!(show_bytes(999), "999 B");
        assert_eq!(show_bytes(1_234_567), "1.23 MB");
        assert_eq!(show_bytes(999_999), "1.00 MB");
        assert_eq!(show_rate(942_000_000.0), "942 Mbit/s");
        assert_eq!(show_rate(94_200_000.0), "94.2 Mbit/s");
    }

    #[test]
    fn seconds_are_positive() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(seconds("0").is_err());
        assert!(seconds("soon").is_err());
    }
}
