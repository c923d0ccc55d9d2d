//! Evidence of a path: all that a finished transfer learned of it.

use std::time::Duration;

use crate::limiter::Role;
use crate::streams::auto::LimiterVerdict;

/// Measurements of one end of a transfer, whole; or of several transfers, added up.
///
/// Plain figures: whoever keeps or sends them writes them down in a form of its own. Numbers and
/// times of which nothing is known are zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// The end that measured; `None`: nothing moved, or the bytes passed elsewhere.
    pub role: Option<Role>,
    /// Payload bytes moved.
    pub bytes: u64,
    /// How long data was moving: from the first connection to the last byte.
    pub elapsed: Duration,
    /// Data connections that took part.
    pub streams: u64,
    /// Most of them at a time.
    pub peak_streams: u64,
    /// Those at work when the last bytes were handed out (sending in MODE E), or when they were last
    /// looked at.
    pub final_streams: u64,
    /// How long they were open, summed; zero: each for all of `elapsed`.
    pub stream_time: Duration,
    /// Segments sent again.
    pub retransmits: u64,
    /// Smallest round trip seen.
    pub min_rtt: Duration,
    /// Largest smoothed round trip at the end of a stream.
    pub smoothed_rtt: Duration,
    /// Largest buffer that the kernel granted to one stream for the transfer's direction, bytes
    /// (SO_MEMINFO).
    pub buffer_bytes: u64,
    /// Most memory that the sockets of this end held at one moment, bytes, summed over streams
    /// (SO_MEMINFO), of the moments at which all were looked at: several times a second, whoever
    /// sizes the buffers. 0 when nobody looked while data moved, as in a small transfer.
    pub socket_memory_bytes: u64,
    /// Time with data outstanding (sender), the longest of any stream.
    pub busy_time: Duration,
    /// Of that, limited by the peer's window.
    pub rwnd_limited: Duration,
    /// Of that, limited by the send buffer.
    pub sndbuf_limited: Duration,
    /// Stream threads' time in the store, summed. Sending with sendfile reads the store inside the
    /// socket call; that time is in `wire`.
    pub store_time: Duration,
    /// Stream threads' time blocked in the socket, summed.
    pub wire_time: Duration,
    /// Congestion control of this end's streams, as the kernel names it; of several, that of the one
    /// that ended last.
    pub congestion_control: Option<String>,
    /// Verdict of the policy that watched the streams (sender); `None`: nobody watched.
    pub verdict: Option<LimiterVerdict>,
    /// Bytes per second that the transfer was allowed for itself; `None`: any number, or a limit that
    /// it shared with others.
    pub rate_limit: Option<u64>,
}

impl Evidence {
    /// Nothing yet, of this end.
    pub fn for_role(role: Role) -> Self {
        Self {
            role: Some(role),
            ..Self::default()
        }
    }

    /// Adds the accounts of one stream, which moved beside the others. Bytes, time and the number of
    /// streams are the transfer's to count.
    pub fn add_stream(&mut self, one: &Self) {
        self.merge_sums_and_extremes(one);
        self.busy_time = self.busy_time.max(one.busy_time);
        self.rwnd_limited = self.rwnd_limited.max(one.rwnd_limited);
        self.sndbuf_limited = self.sndbuf_limited.max(one.sndbuf_limited);
    }

    /// Adds a transfer after this one, or a further part of the same file. The last word counts where
    /// there can be only one.
    pub fn add_transfer(&mut self, next: &Self) {
        self.role = next.role.or(self.role);
        self.bytes += next.bytes;
        self.elapsed += next.elapsed;
        self.streams = self.streams.max(next.streams);
        self.peak_streams = self.peak_streams.max(next.peak_streams);
        self.final_streams = next.final_streams;
        self.merge_sums_and_extremes(next);
        self.busy_time += next.busy_time;
        self.rwnd_limited += next.rwnd_limited;
        self.sndbuf_limited += next.sndbuf_limited;
        let last = |own: &mut Option<_>, next: &Option<_>| {
            if next.is_some() {
                own.clone_from(next);
            }
        };
        last(&mut self.congestion_control, &next.congestion_control);
        if next.verdict.is_some() {
            self.verdict.clone_from(&next.verdict);
        }
        self.rate_limit = next.rate_limit.or(self.rate_limit);
    }

    fn merge_sums_and_extremes(&mut self, other: &Self) {
        self.stream_time += other.stream_time;
        self.retransmits += other.retransmits;
        self.min_rtt = match (self.min_rtt, other.min_rtt) {
            (Duration::ZERO, rtt) | (rtt, Duration::ZERO) => rtt,
            (one, other) => one.min(other),
        };
        self.smoothed_rtt = self.smoothed_rtt.max(other.smoothed_rtt);
        self.buffer_bytes = self.buffer_bytes.max(other.buffer_bytes);
        self.socket_memory_bytes = self.socket_memory_bytes.max(other.socket_memory_bytes);
        self.store_time += other.store_time;
        self.wire_time += other.wire_time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Limiter;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn one() -> Evidence {
        Evidence {
            bytes: 1000,
            elapsed: ms(100),
            streams: 2,
            peak_streams: 2,
            final_streams: 2,
            stream_time: ms(90),
            retransmits: 3,
            min_rtt: ms(20),
            smoothed_rtt: ms(30),
            buffer_bytes: 4000,
            socket_memory_bytes: 500,
            busy_time: ms(80),
            rwnd_limited: ms(10),
            sndbuf_limited: ms(5),
            store_time: ms(7),
            wire_time: ms(70),
            congestion_control: Some("cubic".to_owned()),
            ..Evidence::for_role(Role::Sender)
        }
    }

    fn other() -> Evidence {
        Evidence {
            min_rtt: Duration::ZERO,
            busy_time: ms(20),
            rwnd_limited: ms(15),
            smoothed_rtt: ms(10),
            congestion_control: None,
            verdict: Some(LimiterVerdict {
                limiter: Limiter::Loss,
                streams: 4,
                congestion_control: "bbr".to_owned(),
                remedy: None,
            }),
            ..one()
        }
    }

    #[test]
    fn streams_wait_at_the_same_time_and_transfers_in_turn() {
        let mut transfer = Evidence::for_role(Role::Sender);
        transfer.add_stream(&one());
        transfer.add_stream(&other());
        assert_eq!(
            (transfer.busy_time, transfer.rwnd_limited),
            (ms(80), ms(15))
        );
        assert_eq!((transfer.bytes, transfer.streams), (0, 0));
        let mut batch = Evidence::default();
        batch.add_transfer(&one());
        batch.add_transfer(&other());
        assert_eq!((batch.busy_time, batch.rwnd_limited), (ms(100), ms(25)));
        assert_eq!((batch.bytes, batch.elapsed), (2000, ms(200)));
        assert_eq!((batch.streams, batch.peak_streams), (2, 2));
        assert_eq!(batch.role, Some(Role::Sender));
        for sum in [&transfer, &batch] {
            assert_eq!(
                (sum.stream_time, sum.store_time, sum.wire_time),
                (ms(180), ms(14), ms(140))
            );
            assert_eq!((sum.min_rtt, sum.smoothed_rtt), (ms(20), ms(30)));
            assert_eq!((sum.retransmits, sum.buffer_bytes), (6, 4000));
        }
    }

    #[test]
    fn the_last_word_counts() {
        let mut batch = one();
        batch.add_transfer(&other());
        assert_eq!(batch.congestion_control.as_deref(), Some("cubic"));
        assert_eq!(batch.verdict.as_ref().unwrap().streams, 4);
        batch.add_transfer(&one());
        assert_eq!(batch.verdict.unwrap().limiter, Limiter::Loss);
    }
}
