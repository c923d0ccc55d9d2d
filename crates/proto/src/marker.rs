//! Restart markers (111), performance markers (112) and checksum status markers (113) (GFD.20 §3.8, §3.9).

use std::collections::BTreeMap;

use crate::ranges::RangeSet;
use crate::reply::Reply;
use crate::stripes::MAX_STRIPES;

/// Performance marker (`112-Perf Marker`): progress of one stripe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerformanceMarker {
    /// Seconds since 1970, sent with one decimal.
    pub timestamp: f64,
    /// Number of the stripe, from 0, in the order of SPAS.
    pub stripe_index: u32,
    /// Bytes that the stripe has transferred.
    pub stripe_bytes: u64,
    /// Number of stripes, at least 1.
    pub stripe_count: u32,
}

/// Most ranges in one 111 reply.
const RANGES_PER_REPLY: usize = 1_000;

impl PerformanceMarker {
    /// The 112 reply, in the exact form of the globus server (two spaces after `Timestamp:`).
    pub fn to_reply(self) -> Reply {
        let inner = vec![
            format!("Timestamp:  {:.1}", self.timestamp).into_bytes(),
            format!("Stripe Index: {}", self.stripe_index).into_bytes(),
            format!("Stripe Bytes Transferred: {}", self.stripe_bytes).into_bytes(),
            format!("Total Stripe Count: {}", self.stripe_count).into_bytes(),
        ];
        Reply::with_inner_lines(112, "Perf Marker", inner, "End.")
    }

    /// Parses a 112 reply; `None` if a field is missing or is not a number.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        match reply.code {
            112 => Self::from_lines(&reply.lines),
            _ => None,
        }
    }

    /// Parses the lines of a marker; `None` if a field is missing or is not a number.
    pub fn from_lines(lines: &[Vec<u8>]) -> Option<Self> {
        Some(Self {
            timestamp: seconds(&field(lines, "Timestamp")?)?,
            stripe_index: number(&field(lines, "Stripe Index")?)?.try_into().ok()?,
            stripe_bytes: number(&field(lines, "Stripe Bytes Transferred")?)?,
            stripe_count: number(&field(lines, "Total Stripe Count")?)?
                .try_into()
                .ok()
                .filter(|count| *count >= 1)?,
        })
    }
}

/// The bytes of all stripes of a transfer, from its performance markers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StripeProgress(BTreeMap<u32, u64>);

impl StripeProgress {
    /// Takes a marker. A peer that invents more than [`MAX_STRIPES`] stripes is not followed.
    pub fn take(&mut self, marker: PerformanceMarker) {
        if self.0.len() < MAX_STRIPES || self.0.contains_key(&marker.stripe_index) {
            self.0.insert(marker.stripe_index, marker.stripe_bytes);
        }
    }

    /// Sum over all stripes, bytes; `None` before the first marker.
    pub fn bytes(&self) -> Option<u64> {
        let sum = self.0.values();
        let sum = sum.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        (!self.0.is_empty()).then_some(sum)
    }
}

/// Restart markers (`111 Range Marker a-b,c-d`) for newly stored ranges. Large sets are split into several
/// replies of at most 1 000 ranges; an empty set gives none.
pub fn range_marker_replies(new: &RangeSet) -> Vec<Reply> {
    let ranges: Vec<_> = new.iter().collect();
    ranges
        .chunks(RANGES_PER_REPLY)
        .map(|chunk| {
            let items: Vec<String> = chunk
                .iter()
                .map(|r| format!("{}-{}", r.start, r.end))
                .collect();
            Reply::new(111, format!("Range Marker {}", items.join(",")))
        })
        .collect()
}

/// Parses the ranges of a 111 reply.
pub fn parse_range_marker(reply: &Reply) -> Option<RangeSet> {
    const RANGE_MARKER_TEXT: &str = "Range Marker";
    if reply.code != 111 {
        return None;
    }
    let text = reply.text();
    let (head, ranges) = text
        .trim_start()
        .split_at_checked(RANGE_MARKER_TEXT.len())?;
    if !head.eq_ignore_ascii_case(RANGE_MARKER_TEXT) {
        return None;
    }
    RangeSet::parse(ranges).ok()
}

/// Status marker (`113-Status Marker`) of a running checksum; `timestamp` in seconds since 1970.
pub fn checksum_marker_reply(timestamp: f64, bytes: u64) -> Reply {
    let inner = vec![
        format!("Timestamp: {timestamp:.1}").into_bytes(),
        format!("Bytes Processed: {bytes}").into_bytes(),
    ];
    Reply::with_inner_lines(113, "Status Marker", inner, "End.")
}

/// Parses the number of processed bytes in a 113 reply.
pub fn parse_checksum_marker(reply: &Reply) -> Option<u64> {
    if reply.code != 113 {
        return None;
    }
    number(&field(&reply.lines, "Bytes Processed")?)
}

/// Value of the line `name: value`; the case of names is ignored.
fn field(lines: &[Vec<u8>], name: &str) -> Option<String> {
    lines.iter().find_map(|line| {
        let line = String::from_utf8_lossy(line);
        let (key, value) = line.split_once(':')?;
        key.trim()
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}

fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Parses digits with at most one dot. `f64::from_str` alone would accept `inf`, `nan` and exponents.
fn seconds(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds: f64 = plain.then(|| text.parse().ok()).flatten()?;
    // Enough digits are infinity.
    seconds.is_finite().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: PerformanceMarker = PerformanceMarker {
        timestamp: 1_795_162_933.7,
        stripe_index: 0,
        stripe_bytes: 3_000_000,
        stripe_count: 1,
    };

    #[test]
    fn a_performance_marker_has_the_form_of_the_globus_server() {
        let mut wire = Vec::new();
        MARKER.to_reply().encode(&mut wire);
        assert_eq!(
            String::from_utf8(wire).unwrap(),
            "112-Perf Marker\r\n Timestamp:  1795162933.7\r\n Stripe Index: 0\r\n \
             Stripe Bytes Transferred: 3000000\r\n Total Stripe Count: 1\r\n112 End.\r\n"
        );
        assert_eq!(
            PerformanceMarker::from_reply(&MARKER.to_reply()),
            Some(MARKER)
        );
    }

    #[test]
    fn an_invalid_performance_marker_is_none() {
        for (line, text) in [
            (1, " Timestamp: inf"),
            (1, " Time: 1.0"),
            (2, " Stripe Index: -1"),
            (2, " Stripe Index: 4294967296"),
            (3, " Stripe Bytes Transferred: "),
            (4, " Total Stripe Count: 0"),
        ] {
            let mut reply = MARKER.to_reply();
            reply.lines[line] = text.as_bytes().to_vec();
            assert_eq!(PerformanceMarker::from_reply(&reply), None, "{text}");
        }
        let other = Reply {
            code: 113,
            ..MARKER.to_reply()
        };
        assert_eq!(PerformanceMarker::from_reply(&other), None);
    }

    #[test]
    fn a_time_beyond_every_number_is_no_marker() {
        let reply = PerformanceMarker {
            timestamp: f64::MAX,
            ..MARKER
        }
        .to_reply();
        assert!(PerformanceMarker::from_reply(&reply).is_some());
        let mut longer = reply;
        longer.lines[1].splice(13..13, *b"9");
        assert_eq!(PerformanceMarker::from_reply(&longer), None);
    }

    #[test]
    fn large_range_sets_are_split_into_several_markers() {
        let mut set = RangeSet::new();
        for n in 0..2_500 {
            set.insert(n * 10, n * 10 + 5);
        }
        let replies = range_marker_replies(&set);
        assert_eq!(replies.len(), 3);
        let mut back = RangeSet::new();
        for reply in &replies {
            back.extend(&parse_range_marker(reply).unwrap());
        }
        assert_eq!(back, set);
        assert!(range_marker_replies(&RangeSet::new()).is_empty());
    }

    #[test]
    fn a_restart_marker_of_the_globus_server_is_parsed() {
        let reply = Reply::new(111, "Range Marker 0-1000,2000-3000");
        let set = parse_range_marker(&reply).unwrap();
        assert_eq!(set.to_string(), "0-1000,2000-3000");
        for text in [
            "Range Marker",
            "Range Marker x",
            "0-1",
            "",
            "Ränge Märke 0-1",
        ] {
            assert_eq!(parse_range_marker(&Reply::new(111, text)), None, "{text}");
        }
    }

    #[test]
    fn a_checksum_marker_is_parsed_back() {
        let reply = checksum_marker_reply(1_795_164_872.0, 369_623_040);
        assert_eq!(reply.lines[1], b" Timestamp: 1795164872.0");
        assert_eq!(parse_checksum_marker(&reply), Some(369_623_040));
        assert_eq!(parse_checksum_marker(&Reply::new(113, "x")), None);
    }
}
