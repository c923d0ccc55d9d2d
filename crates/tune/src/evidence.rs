//! Measurements of a finished transfer.

use std::time::Duration;

use crate::limiter::{LimiterVerdict, Role};
use crate::prior::PathRate;

/// Measurements of one end of a transfer, or sums over several transfers.
///
/// Plain figures: a store or service chooses its own format for them. Unknown numbers and times are
/// zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// The end that measured; `None` if nothing moved, or if the bytes did not pass through this process.
    pub role: Option<Role>,
    /// Payload bytes moved.
    pub bytes: u64,
    /// Time from the first connection to the last byte.
    pub elapsed: Duration,
    /// Data connections that moved bytes.
    pub streams: u64,
    /// Largest number of streams at one time.
    pub peak_streams: u64,
    /// Streams in use when the last bytes were handed out (sending in MODE E), or at the last sample.
    pub final_streams: u64,
    /// Time that the streams were open, summed; zero means that each was open for all of `elapsed`.
    pub stream_time: Duration,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Smallest round trip of any stream.
    pub min_rtt: Duration,
    /// Largest of the streams' smoothed round trips, each at its stream's end.
    pub smoothed_rtt: Duration,
    /// Largest buffer of one stream in the transfer's direction, bytes as SO_MEMINFO reports it.
    pub buffer_bytes: u64,
    /// Most memory that the sockets of this end held together, bytes (SO_MEMINFO), over all samples of
    /// the transfer. 0 if no sample was taken while data moved, as in a small transfer.
    pub socket_memory_bytes: u64,
    /// Time with data outstanding (sender), the longest of all streams.
    pub busy_time: Duration,
    /// Part of it in which the peer's window was full.
    pub rwnd_limited: Duration,
    /// Part of it in which the send buffer was full.
    pub sndbuf_limited: Duration,
    /// Time that the stream threads spent reading or writing the store, summed. sendfile(2) reads the store
    /// inside the socket call; that time counts as `wire_time`.
    pub store_time: Duration,
    /// Time that the stream threads spent blocked in the socket, summed.
    pub wire_time: Duration,
    /// Time in which the round trips of streams were much longer than the smallest, summed over the streams (receiver;
    /// [`has_long_round_trip`](crate::diagnosis::has_long_round_trip)).
    pub long_rtt_time: Duration,
    /// Congestion control of this end's streams, by its kernel name; if they differ, that of the stream
    /// that ended last.
    pub congestion_control: Option<String>,
    /// Verdict of the policy that tuned the streams (sender); `None` if no policy did.
    pub verdict: Option<LimiterVerdict>,
    /// Pacing rate of all streams together at the end, bytes per second (sender;
    /// [`AutoTuner::pacing_rate`](crate::streams::auto::AutoTuner::pacing_rate)); `None` without pacing.
    pub pacing_rate: Option<u64>,
    /// Rate that the path carried (sender); `None` if no policy estimated it.
    pub path_rate: Option<PathRate>,
    /// Time that the stream threads slept for a rate limit of this end, summed.
    pub throttle_time: Duration,
}

impl Evidence {
    /// Empty evidence of an end with this role.
    pub fn for_role(role: Role) -> Self {
        Self {
            role: Some(role),
            ..Self::default()
        }
    }

    /// Adds one stream of this transfer, which ran at the same time as the others. The caller counts bytes,
    /// time and streams.
    pub fn add_stream(&mut self, one: &Self) {
        self.merge_sums_and_extremes(one);
        // Streams wait at the same time: a sum could exceed the time of the transfer.
        self.busy_time = self.busy_time.max(one.busy_time);
        self.rwnd_limited = self.rwnd_limited.max(one.rwnd_limited);
        self.sndbuf_limited = self.sndbuf_limited.max(one.sndbuf_limited);
    }

    /// Adds a transfer that ran after this one, or a further part of the same file. Where only one value can
    /// be kept, the later one counts.
    pub fn add_transfer(&mut self, next: &Self) {
        self.role = next.role.or(self.role);
        self.bytes += next.bytes;
        self.elapsed += next.elapsed;
        // Transfers in turn reuse connections, so that a sum would count them twice.
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
        self.pacing_rate = next.pacing_rate;
        self.path_rate = next.path_rate.or(self.path_rate);
    }

    fn merge_sums_and_extremes(&mut self, other: &Self) {
        self.stream_time += other.stream_time;
        self.retransmits += other.retransmits;
        self.min_rtt = match (self.min_rtt, other.min_rtt) {
            // Zero is unknown and not the smallest.
            (Duration::ZERO, rtt) | (rtt, Duration::ZERO) => rtt,
            (one, other) => one.min(other),
        };
        self.smoothed_rtt = self.smoothed_rtt.max(other.smoothed_rtt);
        self.buffer_bytes = self.buffer_bytes.max(other.buffer_bytes);
        self.socket_memory_bytes = self.socket_memory_bytes.max(other.socket_memory_bytes);
        self.store_time += other.store_time;
        self.wire_time += other.wire_time;
        self.throttle_time += other.throttle_time;
        self.long_rtt_time += other.long_rtt_time;
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
            throttle_time: ms(3),
            long_rtt_time: ms(60),
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
    fn waiting_times_of_streams_overlap_and_those_of_transfers_add_up() {
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
                (
                    sum.stream_time,
                    sum.store_time,
                    sum.wire_time + sum.long_rtt_time,
                    sum.throttle_time
                ),
                (ms(180), ms(14), ms(140 + 120), ms(6))
            );
            assert_eq!((sum.min_rtt, sum.smoothed_rtt), (ms(20), ms(30)));
            assert_eq!((sum.retransmits, sum.buffer_bytes), (6, 4000));
        }
    }

    #[test]
    fn the_latest_known_congestion_control_and_verdict_are_kept() {
        let mut batch = one();
        batch.add_transfer(&other());
        assert_eq!(batch.congestion_control.as_deref(), Some("cubic"));
        assert_eq!(batch.verdict.as_ref().unwrap().streams, 4);
        batch.add_transfer(&one());
        assert_eq!(batch.verdict.unwrap().limiter, Limiter::Loss);
    }
}
