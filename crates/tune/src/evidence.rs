//! Evidence of a path: all that a finished transfer learned of it.

use std::time::Duration;

use crate::limiter::Role;
use crate::streams::auto::Verdict;

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
    pub streams_most: u64,
    /// Those at work when the last bytes were handed out (sending in MODE E), or when they were last
    /// looked at.
    pub streams_last: u64,
    /// How long they were open, summed; zero: each for all of `elapsed`.
    pub open: Duration,
    /// Segments sent again.
    pub retransmits: u64,
    /// Smallest round trip seen.
    pub min_rtt: Duration,
    /// Largest smoothed round trip at the end of a stream.
    pub rtt: Duration,
    /// Largest buffer that the kernel granted to one stream for the transfer's direction, bytes
    /// (SO_MEMINFO).
    pub buffer_bytes: u64,
    /// Most memory that the sockets of this end held at one moment, bytes, summed over streams
    /// (SO_MEMINFO), of the moments at which all were looked at: several times a second, whoever
    /// sizes the buffers. 0 when nobody looked while data moved, as in a small transfer.
    pub memory_bytes: u64,
    /// Time with data outstanding (sender), the longest of any stream.
    pub busy: Duration,
    /// Of that, limited by the peer's window.
    pub rwnd_limited: Duration,
    /// Of that, limited by the send buffer.
    pub sndbuf_limited: Duration,
    /// Stream threads' time in the store, summed. Sending with sendfile reads the store inside the
    /// socket call; that time is in `wire`.
    pub store: Duration,
    /// Stream threads' time blocked in the socket, summed.
    pub wire: Duration,
    /// Congestion control of this end's streams, as the kernel names it; of several, that of the one
    /// that ended last.
    pub congestion: Option<String>,
    /// Verdict of the policy that watched the streams (sender); `None`: nobody watched.
    pub verdict: Option<Verdict>,
    /// Bytes per second that the transfer was allowed for itself; `None`: any number, or a limit that
    /// it shared with others.
    pub rate_limit: Option<u64>,
}

impl Evidence {
    /// Nothing yet, of this end.
    pub fn of(role: Role) -> Self {
        Self {
            role: Some(role),
            ..Self::default()
        }
    }

    /// Adds the accounts of one stream, which moved beside the others. Bytes, time and the number of
    /// streams are the transfer's to count.
    pub fn add_stream(&mut self, one: &Self) {
        self.add_sums_and_extremes(one);
        self.busy = self.busy.max(one.busy);
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
        self.streams_most = self.streams_most.max(next.streams_most);
        self.streams_last = next.streams_last;
        self.add_sums_and_extremes(next);
        self.busy += next.busy;
        self.rwnd_limited += next.rwnd_limited;
        self.sndbuf_limited += next.sndbuf_limited;
        let last = |own: &mut Option<_>, next: &Option<_>| {
            if next.is_some() {
                own.clone_from(next);
            }
        };
        last(&mut self.congestion, &next.congestion);
        if next.verdict.is_some() {
            self.verdict.clone_from(&next.verdict);
        }
        self.rate_limit = next.rate_limit.or(self.rate_limit);
    }

    fn add_sums_and_extremes(&mut self, other: &Self) {
        self.open += other.open;
        self.retransmits += other.retransmits;
        self.min_rtt = match (self.min_rtt, other.min_rtt) {
            (Duration::ZERO, rtt) | (rtt, Duration::ZERO) => rtt,
            (one, other) => one.min(other),
        };
        self.rtt = self.rtt.max(other.rtt);
        self.buffer_bytes = self.buffer_bytes.max(other.buffer_bytes);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.store += other.store;
        self.wire += other.wire;
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
            streams_most: 2,
            streams_last: 2,
            open: ms(90),
            retransmits: 3,
            min_rtt: ms(20),
            rtt: ms(30),
            buffer_bytes: 4000,
            memory_bytes: 500,
            busy: ms(80),
            rwnd_limited: ms(10),
            sndbuf_limited: ms(5),
            store: ms(7),
            wire: ms(70),
            congestion: Some("cubic".to_owned()),
            ..Evidence::of(Role::Sender)
        }
    }

    fn other() -> Evidence {
        Evidence {
            min_rtt: Duration::ZERO,
            busy: ms(20),
            rwnd_limited: ms(15),
            rtt: ms(10),
            congestion: None,
            verdict: Some(Verdict {
                limiter: Limiter::Loss,
                streams: 4,
                congestion: "bbr".to_owned(),
                remedy: None,
            }),
            ..one()
        }
    }

    #[test]
    fn streams_wait_at_the_same_time_and_transfers_in_turn() {
        let mut transfer = Evidence::of(Role::Sender);
        transfer.add_stream(&one());
        transfer.add_stream(&other());
        assert_eq!((transfer.busy, transfer.rwnd_limited), (ms(80), ms(15)));
        assert_eq!((transfer.bytes, transfer.streams), (0, 0));
        let mut batch = Evidence::default();
        batch.add_transfer(&one());
        batch.add_transfer(&other());
        assert_eq!((batch.busy, batch.rwnd_limited), (ms(100), ms(25)));
        assert_eq!((batch.bytes, batch.elapsed), (2000, ms(200)));
        assert_eq!((batch.streams, batch.streams_most), (2, 2));
        assert_eq!(batch.role, Some(Role::Sender));
        for sum in [&transfer, &batch] {
            assert_eq!((sum.open, sum.store, sum.wire), (ms(180), ms(14), ms(140)));
            assert_eq!((sum.min_rtt, sum.rtt), (ms(20), ms(30)));
            assert_eq!((sum.retransmits, sum.buffer_bytes), (6, 4000));
        }
    }

    #[test]
    fn the_last_word_counts() {
        let mut batch = one();
        batch.add_transfer(&other());
        assert_eq!(batch.congestion.as_deref(), Some("cubic"));
        assert_eq!(batch.verdict.as_ref().unwrap().streams, 4);
        batch.add_transfer(&one());
        assert_eq!(batch.verdict.unwrap().limiter, Limiter::Loss);
    }
}
