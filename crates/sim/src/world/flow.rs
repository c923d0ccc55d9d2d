//! One flow: its application, its two TCPs, and its lanes on the access links.

use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::cross::fraction;
use super::packets::{Lane, interval};
use super::pool::Pool;
use super::{FlowSpec, FlowStats, Source};
use crate::tcp::{Receiver, Segment, Sender};

/// A flow's state.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) spec: FlowSpec,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) lanes: Lanes,
    pub(super) connection: Connection,
    /// The retransmission timer's next event is at this time.
    pub(super) sender_alarm: Option<Duration>,
    /// The next segment's turn, if it is paced.
    pub(super) turn_alarm: Option<Duration>,
    /// The delayed acknowledgement's next event is at this time.
    pub(super) receiver_alarm: Option<Duration>,
    pub(super) drops: u64,
    pub(super) losses: u64,
    pub(super) finished: Option<Duration>,
    /// Bytes that the application has at hand and did not write yet.
    at_hand: u64,
    stopped: bool,
    /// The sending host holds packets back until then.
    held_until: Duration,
    random: Pcg64Mcg,
}

/// One lane for each access link and direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lanes {
    pub(super) from_sender: Lane,
    pub(super) to_receiver: Lane,
    pub(super) from_receiver: Lane,
    pub(super) to_sender: Lane,
}

/// How far the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    /// Not begun.
    Closed,
    /// Asked to open so many times; again at `retry`.
    Opening { tries: u32, retry: Duration },
    /// Data may flow.
    Open,
}

impl Flow {
    pub(super) fn new(spec: FlowSpec, seed: u64) -> Self {
        Self {
            sender: Sender::new(&spec.tcp),
            receiver: Receiver::new(&spec.tcp),
            lanes: Lanes::default(),
            connection: Connection::Closed,
            sender_alarm: None,
            turn_alarm: None,
            receiver_alarm: None,
            drops: 0,
            losses: 0,
            finished: None,
            at_hand: match spec.source {
                Source::Unlimited => u64::MAX,
                Source::Bytes(bytes) => bytes,
                Source::Paced(_) | Source::Pool(_) => 0,
            },
            stopped: false,
            held_until: Duration::ZERO,
            random: Pcg64Mcg::seed_from_u64(seed),
            spec,
        }
    }

    /// The application writes what there is room for; whether it has more.
    pub(super) fn write(&mut self, pools: &mut [Pool]) -> bool {
        loop {
            if self.at_hand == 0 {
                self.at_hand = self.next_block(pools);
            }
            if self.at_hand == 0 {
                self.sender.push();
                return false;
            }
            let bytes = self.at_hand.min(self.sender.room());
            if bytes == 0 {
                return true;
            }
            self.sender.write(bytes);
            if self.spec.source != Source::Unlimited {
                self.at_hand -= bytes;
            }
        }
    }

    fn next_block(&self, pools: &mut [Pool]) -> u64 {
        match self.spec.source {
            Source::Pool(id) if !self.stopped => pools[id.0].take(),
            _ => 0,
        }
    }

    /// The application has made another segment; when it makes the next.
    pub(super) fn make(&mut self, now: Duration) -> Option<Duration> {
        let Source::Paced(rate) = self.spec.source else {
            return None;
        };
        if self.stopped {
            return None;
        }
        let mss = self.spec.tcp.mss.max(1);
        self.at_hand += u64::from(mss);
        Some(now + interval(rate, mss))
    }

    /// The application stops; a block of a pool that was begun is still written.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        if !matches!(self.spec.source, Source::Pool(_)) {
            self.at_hand = 0;
        }
    }

    /// Nothing is left to deliver, and nothing will come.
    pub(super) fn is_over(&self, pools: &[Pool]) -> bool {
        let ended = self.stopped
            || match self.spec.source {
                Source::Bytes(_) => true,
                Source::Pool(id) => pools[id.0].left() == 0,
                Source::Unlimited | Source::Paced(_) => false,
            };
        ended && self.at_hand == 0 && self.sender.is_drained()
    }

    /// When the sending host hands over what TCP sends `now`. What TCP sends while it is held back
    /// goes with it.
    pub(super) fn leaves_host(&mut self, now: Duration) -> Duration {
        if !self.spec.jitter.is_zero() && self.held_until <= now {
            let hold = self.spec.jitter.mul_f64(fraction(&mut self.random));
            self.held_until = now + hold;
        }
        self.held_until.max(now)
    }

    /// A segment's size as an IP packet.
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
            threshold: self.sender.threshold(),
            finished: self.finished,
        }
    }
}
