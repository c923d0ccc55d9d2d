//! Dates in header fields (RFC 9110 §5.6.7) and WebDAV properties (RFC 4918 §15).

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use super::content_range::parse_number;
use crate::listing::months::month_of_name;
use crate::timestamp::Timestamp;

/// Names of the months in [`RFC_2822`].
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Reads the date. Servers write weekday and month in their own languages: the former is left out, the latter translated.
static RFC_2822: DateTimeParser = DateTimeParser::new();

/// Parses the three forms of HTTP dates, `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` and
/// `Sun Nov  6 08:49:37 1994`, and what WebDAV servers write instead: other zones (`+0100`, `UTC`, `GMT+01:00`), date(1)'s
/// `Sun Nov  6 08:49:37 UTC 1994` and ISO 8601 (`1994-11-06T08:49:37Z`). A time without a zone is of an unknown one, except in
/// the third form.
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(Timestamp(time.as_second()));
    }
    let words: Vec<&str> = text.split_ascii_whitespace().take(8).collect();
    let [day, month, year, time, zone] = match *words.as_slice() {
        [weekday, day, month, year, time, zone] if weekday.ends_with(',') => {
            [day, month, year, time, zone]
        }
        [weekday, date, time, zone] if weekday.ends_with(',') => {
            let mut date = date.splitn(3, '-');
            [date.next()?, date.next()?, date.next()?, time, zone]
        }
        [_, month, day, time, year] => [day, month, year, time, "GMT"],
        [_, month, day, time, zone, year] => [day, month, year, time, zone],
        _ => return None,
    };
    let month = MONTHS.get(usize::try_from(month_of_name(month.as_bytes())? - 1).ok()?)?;
    let date = format!("{day} {month} {year} {time} {}", offset(zone)?);
    let time = RFC_2822.parse_timestamp(&date).ok()?;
    Some(Timestamp(time.as_second()))
}

/// A zone as `+hhmm`. Names of zones other than UTC's are ambiguous.
fn offset(zone: &str) -> Option<String> {
    let names = ["GMT", "UTC", "UT"];
    let offset = names.iter().find_map(|name| zone.strip_prefix(name));
    let offset = offset.unwrap_or(zone).replace(':', "");
    match offset.as_str() {
        "" | "Z" => Some("+0000".to_owned()),
        offset if offset.starts_with(['+', '-']) => Some(offset.to_owned()),
        _ => None,
    }
}

/// The wait that a Retry-After field asks for at the time `now`: seconds, or a date (RFC 9110 §10.2.3).
pub fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let seconds = parse_number(text.trim()).or_else(|| {
        let at = parse(text)?;
        u64::try_from(at.0.saturating_sub(now.0).max(0)).ok()
    });
    seconds.map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
