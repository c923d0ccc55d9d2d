//! Content-Range (RFC 9110 §14.4): the bytes in a response, and the complete length.

use crate::ranges::ByteRange;

/// A Content-Range field with unit `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Bytes in the response; `None` if the requested range is not satisfiable (416).
    pub range: Option<ByteRange>,
    /// Length of the complete representation, if known.
    pub complete_length: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes a-b/n`, `bytes a-b/*` or `bytes */n`. Returns `None` for other units and for
    /// invalid ranges: reversed, or beyond the complete length.
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

/// Parses a number of digits only that fits 64 bits.
pub fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start and end of the range, and the complete length.
    type ParsedRange = (Option<(u64, u64)>, Option<u64>);

    fn read(text: &str) -> Option<ParsedRange> {
        let parsed = ContentRange::parse(text)?;
        Some((
            parsed.range.map(|r| (r.start, r.end)),
            parsed.complete_length,
        ))
    }

    #[test]
    fn ranges_are_parsed_with_and_without_complete_length() {
        assert_eq!(read("bytes 0-0/1"), Some((Some((0, 1)), Some(1))));
        assert_eq!(
            read("bytes 42-1233/1234"),
            Some((Some((42, 1234)), Some(1234)))
        );
        assert_eq!(read("Bytes 42-1233/*"), Some((Some((42, 1234)), None)));
        assert_eq!(read("bytes */1234"), Some((None, Some(1234))));
    }

    #[test]
    fn invalid_ranges_are_refused() {
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
