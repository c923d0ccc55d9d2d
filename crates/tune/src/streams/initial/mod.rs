//! Initial number of streams when only the round trip of the path is known.
//!
//! Slow start doubles the window once per round trip, so that a long path is nearly empty at first. Several
//! streams that start together fill it earlier: over the first two seconds on a path of 1 Gbit/s and 200 ms, one
//! stream averages 20 Mbit/s and eight average 240 Mbit/s. They also make up for each other's loss recovery and
//! for buffers that stop growing. [`auto`](super::auto) later closes the streams that are too many.

use std::time::Duration;

use crate::prior::{MIN_BYTES_PER_STREAM, Prior, part_count};

/// Upper bounds of the round trip and the number of streams below them.
const FIRST: [(Duration, u32); 4] = [
    (Duration::from_millis(5), 1),
    (Duration::from_millis(20), 2),
    (Duration::from_millis(60), 4),
    (Duration::from_millis(120), 8),
];
/// Streams on longer paths.
const LONGEST: u32 = 16;

/// Knowledge for a transfer of `bytes` (if known) in blocks of `block` bytes over a path with round trip
/// `rtt`, as the control connection measured it. Only the number of streams is set: at least 1, at most
/// `most`, and at most one per block or per [`MIN_BYTES_PER_STREAM`], whichever is larger.
pub fn prior_from_rtt(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    let below = |(limit, _): &&(Duration, u32)| rtt < *limit;
    let streams = FIRST.iter().find(below).map_or(LONGEST, |(_, n)| *n);
    // A stream without a whole block of its own would carry nothing.
    let piece = u64::try_from(block)
        .unwrap_or(u64::MAX)
        .max(MIN_BYTES_PER_STREAM);
    Prior::with_streams(streams.min(part_count(bytes, piece)).min(most).max(1))
}

#[cfg(test)]
mod tests;
