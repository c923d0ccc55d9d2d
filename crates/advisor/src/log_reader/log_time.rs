//! Times as servers write them.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The zone of this host, from /etc/localtime (tzfile(5)); UTC if that cannot be read, as on hosts without one.
pub fn host_zone() -> TimeZone {
    std::fs::read("/etc/localtime")
        .ok()
        .and_then(|bytes| TimeZone::tzif("local", &bytes).ok())
        .unwrap_or(TimeZone::UTC)
}

/// `YYYYMMDDhhmmss.ffffff`, UTC, as globus-gridftp-server writes it: its fraction has no leading zeros lost, but may
/// have fewer digits.
pub(super) fn compact(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction: f64 = format!("0.{fraction}0").parse().ok()?;
    if whole.len() != 14 || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| whole.get(range)?.parse::<i16>().ok();
    let time = civil(
        part(0..4)?,
        part(4..6)?,
        part(6..8)?,
        [part(8..10)?, part(10..12)?, part(12..14)?],
    )?;
    let at = TimeZone::UTC.to_timestamp(time).ok()?;
    // A fraction is below one, so that the product fits.
    #[expect(clippy::cast_possible_truncation, reason = "below 10^9")]
    let nanoseconds = (fraction * 1e9) as i64;
    at.checked_add(nanoseconds.nanoseconds()).ok()
}

/// The fields of ctime(3), `Mon Nov 23 02:27:20 2026`, without the day of the week, in this zone.
pub(super) fn ctime(
    month: &str,
    day: &str,
    time: &str,
    year: &str,
    zone: &TimeZone,
) -> Option<Timestamp> {
    let time = date_and_time(year, month, day, time)?;
    zone.to_ambiguous_zoned(time)
        .compatible()
        .ok()
        .map(|zoned| zoned.timestamp())
}

/// The time of the common log format, `23/Nov/2026:02:27:23 +0000`. pure-ftpd writes `-0000`.
pub(super) fn common_log(text: &str) -> Option<Timestamp> {
    let (time, zone) = text.split_once(' ')?;
    let mut parts = time.splitn(3, '/');
    let (day, month) = (parts.next()?, parts.next()?);
    let (year, time) = parts.next()?.split_once(':')?;
    let time = date_and_time(year, month, day, time)?;
    let digits = zone.strip_prefix(['+', '-'])?;
    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = digits.split_at(2);
    let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
    let seconds = if zone.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    Offset::from_seconds(seconds).ok()?.to_timestamp(time).ok()
}

/// A date and a time of which the month is a name.
fn date_and_time(year: &str, month: &str, day: &str, time: &str) -> Option<DateTime> {
    civil(
        year.parse().ok()?,
        month_number(month)?,
        day.parse().ok()?,
        clock(time)?,
    )
}

fn month_number(name: &str) -> Option<i16> {
    let index = MONTHS.iter().position(|&month| month == name)?;
    i16::try_from(index + 1).ok()
}

fn clock(text: &str) -> Option<[i16; 3]> {
    let mut parts = text.split(':').map(|part| part.parse::<i16>().ok());
    let clock = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(clock)
}

fn civil(year: i16, month: i16, day: i16, clock: [i16; 3]) -> Option<DateTime> {
    let byte = |value: i16| i8::try_from(value).ok();
    // A leap second is written as 60, and civil time has none.
    let [hour, minute, second] = clock;
    DateTime::new(
        year,
        byte(month)?,
        byte(day)?,
        byte(hour)?,
        byte(minute)?,
        byte(second.min(59))?,
        0,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_gives_the_same_moment() {
        let expected: Timestamp = "2026-11-23T02:27:23Z".parse().unwrap();
        let zone = TimeZone::fixed(Offset::constant(1));
        assert_eq!(compact("20261123022723"), Some(expected));
        assert_eq!(
            ctime("Nov", "23", "03:27:23", "2026", &zone),
            Some(expected)
        );
        assert_eq!(common_log("23/Nov/2026:02:27:23 -0000"), Some(expected));
        assert_eq!(common_log("23/Nov/2026:07:57:23 +0530"), Some(expected));
        assert_eq!(
            compact("20261123022723.25"),
            "2026-11-23T02:27:23.25Z".parse().ok()
        );
    }

    #[test]
    fn impossible_times_are_none() {
        for text in [
            "20261323022723",
            "2026",
            "2026112302272x",
            "20261123022723.x",
            "é0261123022723",
        ] {
            assert_eq!(compact(text), None, "{text}");
        }
        for text in [
            "23/Nov/2026:02:27:23",
            "23/Nov/2026:02:27 +0000",
            "31/Feb/2026:02:27:23 +0000",
            "1/Nov/2026:0:0:0 +99",
        ] {
            assert_eq!(common_log(text), None, "{text}");
        }
    }
}
