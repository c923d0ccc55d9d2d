//! Dates in header fields and WebDAV properties (RFC 9110 §5.6.7).

use jiff::civil::DateTime;

use crate::timestamp::Timestamp;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`. The obsolete RFC 850 form, whose
/// year has two digits, is not supported.
pub fn parse(text: &str) -> Option<Timestamp> {
    let words: Vec<&str> = text.split_ascii_whitespace().take(7).collect();
    let (day, month, year, time) = match words.as_slice() {
        // RFC 9110 allows only GMT, but some WebDAV servers write UTC or +0000.
        [_, day, month, year, time, "GMT" | "UTC" | "+0000"] => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let two = |text: &str, most: usize| {
        let digits = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<i16>().ok())?
    };
    let small = |text: &str| i8::try_from(two(text, 2)?).ok();
    let month = MONTHS.iter().position(|name| name == month)?;
    let mut clock = time.split(':').map(small);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if clock.next().is_some() || year.len() != 4 {
        return None;
    }
    let month = i8::try_from(month + 1).ok()?;
    let civil = DateTime::new(
        two(year, 4)?,
        month,
        small(day)?,
        hour,
        minute,
        // 60 is a leap second, which Unix time cannot express.
        second.min(59),
        0,
    );
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    Some(Timestamp(civil.ok()?.duration_since(epoch).as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_parsed_as_the_same_time() {
        let moment = Some(Timestamp(784_111_777));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), moment);
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), moment);
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Timestamp(0)));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 -8:49:37 GMT",
            "Sun, 06 November 1994 08:49:37 GMT",
            "a b c d e f g h",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
