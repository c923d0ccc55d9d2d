//! Dates in rows of LIST: many forms, few of which are standardized.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};

use super::coarse_time::CoarseTime;
use super::months::month_of_name;
use crate::timestamp::Timestamp;

/// A word of a row and the offset of its end.
pub(super) type RowWord<'a> = (&'a [u8], usize);

/// Most words that are split off. The columns before the name have fewer; the rest is the name.
const MAX_WORDS: usize = 12;

/// The first words of a row, between spaces and tabs.
pub(super) fn words(row: &[u8]) -> Vec<RowWord<'_>> {
    let mut words = Vec::with_capacity(MAX_WORDS);
    let mut at = 0;
    while words.len() < MAX_WORDS {
        let Some(start) = row[at..].iter().position(|b| !is_blank(*b)) else {
            break;
        };
        let start = at + start;
        let end = row[start..]
            .iter()
            .position(|b| is_blank(*b))
            .map_or(row.len(), |n| start + n);
        words.push((&row[start..end], end));
        at = end;
    }
    words
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A number without sign. `FromStr` alone would accept a leading `+`.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(word).ok()?.parse().ok()
}

/// A number, possibly with separators between groups of three digits: `,`, `.`, `'` or a space that does not break, in
/// UTF-8, Latin-1 or a code page of DOS.
pub(super) fn grouped_number(word: &[u8]) -> Option<u64> {
    const SEPARATORS: [&[u8]; 8] = [
        b",",
        b".",
        b"'",
        b"\xc2\xa0",
        b"\xe2\x80\xaf",
        b"\xe2\x80\x99",
        b"\xa0",
        b"\xff",
    ];
    let first = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, mut rest) = word.split_at(first);
    if rest.is_empty() {
        return number(digits);
    }
    let separator = SEPARATORS.into_iter().find(|s| rest.starts_with(s))?;
    let mut digits = digits.to_vec();
    if digits.is_empty() || digits.len() > 3 {
        return None;
    }
    while !rest.is_empty() {
        let group = rest.strip_prefix(separator)?;
        let (three, behind) = group.split_at_checked(3)?;
        digits.extend_from_slice(three);
        rest = behind;
    }
    number(&digits)
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeOfDay {
    /// 0..=24; 24:00 is the end of the day.
    pub(super) hour: i8,
    pub(super) minute: i8,
    /// Seconds, where they are shown.
    pub(super) second: Option<i8>,
}

impl TimeOfDay {
    /// Reads `08:21`, `08:21:03` and `08:21:03.000000000`.
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        let mut parts = word.splitn(3, |b| *b == b':');
        let hour = small(parts.next()?)?;
        let minute = small(parts.next()?)?;
        let second = match parts.next() {
            None => None,
            Some(word) => {
                let mut halves = word.splitn(2, |b| *b == b'.');
                let second = small(halves.next()?)?;
                halves
                    .next()
                    .is_none_or(|fraction| number(fraction).is_some())
                    .then_some(())?;
                Some(second)
            }
        };
        let is_end_of_day = hour == 24 && minute == 0 && second.unwrap_or(0) == 0;
        let in_range = (0..24).contains(&hour) || is_end_of_day;
        (in_range && minute < 60 && second.unwrap_or(0) <= 60).then_some(Self {
            hour,
            minute,
            second,
        })
    }
}

fn small(word: &[u8]) -> Option<i8> {
    (word.len() <= 2)
        .then(|| number(word))
        .flatten()?
        .try_into()
        .ok()
}

/// The date and time of a row, by the clock of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RowTime {
    /// `None`: the last one in which the date is not in the future.
    pub(super) year: Option<i16>,
    /// Month and day. `None`: their order is unknown.
    pub(super) day: Option<(i8, i8)>,
    pub(super) time: Option<TimeOfDay>,
    /// Minutes ahead of UTC, where the row shows them.
    pub(super) zone: Option<i16>,
}

/// Seconds of a day.
const DAY: i64 = 86_400;

impl RowTime {
    /// The modification time: exactly, or as far as it is known; never both.
    pub(super) fn resolve(self, now: Timestamp) -> (Option<Timestamp>, Option<CoarseTime>) {
        let Some(start) = self.start(now) else {
            return (None, None);
        };
        match (self.time, self.zone) {
            (
                Some(TimeOfDay {
                    second: Some(_), ..
                }),
                Some(zone),
            ) => (Some(Timestamp(start.0 - i64::from(zone) * 60)), None),
            (time, _) => {
                let span = match time {
                    None => 86_400,
                    Some(TimeOfDay { second: None, .. }) => 60,
                    Some(_) => 1,
                };
                (None, Some(CoarseTime { start, span }))
            }
        }
    }

    /// The beginning, read as UTC.
    fn start(self, now: Timestamp) -> Option<Timestamp> {
        if let Some(year) = self.year {
            return self.start_in(year);
        }
        // The server's clock may be ahead, and its zone even more.
        let latest = now.0.saturating_add(DAY);
        let this_year = Timestamp(latest).year();
        // Nine: leap days have up to eight years between them.
        let mut years = (0..9).map(|back| this_year - back);
        years.find_map(|year| self.start_in(year).filter(|start| start.0 <= latest))
    }

    fn start_in(self, year: i16) -> Option<Timestamp> {
        let (month, day) = self.day?;
        let midnight = Date::new(year, month, day)
            .ok()?
            .to_datetime(jiff::civil::Time::midnight());
        let time = self.time.map_or(0, |time| {
            let (hour, minute) = (i64::from(time.hour), i64::from(time.minute));
            hour * 3600 + minute * 60 + i64::from(time.second.unwrap_or(0))
        });
        let since = midnight.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
        let since = since.checked_add(SignedDuration::from_secs(time))?;
        Some(Timestamp(since.as_secs()))
    }
}

/// A date that was found in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowDate {
    /// Offset of the end of its last word.
    pub(super) end: usize,
    pub(super) time: RowTime,
    /// Several spaces may follow: the row has no time of day, and columns that are filled.
    pub(super) is_padded: bool,
}

/// How the row's words after a time of day are read: `May 28 19:50 2023 name` is a file `2023 name` at most servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum YearAfterTime {
    /// It belongs to the name.
    InName,
    /// It belongs to the date.
    InDate,
}

/// The date that starts at word `at`. `numeric`: only forms that consist of numbers alone, such as `11 20 08:21`; they are
/// looked for where no other form is found.
pub(super) fn date_at(
    words: &[RowWord<'_>],
    at: usize,
    numeric: bool,
    year_after: YearAfterTime,
) -> Option<RowDate> {
    let rest = words.get(at..)?;
    match numeric {
        false => joined_date(rest).or_else(|| {
            let is_number = |word: &[u8]| number(word).is_some();
            let named = |word: &[u8]| month_of_word(word).filter(|_| !is_number(word));
            month_and_day(rest, named, year_after)
        }),
        true => month_and_day(rest, month_of_word, year_after),
    }
}

/// `2026-11-20`, `2026/11/20`, `20.11.2026` or `01-jun-99`, with or without a time; `11-20` with a time or a year.
fn joined_date(words: &[RowWord<'_>]) -> Option<RowDate> {
    let &(first, first_end) = words.first()?;
    let next = words.get(1).copied();
    let time = next.and_then(|(word, end)| Some((TimeOfDay::parse(word)?, end)));
    let separator = first
        .iter()
        .copied()
        .find(|b| matches!(b, b'-' | b'/' | b'.'))?;
    let parts: Vec<&[u8]> = first.split(|b| *b == separator).collect();
    match (parts.as_slice(), time) {
        ([month, day], _) if separator != b'.' => {
            let day = Some((month_of_word(month)?, day_of_word(day)?));
            let (word, end) = next?;
            let year = year_of_word(word);
            let time = time.map(|(time, _)| time);
            (year.is_some() || time.is_some()).then_some(RowDate {
                end,
                time: RowTime {
                    year,
                    day,
                    time,
                    zone: None,
                },
                is_padded: false,
            })
        }
        (parts @ [_, _, _], time) => {
            let (year, day) = three_parts(parts, separator)?;
            // `ls --full-time` shows seconds before the zone.
            let is_full = time.is_some_and(|(time, _)| time.second.is_some());
            let zone = words.get(2).filter(|_| is_full);
            let zone = zone.and_then(|(word, end)| Some((zone_of_word(word)?, *end)));
            let end = zone.map(|(_, end)| end).or(time.map(|(_, end)| end));
            Some(RowDate {
                end: end.unwrap_or(first_end),
                time: RowTime {
                    year: Some(year),
                    day,
                    time: time.map(|(time, _)| time),
                    zone: zone.map(|(zone, _)| zone),
                },
                is_padded: time.is_none(),
            })
        }
        _ => None,
    }
}

/// Year, month and day of a date in one word. Month and day are `None` where their order is unknown.
pub(super) fn three_parts(parts: &[&[u8]], separator: u8) -> Option<(i16, Option<(i8, i8)>)> {
    let [a, b, c] = *parts else {
        return None;
    };
    let date = |year: &[u8], month: &[u8], day: &[u8]| {
        let year = match year.len() {
            4 => year_of_word(year)?,
            // Years of old servers that count from 1900.
            2 | 3 => match i16::try_from(number(year)?).ok()? {
                year @ 0..70 => 2000 + year,
                year => 1900 + year,
            },
            _ => return None,
        };
        Some((year, Some((month_of_word(month)?, day_of_word(day)?))))
    };
    if a.len() == 4 {
        return date(a, b, c);
    }
    if month_of_name(a).is_some() {
        return date(c, a, b);
    }
    match (date(c, a, b), date(c, b, a)) {
        // Only Germans and their neighbours write dots.
        (Some(_), by_day @ Some(_)) if separator == b'.' => by_day,
        // `DIR` of Windows servers.
        (by_month @ Some(_), _) if separator == b'-' => by_month,
        (Some(one), Some(other)) if one != other => Some((one.0, None)),
        (by_month, by_day) => by_month.or(by_day),
    }
}

/// `Nov 20 08:21`, `20 Nov 2024`, `20. Nov. 2024`, `Oct 08, 2002 09:47`, `11 20 08:21`.
fn month_and_day(
    words: &[RowWord<'_>],
    month_of: impl Fn(&[u8]) -> Option<i8>,
    year_after: YearAfterTime,
) -> Option<RowDate> {
    let [(first, _), (second, _), (third, end), ..] = *words else {
        return None;
    };
    let month_first = month_of(first).zip(day_of_word(second));
    let day_first = month_of(second).zip(day_of_word(first));
    let day = match (month_first, day_first) {
        // The order of two numbers is unknown.
        (Some(one), Some(other)) => Some(one).filter(|_| one == other),
        (one, other) => Some(one.or(other)?),
    };
    let date = |end, year, time| RowDate {
        end,
        time: RowTime {
            year,
            day,
            time,
            zone: None,
        },
        is_padded: false,
    };
    let fourth = words.get(3).copied();
    if let Some(time) = TimeOfDay::parse(third) {
        let year = fourth.filter(|_| year_after == YearAfterTime::InDate);
        let year = year.and_then(|(word, end)| Some((year_of_word(word)?, end)));
        return Some(match year {
            Some((year, end)) => date(end, Some(year), Some(time)),
            None => date(end, None, Some(time)),
        });
    }
    let year = year_of_word(third)?;
    // VShell: only with the comma is this no name.
    let time = fourth.filter(|_| second.ends_with(b","));
    let time = time.and_then(|(word, end)| Some((TimeOfDay::parse(word)?, end)));
    Some(match time {
        Some((time, end)) => date(end, Some(year), Some(time)),
        None => date(end, Some(year), None),
    })
}

/// Years of files at servers that show them behind the time.
const PLAUSIBLE_YEARS: std::ops::Range<i16> = 1970..2200;

/// Whether a row's name begins with what may be a year of its date.
pub(super) fn begins_with_year(name: &[u8]) -> bool {
    let Some(at) = name.iter().position(|b| is_blank(*b)) else {
        return false;
    };
    let is_year = year_of_word(&name[..at]).is_some_and(|year| PLAUSIBLE_YEARS.contains(&year));
    is_year && name.len() > at + 1
}

/// A month by its name, or by its number in a date of one word or with a character of an Asian language behind.
fn month_of_word(word: &[u8]) -> Option<i8> {
    if let Some(month) = month_of_name(word) {
        return Some(month);
    }
    let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, mark) = word.split_at(digits);
    (mark.is_empty() || is_character(mark))
        .then(|| small(digits))
        .flatten()
        .filter(|month| (1..=12).contains(month))
}

/// A day: `20`, `20.`, `20,`, or with a character of an Asian language behind.
fn day_of_word(word: &[u8]) -> Option<i8> {
    let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, mark) = word.split_at(digits);
    let is_mark = matches!(mark, b"" | b"." | b",") || is_character(mark);
    let day = small(digits).filter(|_| is_mark)?;
    (1..=31).contains(&day).then_some(day)
}

/// A year of four digits.
fn year_of_word(word: &[u8]) -> Option<i16> {
    let (digits, mark) = word.split_at_checked(4)?;
    let is_mark = mark.is_empty() || is_character(mark);
    let year = i16::try_from(number(digits)?).ok()?;
    is_mark.then_some(year)
}

/// Whether this may be one character of an Asian language, in whatever character set: `年` behind a year.
fn is_character(mark: &[u8]) -> bool {
    mark.len() <= 4 && mark.first().is_some_and(|first| !first.is_ascii())
}

/// `+0100`: minutes ahead of UTC.
fn zone_of_word(word: &[u8]) -> Option<i16> {
    let (sign, digits) = word.split_first()?;
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = i16::from(small(hours)?) * 60 + i16::from(small(minutes)?);
    match sign {
        _ if digits.len() != 4 => None,
        b'+' => Some(minutes),
        b'-' => Some(-minutes),
        _ => None,
    }
}
