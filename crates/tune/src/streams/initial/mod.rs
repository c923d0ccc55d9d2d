//! Initial number of streams when only the round trip of the path is known.
//!
//! Slow start doubles the window once per round trip, so that a long path is nearly empty at first. Several
//! streams that start together fill it earlier: over the first two seconds on a path of 1 Gbit/s and 200 ms, one
//! stream averages 20 Mbit/s and eight average 240 Mbit/s. They also make up for each other's loss recovery and
//! for buffers that stop growing. [`auto`](super::auto) later closes the streams that are too many.

use std::time::Duration;

use crate::prior::{MIN_BYTES_PER_STREAM, Prior, part_count};

/// Upper bounds of the round trip and the number of streams below them, where the sender adapts the number: the league
/// (docs/simulator.md) loses more by a late start than by streams that are closed again.
const FIRST: [(Duration, u32); 4] = [
    (Duration::from_micros(200), 1),
    (Duration::from_millis(5), 4),
    (Duration::from_millis(20), 8),
    (Duration::from_millis(120), 16),
];
/// The same for programs that are advised and keep the number.
const ADVISED: [(Duration, u32); 4] = [
    (Duration::from_millis(5), 1),
    (Duration::from_millis(20), 2),
    (Duration::from_millis(60), 4),
    (Duration::from_millis(120), 8),
];
/// The same where another sender keeps the number.
const FIRST_FIXED: [(Duration, u32); 2] = [
    (Duration::from_millis(5), 1),
    (Duration::from_millis(15), 8),
];
/// Streams on longer paths: where the sender adapts, and where it does not.
const LONGEST: u32 = 32;
const LONGEST_FIXED: u32 = 16;

/// Knowledge for a transfer of `bytes` (if known) in blocks of `block` bytes over a path with round trip
/// `rtt`, as the control connection measured it. Only the number of streams is set: at least 1, at most
/// `most`, and at most one per block or per [`MIN_BYTES_PER_STREAM`], whichever is larger.
pub fn prior_from_rtt(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    prior_with(number_by_rtt(&FIRST, LONGEST, rtt), bytes, block, most)
}

/// Files of fewer bytes end before an adaptation to a short path would pay off.
pub const ADAPT_FROM: u64 = 16 << 20;
/// From this round trip on, slow start takes much of the time of a small file. Chosen with the league.
const SLOW_START_COUNTS: Duration = Duration::from_millis(1);

/// As [`prior_from_rtt`], for a sender that adapts the number; small files on short paths get that of [`advised_from_rtt`].
pub fn adapting_from_rtt(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    let is_small = bytes.is_some_and(|bytes| bytes < ADAPT_FROM);
    let rule = if is_small && rtt < SLOW_START_COUNTS {
        advised_from_rtt
    } else {
        prior_from_rtt
    };
    rule(rtt, bytes, block, most)
}

/// As [`prior_from_rtt`], for a program that is advised, and keeps the number on a path that may be full.
pub fn advised_from_rtt(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    prior_with(
        number_by_rtt(&ADVISED, LONGEST_FIXED, rtt),
        bytes,
        block,
        most,
    )
}

/// As [`prior_from_rtt`], for a sender that keeps the number it is told and cannot close what is too much.
/// It begins with more: the first losses decide within seconds what too few streams would cost, and more
/// streams come only with further sessions.
pub fn fixed_from_rtt(rtt: Duration, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    prior_with(
        number_by_rtt(&FIRST_FIXED, LONGEST_FIXED, rtt),
        bytes,
        block,
        most,
    )
}

fn number_by_rtt(bounds: &[(Duration, u32)], longest: u32, rtt: Duration) -> u32 {
    let below = |(limit, _): &&(Duration, u32)| rtt < *limit;
    bounds.iter().find(below).map_or(longest, |(_, n)| *n)
}

fn prior_with(streams: u32, bytes: Option<u64>, block: usize, most: u32) -> Prior {
    // A stream without a whole block of its own would carry nothing.
    let piece = u64::try_from(block)
        .unwrap_or(u64::MAX)
        .max(MIN_BYTES_PER_STREAM);
    Prior::with_streams(streams.min(part_count(bytes, piece)).min(most).max(1))
}

#[cfg(test)]
mod tests;
