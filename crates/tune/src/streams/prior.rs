//! How many parallel streams a transfer opens when nobody says.
//!
//! The static rule: a short path fills from one stream, and a long one is given four, which cover
//! a lost segment's recovery on one of them and buffers that stop growing below the path's
//! bandwidth-delay product. Policies that measure the transfer while it runs refine this.

use std::time::Duration;

/// Paths with a shorter round trip get one stream.
pub const LONG_PATH: Duration = Duration::from_millis(10);
/// Streams on a long path.
pub const LONG_PATH_STREAMS: u32 = 4;

/// Streams for a transfer of `bytes` (if known) over a path with the control connection's round
/// trip `rtt`: 1 below [`LONG_PATH`], else [`LONG_PATH_STREAMS`], and never more than the file has
/// blocks of `block` bytes.
pub fn automatic(rtt: Duration, bytes: Option<u64>, block: usize) -> u32 {
    if rtt < LONG_PATH {
        return 1;
    }
    let blocks = bytes.map_or(u64::MAX, |b| b.div_ceil(block.max(1) as u64));
    u32::try_from(blocks)
        .unwrap_or(u32::MAX)
        .clamp(1, LONG_PATH_STREAMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_path_one_stream() {
        assert_eq!(automatic(Duration::from_micros(9_999), None, 1 << 18), 1);
    }

    #[test]
    fn long_path_four_streams() {
        let rtt = Duration::from_millis(10);
        assert_eq!(automatic(rtt, None, 1 << 18), 4);
        assert_eq!(automatic(rtt, Some(1 << 40), 1 << 18), 4);
    }

    #[test]
    fn no_stream_without_a_block() {
        let rtt = Duration::from_millis(100);
        assert_eq!(automatic(rtt, Some(0), 1 << 18), 1);
        assert_eq!(automatic(rtt, Some((1 << 18) + 1), 1 << 18), 2);
        assert_eq!(automatic(rtt, Some(5), 0), 4);
    }
}
