//! How large a chunk should be, so that it takes about Δ: equations (13) to (15).

use std::time::Duration;

/// Smallest chunk: less tells of nothing but the command's round trip.
const LEAST: u64 = 64 << 10;
/// Largest chunk.
const MOST: u64 = 1 << 40;
/// Of the first chunk, where eq. (14) lacks W or R.
const BLIND: u64 = 4 << 20;
/// Most by which (13) may expect the goodput to change from one chunk to the next.
const STEEPEST: f64 = 16.0;

/// The sizes of a transfer's chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSizer {
    /// Δ, seconds.
    delta: f64,
    /// Of the chunk that was asked for last.
    latest: u64,
    /// N₋₁ and G(N₋₁), bytes per second.
    last: Option<(u32, f64)>,
    /// G(N₋₂).
    before: Option<f64>,
}

impl ChunkSizer {
    /// Before the first chunk: X = N₀W/R·Δ (eq. 14).
    pub(super) fn new(delta: Duration, streams: u32, window: u64, rtt: Duration) -> Self {
        let delta = delta.as_secs_f64();
        let first = f64::from(streams) * window as f64 / rtt.as_secs_f64() * delta;
        Self {
            delta,
            latest: if window == 0 || rtt.is_zero() {
                BLIND
            } else {
                whole(first)
            },
            last: None,
            before: None,
        }
    }

    /// A chunk over `streams` connections reached `goodput`, bytes per second, above 0.
    pub(super) fn on_chunk(&mut self, streams: u32, goodput: f64) {
        self.before = self.last.map(|(_, goodput)| goodput);
        self.last = Some((streams.max(1), goodput));
    }

    /// The size of the next chunk, over `streams` connections, bytes.
    pub(super) fn next(&mut self, streams: u32) -> u64 {
        if let Some((last_streams, last)) = self.last {
            let expected = match self.before {
                // Equation (13).
                Some(before) => last * (last / before).clamp(1.0 / STEEPEST, STEEPEST),
                // Equation (15).
                None => f64::from(streams) / f64::from(last_streams) * last,
            };
            self.latest = whole(expected * self.delta);
        }
        self.latest
    }
}

/// A number of bytes within bounds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped"
)]
pub(super) fn whole(bytes: f64) -> u64 {
    bytes.clamp(LEAST as f64, MOST as f64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELTA: Duration = Duration::from_secs(10);

    #[test]
    fn the_first_three_chunks() {
        let mut sizes = ChunkSizer::new(DELTA, 2, 64_000, Duration::from_millis(20));
        // Two windows of 64 kB, 500 times.
        assert_eq!(sizes.next(2), 64_000_000);
        sizes.on_chunk(2, 6e6);
        // Twice the streams, twice the goodput.
        assert_eq!(sizes.next(4), 120_000_000);
        sizes.on_chunk(4, 9e6);
        // It has grown by half, and is expected to do so again.
        assert_eq!(sizes.next(8), 135_000_000);
    }

    #[test]
    fn without_window_or_round_trip_a_few_megabytes() {
        let rtt = Duration::from_millis(20);
        assert_eq!(ChunkSizer::new(DELTA, 1, 0, rtt).next(1), BLIND);
        assert_eq!(ChunkSizer::new(DELTA, 1, 1, Duration::ZERO).next(1), BLIND);
    }

    #[test]
    fn a_jump_is_not_believed_whole() {
        let mut sizes = ChunkSizer::new(DELTA, 1, 0, Duration::ZERO);
        sizes.on_chunk(1, 1.0);
        sizes.on_chunk(1, 1e6);
        assert_eq!(sizes.next(1), 160_000_000);
        sizes.on_chunk(1, 1.0);
        assert_eq!(sizes.next(1), LEAST);
    }

    proptest! {
        #[test]
        fn always_within_bounds(
            window: u64, rtt in 0_u64..1 << 40, chunks in prop::collection::vec((any::<u32>(), 1e-300..1e300_f64), 0..20),
        ) {
            let mut sizes = ChunkSizer::new(DELTA, 1, window, Duration::from_nanos(rtt));
            for (streams, goodput) in chunks {
                let size = sizes.next(streams);
                prop_assert!((LEAST..=MOST).contains(&size), "{size}");
                sizes.on_chunk(streams, goodput);
            }
        }
    }
}
