//! `YYYYMMDDhhmmss` in UTC, as in MDTM, MFMT, SITE UTIME and the `Modify` fact (RFC 3659 §2.3).

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// 0000-01-01T00:00:00Z, the earliest time that fourteen digits can express.
const EARLIEST: i64 = -62_167_219_200;
/// 9999-12-31T23:59:59Z, the latest such time.
const LATEST: i64 = 253_402_300_799;
/// Zero of [`Timestamp`].
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// Half a year, seconds. For older times `ls` shows the year instead of the time of day.
const HALF_YEAR: i64 = 15_778_476;

impl Timestamp {
    /// Parses fourteen digits, optionally followed by `.` and a fraction, which is ignored. A leap second
    /// (`60`) is read as the second before it.
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if digits.len() != 14 || !all_digits(digits) || !all_digits(fraction) {
            return None;
        }
        let two = |at: usize| digits.get(at..at + 2)?.parse::<i8>().ok();
        let year = digits.get(..4)?.parse().ok()?;
        let second = two(12)?;
        // RFC 3659 §2.3 allows 60 for leap seconds, which Unix time cannot express.
        let second = if second == 60 { 59 } else { second };
        let civil = DateTime::new(year, two(4)?, two(6)?, two(8)?, two(10)?, second, 0).ok()?;
        let stamp = civil.duration_since(EPOCH).as_secs();
        (EARLIEST..=LATEST).contains(&stamp).then_some(Self(stamp))
    }

    /// Writes fourteen digits. Times outside the years 0..=9999 are clamped.
    pub fn format(self) -> String {
        let t = self.to_civil();
        format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}",
            t.year(),
            t.month(),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        )
    }

    /// Writes an `ls -l` date of twelve characters: `Nov 20 08:21` within half a year before `now`,
    /// otherwise `Nov 20  2024`.
    pub fn format_ls(self, now: Self) -> String {
        let t = self.to_civil();
        let age = now.0.saturating_sub(self.0);
        // Times in the future also show the year, as `ls` does.
        let pattern = if (0..HALF_YEAR).contains(&age) {
            format!("{:02}:{:02}", t.hour(), t.minute())
        } else {
            format!(" {:04}", t.year())
        };
        format!("{} {:2} {pattern}", month_name(t.month()), t.day())
    }

    /// The year, between 0 and 9999.
    pub(crate) fn year(self) -> i16 {
        self.to_civil().year()
    }

    fn to_civil(self) -> DateTime {
        let seconds = self.0.clamp(EARLIEST, LATEST);
        EPOCH
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(EPOCH)
    }
}

fn month_name(month: i8) -> &'static str {
    const NAMES: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    usize::try_from(month - 1)
        .ok()
        .and_then(|i| NAMES.get(i))
        .copied()
        .unwrap_or("Jan")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_parsed_and_written() {
        assert_eq!(Timestamp::parse("19700101000000"), Some(Timestamp(0)));
        assert_eq!(
            Timestamp::parse("20261120082103"),
            Some(Timestamp(1_795_162_863))
        );
        assert_eq!(Timestamp(1_795_162_863).format(), "20261120082103");
        assert_eq!(Timestamp::parse("19691231235959.75"), Some(Timestamp(-1)));
        assert_eq!(
            Timestamp::parse("00000101000000"),
            Some(Timestamp(EARLIEST))
        );
        assert_eq!(Timestamp::parse("99991231235959"), Some(Timestamp(LATEST)));
    }

    #[test]
    fn a_leap_second_is_read_as_the_second_before() {
        assert_eq!(
            Timestamp::parse("20161231235960"),
            Timestamp::parse("20161231235959")
        );
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "2026112008210",
            "202611200821030",
            "20261320082103",
            "20260230000000",
            "20261120242103",
            "20261120082161",
            "+0261120082103",
            "2026112008210x",
            "20261120082103.",
            "20261120082103.x",
            "２０２６１１",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn years_beyond_four_digits_are_clamped() {
        assert_eq!(Timestamp(i64::MIN).format(), "00000101000000");
        assert_eq!(Timestamp(i64::MAX).format(), "99991231235959");
    }

    #[test]
    fn ls_dates_show_time_of_day_or_year() {
        let now = Timestamp(1_795_162_863);
        assert_eq!(now.format_ls(now), "Nov 20 08:21");
        assert_eq!(Timestamp(0).format_ls(now), "Jan  1  1970");
        assert_eq!(now.format_ls(Timestamp(now.0 - 1)), "Nov 20  2026");
        assert_eq!(now.format_ls(Timestamp(now.0 + HALF_YEAR)), "Nov 20  2026");
    }
}
