//! `YYYYMMDDhhmmss` in UTC, as in MDTM, MFMT, SITE UTIME and the `Modify` fact (RFC 3659 §2.3).

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads fourteen digits, optionally followed by `.` and a fraction, which is dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let _ = text;
        todo!()
    }

    /// Writes fourteen digits. Years outside 0..=9999 are clamped.
    pub fn format(self) -> String {
        todo!()
    }

    /// The `ls -l` date: `Nov 20 08:21` when within half a year of `now`, else `Nov 20  2024`.
    pub fn format_ls(self, now: Self) -> String {
        let _ = now;
        todo!()
    }
}
