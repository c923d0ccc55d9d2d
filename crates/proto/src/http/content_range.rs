//! Content-Range (RFC 9110 §14.4): which bytes a reply carries, of how many.

use crate::ranges::ByteRange;

/// A Content-Range field in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes that follow; `None` when the range that was asked for cannot be had (416).
    pub range: Option<ByteRange>,
    /// Length of the whole representation, if told.
    pub complete_length: Option<u64>,
}

impl ContentRange {
    /// Reads `bytes a-b/n`, `bytes a-b/*` or `bytes */n`. `None` for other units and for what makes no
    /// sense: an end before its start, or beyond the whole.
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, complete) = rest.trim().split_once('/')?;
        let complete = match complete {
            "*" => None,
            digits => Some(parse_number(digits)?),
        };
        if range == "*" {
            return complete.map(|_| Self {
                range: None,
                complete_length: complete,
            });
        }
        let (first, last) = range.split_once('-')?;
        let end = parse_number(last)?.checked_add(1)?;
        let range = ByteRange::new(parse_number(first)?, end)?;
        complete.is_none_or(|all| end <= all).then_some(Self {
            range: Some(range),
            complete_length: complete,
        })
    }
}

/// Digits alone, of a number that fits.
pub fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First byte and end, and the whole.
    type ParsedRange = (Option<(u64, u64)>, Option<u64>);

    fn read(text: &str) -> Option<ParsedRange> {
        let told = ContentRange::parse(text)?;
        Some((told.range.map(|r| (r.start, r.end)), told.complete_length))
    }

    #[test]
    fn ranges_are_read_with_and_without_the_whole() {
        assert_eq!(read("bytes 0-0/1"), Some((Some((0, 1)), Some(1))));
        assert_eq!(
            read("bytes 42-1233/1234"),
            Some((Some((42, 1234)), Some(1234)))
        );
        assert_eq!(read("Bytes 42-1233/*"), Some((Some((42, 1234)), None)));
        assert_eq!(read("bytes */1234"), Some((None, Some(1234))));
    }

    #[test]
    fn nonsense_is_no_range() {
        for text in [
            "",
            "bytes",
            "bytes */*",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes +0-1/10",
            "bytes 0-1",
            "bytes 0-1/",
            "bytes -1/10",
            "items 0-1/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-99999999999999999999/*",
            "bytes=0-1/10",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
