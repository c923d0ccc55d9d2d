//! `SBUF <timestamp> <buffer-size>` (2004 paper, §4).

use std::time::Duration;

use crate::sizing::{MAX_BUFFER, MIN_BUFFER};

/// The one message. The data receiver says what it has done, the data sender repeats the line once
/// it has done the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrsMessage {
    /// When the receiver sent it, by the receiver's clock, which nobody else interprets.
    pub timestamp: Duration,
    /// Size of a stream's socket buffer, bytes as given to setsockopt(2);
    /// [`MIN_BUFFER`]..=[`MAX_BUFFER`] when read.
    pub size: u64,
}

impl DrsMessage {
    /// Reads a line without its ending. The timestamp is in seconds with an optional fraction, of
    /// which nanoseconds count; the verb may be in any case.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let verb = words.next()?;
        let timestamp = seconds(words.next()?)?;
        let size = size(words.next()?)?;
        (verb.eq_ignore_ascii_case("SBUF") && words.next().is_none())
            .then_some(Self { timestamp, size })
    }

    /// Writes the line without its ending, the timestamp to the microsecond.
    pub fn format(&self) -> String {
        let (seconds, micros) = (self.timestamp.as_secs(), self.timestamp.subsec_micros());
        format!("SBUF {seconds}.{micros:06} {}", self.size)
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let nanos = format!("{:0<9.9}", fraction).parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

fn size(text: &str) -> Option<u64> {
    // All digits: what does not fit is too large.
    let size = is_digits(text).then(|| text.parse().unwrap_or(u64::MAX))?;
    Some(size.clamp(MIN_BUFFER, MAX_BUFFER))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
