//! `SBUF <timestamp> <buffer-size>` (2004 paper, §4).

use std::time::Duration;

use crate::sizing::{MAX_BUFFER, MIN_BUFFER};

/// The only message of the protocol. The data receiver announces its buffer size; the data sender
/// applies it and echoes the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrsMessage {
    /// Time at which the receiver sent it, on the receiver's clock. The sender does not interpret it.
    pub timestamp: Duration,
    /// Socket buffer size of a stream, bytes as passed to setsockopt(2). Parsed sizes are clamped to
    /// [`MIN_BUFFER`]..=[`MAX_BUFFER`].
    pub size: u64,
}

impl DrsMessage {
    /// Parses a line without its ending. The timestamp is in seconds with an optional fraction, cut to
    /// nanoseconds. The case of the verb is ignored.
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
    // Pads or truncates the fraction to nine digits.
    let nanos = format!("{:0<9.9}", fraction).parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

fn size(text: &str) -> Option<u64> {
    // The text is all digits, so parsing fails only for numbers that are too large.
    let size = is_digits(text).then(|| text.parse().unwrap_or(u64::MAX))?;
    Some(size.clamp(MIN_BUFFER, MAX_BUFFER))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
