//! Dates in header fields (RFC 9110 §5.6.7) and WebDAV properties (RFC 4918 §15).

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use super::content_range::parse_number;
use crate::timestamp::Timestamp;

/// Reads the date. Its weekday is left out, since servers write it in their own languages.
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
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_given_in_seconds_or_ends_at_a_date() {
        let now = Timestamp(784_111_707);
        for (text, seconds) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(70)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-7", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let wait = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(text, now), wait, "{text}");
        }
    }

    #[test]
    fn every_form_is_parsed_as_the_same_time() {
        let moment = Some(Timestamp(784_111_777));
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov  6 08:49:37 UTC 1994",
            " Sun,  6 Nov 1994 08:49:37 GMT ",
            "So, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 GMT-00:00",
            "Sun, 06 Nov 1994 10:19:37 GMT+01:30",
            "Sun, 06 Nov 1994 03:49:37 -0500",
            "1994-11-06T08:49:37Z",
            "1994-11-06T08:49:37.250Z",
            "1994-11-06T09:49:37+01:00",
        ] {
            assert_eq!(parse(text), moment, "{text}");
        }
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Timestamp(0)));
        // A leap second, which Unix time cannot express.
        let leap = parse("Sat, 31 Dec 2016 23:59:60 GMT");
        assert_eq!(leap, parse("Sat, 31 Dec 2016 23:59:59 GMT"));
    }

    #[test]
    fn other_texts_and_times_of_unknown_zones_are_no_dates() {
        for text in [
            "",
            "0",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT+1x:00",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 -8:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sunday, 06-Nov 08:49:37 GMT",
            "1994-11-06T08:49:37",
            "1994-11-06",
            "a b c d e f g h",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
