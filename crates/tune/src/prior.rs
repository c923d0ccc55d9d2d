//! Knowledge of a path before a transfer has measured anything itself.

use std::time::Duration;

use units::show;

/// Smallest part of a file that is worth a stream of its own, bytes. With less, the handshake costs
/// more than the stream gains.
pub const MIN_BYTES_PER_STREAM: u64 = 256 << 10;

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
    /// Goodput of all streams together on this path, bytes per second. It counts while streams are in
    /// slow start, when the measured rate is too low.
    pub expected_rate: Option<u64>,
    /// Round trip of the path without queues, by which a changed path is recognised.
    pub min_rtt: Option<Duration>,
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
        let streams = self.streams.map(|streams| match streams {
            1 => "1 stream".to_owned(),
            n => format!("{n} streams"),
        });
        let pace = self
            .pacing_rate
            .map(|rate| format!("paced at {}", show::bits(rate.saturating_mul(8))));
        let parts = [streams, self.congestion_control.clone(), pace];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Streams to open for a transfer of `bytes` (if known): at least 1, and at most one per
    /// [`MIN_BYTES_PER_STREAM`]. `None` if the number of streams is unknown.
    pub fn streams_for(&self, bytes: Option<u64>) -> Option<u32> {
        self.streams
            .map(|n| n.min(part_count(bytes, MIN_BYTES_PER_STREAM)).max(1))
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
        let streams = streams.map(|bytes| known.streams_for(bytes));
        assert_eq!(streams, [16, 1, 1, 5, 16].map(Some));
        assert_eq!(Prior::with_streams(0).streams_for(None), Some(1));
        assert_eq!(Prior::default().streams_for(Some(1 << 40)), None);
    }
}
