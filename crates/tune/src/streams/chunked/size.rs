//! Size of a chunk that takes about the time Δ: equations (13) to (15).

use std::time::Duration;

/// Smallest chunk, bytes: the time of a smaller one is mostly the round trip of its command.
const MIN_CHUNK: u64 = 64 << 10;
/// Largest chunk, bytes.
const MAX_CHUNK: u64 = 1 << 40;
/// First chunk if W or R of eq. (14) is unknown, bytes.
const DEFAULT_CHUNK: u64 = 4 << 20;
/// Largest factor by which (13) may extrapolate goodput from one chunk to the next.
const MAX_EXTRAPOLATION: f64 = 16.0;

/// Sizes of a transfer's chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSizer {
    /// Δ, seconds.
    delta: f64,
    /// Size of the latest chunk, bytes.
    latest_size: u64,
    /// N₋₁ and G(N₋₁), bytes per second.
    latest_goodput: Option<(u32, f64)>,
    /// G(N₋₂).
    goodput_before: Option<f64>,
}

impl ChunkSizer {
    /// State before the first chunk, whose size is X = N₀W/R·Δ (eq. 14).
    pub(super) fn new(delta: Duration, streams: u32, window: u64, rtt: Duration) -> Self {
        let delta = delta.as_secs_f64();
        let first = f64::from(streams) * window as f64 / rtt.as_secs_f64() * delta;
        Self {
            delta,
            latest_size: if window == 0 || rtt.is_zero() {
                DEFAULT_CHUNK
            } else {
                whole_bytes(first)
            },
            latest_goodput: None,
            goodput_before: None,
        }
    }

    /// Takes the goodput of a chunk over `streams` connections, bytes per second, above 0.
    pub(super) fn on_chunk(&mut self, streams: u32, goodput: f64) {
        self.goodput_before = self.latest_goodput.map(|(_, goodput)| goodput);
        self.latest_goodput = Some((streams.max(1), goodput));
    }

    /// Size of the next chunk over `streams` connections, bytes.
    pub(super) fn next(&mut self, streams: u32) -> u64 {
        if let Some((last_streams, latest_goodput)) = self.latest_goodput {
            let expected = match self.goodput_before {
                // Equation (13).
                Some(goodput_before) => {
                    latest_goodput
                        * (latest_goodput / goodput_before)
                            .clamp(1.0 / MAX_EXTRAPOLATION, MAX_EXTRAPOLATION)
                }
                // Equation (15).
                None => f64::from(streams) / f64::from(last_streams) * latest_goodput,
            };
            self.latest_size = whole_bytes(expected * self.delta);
        }
        self.latest_size
    }
}

/// Whole bytes within the bounds of a chunk.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped"
)]
pub(super) fn whole_bytes(bytes: f64) -> u64 {
    bytes.clamp(MIN_CHUNK as f64, MAX_CHUNK as f64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELTA: Duration = Duration::from_secs(10);

    #[test]
    fn the_first_three_chunks_follow_equations_14_15_and_13() {
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
    fn the_first_chunk_has_a_default_size_if_window_or_round_trip_is_unknown() {
        let rtt = Duration::from_millis(20);
        assert_eq!(ChunkSizer::new(DELTA, 1, 0, rtt).next(1), DEFAULT_CHUNK);
        assert_eq!(
            ChunkSizer::new(DELTA, 1, 1, Duration::ZERO).next(1),
            DEFAULT_CHUNK
        );
    }

    #[test]
    fn a_jump_of_goodput_is_extrapolated_within_bounds_only() {
        let mut sizes = ChunkSizer::new(DELTA, 1, 0, Duration::ZERO);
        sizes.on_chunk(1, 1.0);
        sizes.on_chunk(1, 1e6);
        assert_eq!(sizes.next(1), 160_000_000);
        sizes.on_chunk(1, 1.0);
        assert_eq!(sizes.next(1), MIN_CHUNK);
    }

    proptest! {
        #[test]
        fn every_size_is_within_its_bounds(
            window: u64, rtt in 0_u64..1 << 40, chunks in prop::collection::vec((any::<u32>(), 1e-300..1e300_f64), 0..20),
        ) {
            let mut sizes = ChunkSizer::new(DELTA, 1, window, Duration::from_nanos(rtt));
            for (streams, goodput) in chunks {
                let size = sizes.next(streams);
                prop_assert!((MIN_CHUNK..=MAX_CHUNK).contains(&size), "{size}");
                sizes.on_chunk(streams, goodput);
            }
        }
    }
}
