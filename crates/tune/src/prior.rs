//! Knowledge of a path before a transfer has measured anything itself.

use std::time::Duration;

use units::{bytes_in, show};

/// Smallest part of a file that is worth a stream of its own, bytes. With less, the handshake costs
/// more than the stream gains.
pub const MIN_BYTES_PER_STREAM: u64 = 256 << 10;

/// Segments of the first window (RFC 6928), and the payload of one over Ethernet, bytes.
const INITIAL_WINDOW: u64 = 10 * 1448;
/// Part of the time of a transfer that a saved round trip must be worth, for twice the streams: on real sockets, 128 streams instead of 16 made 2.9 s
/// of 192 MB at 100 ms 3.6 s.
const WORTHWHILE_PART: u32 = 30;
/// Smallest part of a file for a stream that only helps to start, bytes: a few windows.
const LEAST_PART: u64 = 64 << 10;
/// Most streams that only help to start: the usual number of the longest paths.
const MOST_TO_START: u32 = 32;
/// Factor by which a path may be faster than something else has let it show, and by which streams are then multiplied at most.
const HIDDEN: (u64, u32) = (4, 8);

/// Payload rate that a path has carried for one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRate {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// No more is to be expected: packets queued at that rate, or a tuner had the time to find more. Otherwise something else, such
    /// as slow start, has limited.
    pub is_full: bool,
}

/// Factor and difference by which round trips of one path never differ.
const SAME_ROUND_TRIP: (f64, Duration) = (1.5, Duration::from_millis(5));

/// Whether these round trips are not of one path: they differ by more than half and 5 ms.
pub fn is_other_round_trip(one: Duration, other: Duration) -> bool {
    let (factor, plus) = SAME_ROUND_TRIP;
    one.max(other) > one.min(other).mul_f64(factor).saturating_add(plus)
}

/// Knowledge of a path before a transfer begins: from a rule, from earlier transfers
/// ([`Evidence`](crate::Evidence)) or from an operator. It only sets the start; measurements count from
/// the first sample on. A field that is `None` is unknown, and the policies use their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prior {
    /// Streams to open together.
    pub streams: Option<u32>,
    /// Congestion control of the sender's streams, by its kernel name.
    pub congestion_control: Option<String>,
    /// Pacing rate of all streams together, bytes per second, until the path proves faster. It keeps the
    /// bottleneck queue short.
    pub pacing_rate: Option<u64>,
    /// Send buffer of one stream, bytes as the kernel reports it (twice the value given to SO_SNDBUF).
    pub send_buffer: Option<u64>,
    /// Rate that the path has carried. It counts while streams are in slow start, when the measured rate is too low.
    pub path_rate: Option<PathRate>,
    /// Round trip of the path without queues, by which a changed path is recognised.
    pub min_rtt: Option<Duration>,
    /// No other file moves, and none has moved, so that no connection is past its slow start: streams may help to start.
    pub is_alone: bool,
}

impl Prior {
    /// A number of streams; nothing else is known.
    pub fn with_streams(streams: u32) -> Self {
        Self {
            streams: Some(streams),
            ..Self::default()
        }
    }

    /// The settings to begin with, for people: `12 streams, bbr`. `None` if there are none.
    pub fn describe_settings(&self) -> Option<String> {
        let streams = self.streams.map(|streams| show::count(streams, "stream"));
        let pace = self
            .pacing_rate
            .map(|rate| format!("paced at {}", show::bits(rate.saturating_mul(8))));
        let parts = [streams, self.congestion_control.clone(), pace];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Streams to open for a transfer of `bytes` (if known): at least 1, and at most one per
    /// [`MIN_BYTES_PER_STREAM`]; more than the path needs later, where the transfer is alone and their slow starts save a good part of its time.
    /// `usual`: the number if none is known.
    pub fn first_streams(&self, bytes: Option<u64>, usual: u32) -> u32 {
        let known = self.streams.map_or(usual.max(1), |n| {
            n.min(part_count(bytes, MIN_BYTES_PER_STREAM)).max(1)
        });
        let (Some(path), Some(rtt), Some(bytes)) = (self.path_rate, self.min_rtt, bytes) else {
            return known;
        };
        if !self.is_alone {
            return known;
        }
        let (hidden, growth) = if path.is_full { (1, u32::MAX) } else { HIDDEN };
        let rate = path.bytes_per_second.saturating_mul(hidden).max(1);
        // Their first windows fill the path. More would overrun it.
        let most = u32::try_from(bytes_in(rate, rtt) / INITIAL_WINDOW).unwrap_or(u32::MAX);
        let most = most
            .min(part_count(Some(bytes), LEAST_PART))
            .min(MOST_TO_START);
        let most = most.min(known.saturating_mul(growth));
        let time = Duration::try_from_secs_f64(bytes as f64 / rate as f64).unwrap_or(Duration::MAX);
        let mut streams = known;
        // Slow start takes a round trip less with twice the streams.
        while streams.saturating_mul(2) <= most
            && rtt.saturating_mul(WORTHWHILE_PART) >= time.saturating_add(rtt.saturating_mul(4))
        {
            streams *= 2;
        }
        streams
    }
}

/// Number of parts of `piece` bytes in a file of `bytes` (if known), rounded up.
pub(crate) fn part_count(bytes: Option<u64>, piece: u64) -> u32 {
    let pieces = bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(piece.max(1)));
    u32::try_from(pieces).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_described_and_other_knowledge_is_not() {
        let known = Prior {
            congestion_control: Some("bbr".to_owned()),
            pacing_rate: Some(12_500_000),
            ..Prior::with_streams(12)
        };
        let text = known.describe_settings().unwrap();
        assert_eq!(text, "12 streams, bbr, paced at 100 Mbit/s");
        let rtt_alone = Prior {
            min_rtt: Some(Duration::from_millis(1)),
            ..Prior::default()
        };
        assert_eq!(rtt_alone.describe_settings(), None);
    }

    #[test]
    fn a_small_file_gets_at_most_one_stream_per_256_kib() {
        let known = Prior::with_streams(16);
        let streams = [
            None,
            Some(0),
            Some(MIN_BYTES_PER_STREAM),
            Some(5 * MIN_BYTES_PER_STREAM),
            Some(1 << 40),
        ];
        let streams = streams.map(|bytes| known.first_streams(bytes, 8));
        assert_eq!(streams, [16, 1, 1, 5, 16]);
        assert_eq!(Prior::with_streams(0).first_streams(None, 8), 1);
        assert_eq!(Prior::default().first_streams(Some(1 << 40), 8), 8);
        let absurd = Prior {
            path_rate: Some(PathRate {
                bytes_per_second: u64::MAX,
                is_full: false,
            }),
            min_rtt: Some(Duration::from_micros(u64::MAX)),
            is_alone: true,
            ..Prior::with_streams(0)
        };
        assert_eq!(absurd.first_streams(Some(u64::MAX), 0), 8);
    }

    #[test]
    fn a_short_transfer_over_a_known_path_begins_with_streams_that_fill_it() {
        let first = |kilobytes: u64, is_full: bool| {
            let known = Prior {
                // 29 first windows are under way in 50 ms.
                path_rate: Some(PathRate {
                    bytes_per_second: 8_400_000,
                    is_full,
                }),
                min_rtt: Some(Duration::from_millis(50)),
                is_alone: true,
                ..Prior::with_streams(2)
            };
            let beside_others = Prior {
                is_alone: false,
                ..known.clone()
            };
            assert!(beside_others.first_streams(Some(kilobytes * 1000), 8) <= 2);
            known.first_streams(Some(kilobytes * 1000), 8)
        };
        assert_eq!(first(10_000, true), 16);
        // A round trip is less than three per cent of a minute.
        assert_eq!(first(500_000, true), 2);
        // Nobody knows how much faster the path is.
        assert_eq!(first(10_000, false), 16);
        assert_eq!(first(500, true), 8);
    }
}
