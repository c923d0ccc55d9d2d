//! One flow: its application, its TCP sender and receiver, and its queues at the access links.

use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::cross::uniform;
use super::packets::{AccessQueue, packet_interval};
use super::pool::BytePool;
use super::{FlowSpec, FlowStats, TrafficSource};
use crate::tcp::{Segment, TcpReceiver, TcpSender};

/// The state of a flow.
#[derive(Debug)]
pub(super) struct SimFlow {
    pub(super) spec: FlowSpec,
    pub(super) sender: TcpSender,
    pub(super) receiver: TcpReceiver,
    pub(super) access_queues: AccessQueues,
    pub(super) connection: ConnectionState,
    /// Time of the scheduled event for the retransmission timer.
    pub(super) sender_timer_at: Option<Duration>,
    /// Time of the scheduled event for pacing.
    pub(super) pacing_timer_at: Option<Duration>,
    /// Time of the scheduled event for the delayed acknowledgement.
    pub(super) receiver_timer_at: Option<Duration>,
    /// Timestamp of the latest packet from the receiver, which segments return to it (RFC 7323 section 3).
    pub(super) echo: Option<Duration>,
    pub(super) drops: u64,
    pub(super) losses: u64,
    pub(super) finished: Option<Duration>,
    /// Bytes that the application has and did not write yet.
    unwritten_bytes: u64,
    stopped: bool,
    /// End of the current random delay in the sending host.
    held_until: Duration,
    random: Pcg64Mcg,
}

/// The queues of both access links in both directions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AccessQueues {
    pub(super) from_sender: AccessQueue,
    pub(super) to_receiver: AccessQueue,
    pub(super) from_receiver: AccessQueue,
    pub(super) to_sender: AccessQueue,
}

/// State of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// The flow has not started.
    Closed,
    /// The connection request was sent `tries` times and is repeated at `retry`.
    Opening { tries: u32, retry: Duration },
    /// The connection is open.
    Open,
}

impl SimFlow {
    pub(super) fn new(spec: FlowSpec, seed: u64) -> Self {
        Self {
            sender: TcpSender::new(&spec.tcp),
            receiver: TcpReceiver::new(&spec.tcp),
            access_queues: AccessQueues::default(),
            connection: ConnectionState::Closed,
            sender_timer_at: None,
            pacing_timer_at: None,
            receiver_timer_at: None,
            echo: None,
            drops: 0,
            losses: 0,
            finished: None,
            unwritten_bytes: match spec.source {
                // Never decremented; see `write`.
                TrafficSource::Unlimited => u64::MAX,
                TrafficSource::Bytes(bytes) => bytes,
                TrafficSource::Paced(_) | TrafficSource::Pool(_) => 0,
            },
            stopped: false,
            held_until: Duration::ZERO,
            random: Pcg64Mcg::seed_from_u64(seed),
            spec,
        }
    }

    /// Lets the application write as much as the sender accepts; returns whether it has more.
    pub(super) fn write(&mut self, pools: &mut [BytePool]) -> bool {
        loop {
            if self.unwritten_bytes == 0 {
                // A new block only when the previous one is written: so a slow flow takes fewer blocks.
                self.unwritten_bytes = self.next_block(pools);
            }
            if self.unwritten_bytes == 0 {
                self.sender.push();
                return false;
            }
            let bytes = self.unwritten_bytes.min(self.sender.writable_bytes());
            if bytes == 0 {
                return true;
            }
            self.sender.write(bytes);
            // An endless source stays at `u64::MAX`.
            if self.spec.source != TrafficSource::Unlimited {
                self.unwritten_bytes -= bytes;
            }
        }
    }

    fn next_block(&self, pools: &mut [BytePool]) -> u64 {
        match self.spec.source {
            TrafficSource::Pool(id) if !self.stopped => pools[id.0].take(),
            _ => 0,
        }
    }

    /// Produces another segment of a source with a rate; returns the time of the next one.
    pub(super) fn produce_segment(&mut self, now: Duration) -> Option<Duration> {
        let TrafficSource::Paced(rate) = self.spec.source else {
            return None;
        };
        if self.stopped {
            return None;
        }
        let mss = self.spec.tcp.mss.max(1);
        self.unwritten_bytes += u64::from(mss);
        Some(now + packet_interval(rate, mss))
    }

    /// Stops the application. A block that was taken from a pool is still written.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        // A block that was taken from a pool must be delivered, because no other flow has it.
        if !matches!(self.spec.source, TrafficSource::Pool(_)) {
            self.unwritten_bytes = 0;
        }
    }

    /// Whether all data was delivered and no more will be written.
    pub(super) fn is_over(&self, pools: &[BytePool]) -> bool {
        let ended = self.stopped
            || match self.spec.source {
                TrafficSource::Bytes(_) => true,
                TrafficSource::Pool(id) => pools[id.0].left() == 0,
                TrafficSource::Unlimited | TrafficSource::Paced(_) => false,
            };
        ended && self.unwritten_bytes == 0 && self.sender.is_fully_acked()
    }

    /// Time at which a segment that TCP sends `now` leaves the sending host. Segments sent during a random
    /// delay leave together at its end, so their order is kept.
    pub(super) fn leaves_host(&mut self, now: Duration) -> Duration {
        if !self.spec.jitter.is_zero() && self.held_until <= now {
            let hold = self.spec.jitter.mul_f64(uniform(&mut self.random));
            self.held_until = now + hold;
        }
        self.held_until.max(now)
    }

    /// Size of a segment as an IP packet, bytes.
    pub(super) fn packet_bytes(&self, segment: &Segment) -> u32 {
        segment.bytes + self.spec.tcp.headers
    }

    pub(super) fn stats(&self, now: Duration) -> FlowStats {
        FlowStats {
            at: now,
            delivered_bytes: self.receiver.delivered_bytes(),
            sender: self.sender.stats(now),
            duplicates: self.receiver.duplicates(),
            drops: self.drops,
            losses: self.losses,
            cwnd: self.sender.cwnd(),
            ssthresh: self.sender.ssthresh(),
            receive_window: self.receiver.window() * u64::from(self.spec.tcp.mss),
            in_flight: self.sender.in_flight(),
            finished: self.finished,
        }
    }
}
