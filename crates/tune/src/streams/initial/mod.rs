//! How many streams a transfer opens where nothing is known of its path but the round trip.
//!
//! A slow start doubles the window once a round trip, so that a long path is nearly empty at first:
//! several streams that start together fill it earlier (20 Mbit/s with one and 240 with eight in the
//! first two seconds of a path of 1 Gbit/s and 200 ms). They also cover for a lost segment's recovery,
//! and for buffers that stop growing. What is too many later is given back by [`auto`](super::auto).

use std::time::Duration;

use crate::prior::{MIN_BYTES_PER_STREAM, Prior, part_count};

/// Round trips up to which a number of streams is right, and that number.
const FIRST: [(Duration, u32); 4] = [
    (Duration::from_millis(5), 1),
    (Duration::from_millis(20), 2),
    (Duration::from_millis(60), 4),
    (Duration::from_millis(120), 8),
];
/// Streams on longer paths.
const LONGEST: u32 = 16;

/// Streams to open together for a transfer of `bytes` (if known) in blocks of `block` bytes, over a
/// path with the control connection's round trip `rtt`: at least 1, at most `most`, never more than
/// the file has blocks or [pieces](PIECE), whichever are larger. Nothing else is known.
pub fn prior_from_rtt(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    let below = |(limit, _): &&(Duration, u32)| rtt < *limit;
    let streams = FIRST.iter().find(below).map_or(LONGEST, |(_, n)| *n);
    let piece = u64::try_from(block)
        .unwrap_or(u64::MAX)
        .max(MIN_BYTES_PER_STREAM);
    Prior::with_streams(streams.min(part_count(bytes, piece)).min(most).max(1))
}

#[cfg(test)]
mod tests;
