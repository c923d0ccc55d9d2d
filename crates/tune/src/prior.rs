//! Knowledge that a transfer may begin with, before it has measured anything itself.

/// Bytes of a file that are worth a stream of their own: with fewer its handshake costs more than it
/// gains.
pub const MIN_BYTES_PER_STREAM: u64 = 256 << 10;

/// Knowledge of a path before a transfer begins, from a rule, from earlier transfers
/// ([`Evidence`](crate::Evidence)) or from whoever knows the network. Only a beginning: what is
/// measured counts from the first look on. `None`: not known, and the policies begin as they would.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prior {
    /// Streams to open together.
    pub streams: Option<u32>,
    /// Congestion control of the sender's streams, as the kernel names it.
    pub congestion_control: Option<String>,
    /// Most that all streams together send, bytes per second, until the path shows that it carries
    /// more: what keeps its queue short.
    pub pacing_rate: Option<u64>,
    /// Socket buffer of one sending stream, bytes as the kernel reports it (twice what SO_SNDBUF is
    /// given).
    pub send_buffer: Option<u64>,
    /// Payload that all streams together come to on this path, bytes per second. It is believed while
    /// slow starts hide what the path carries.
    pub expected_rate: Option<u64>,
}

impl Prior {
    /// So many streams, and nothing else known.
    pub fn with_streams(streams: u32) -> Self {
        Self {
            streams: Some(streams),
            ..Self::default()
        }
    }

    /// The streams to open for a transfer of `bytes` (if known): at least 1, and no more than it has
    /// pieces of [`MIN_BYTES_PER_STREAM`] bytes; `None`: not known.
    pub fn streams_for(&self, bytes: Option<u64>) -> Option<u32> {
        self.streams
            .map(|n| n.min(part_count(bytes, MIN_BYTES_PER_STREAM)).max(1))
    }
}

/// The pieces of so many bytes that a file of `bytes` (if known) has, the last one included.
pub(crate) fn part_count(bytes: Option<u64>, piece: u64) -> u32 {
    let pieces = bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(piece.max(1)));
    u32::try_from(pieces).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_gets_no_stream_without_a_piece_however_many_are_known_to_be_right() {
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
