//! The first drsFTP's receiver (2003 paper, §4.1).
//!
//! "Every time the application reads from the network, it attempts to read an entire receive
//! buffer's worth of data. If more data than some threshold value is read, the assumption can be
//! made that the flow-control window should be increased." The paper's machines emptied the socket
//! about once a round trip; today's empty it segment by segment. So one read is what arrived within
//! one round trip of the handshake, wherever that begins: windows come in bursts, and the sum
//! slides over them several times a round trip. That round trip has no queue in it, and so what the
//! path carries in it stays what it is however large the window: growth ends with the first size
//! that it does not fill.

use std::time::Duration;

use super::BufferBounds;
use super::arrivals::{ArrivalCounter, ArrivalHistory};
use crate::sample::TcpSample;

/// A read takes this long at least: on a short path the ends need longer than the path, and looks
/// should cost nothing to speak of.
const SHORTEST_READ: Duration = Duration::from_millis(10);
/// Time that a read takes while no round trip is known: the papers' path.
const UNKNOWN_READ: Duration = Duration::from_millis(100);
/// Longest believed read.
const LONGEST_READ: Duration = Duration::from_secs(2);
/// Looks in one read.
const LOOKS: u32 = 4;
/// Least time between looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// The paper's factor.
const GROWTH: u64 = 4;

/// One stream's receive buffer.
#[derive(Debug, Clone)]
pub struct Drs1ReceiverTuner {
    bounds: BufferBounds,
    size: u64,
    arrived: ArrivalCounter,
    arrivals: ArrivalHistory,
    round_trip: Duration,
    /// The kernel granted less than was asked for: all that can be had.
    granted_less: bool,
}

impl Drs1ReceiverTuner {
    /// A stream that begins with the initial size.
    pub fn new(bounds: BufferBounds) -> Self {
        Self {
            bounds,
            size: bounds.initial.min(bounds.largest),
            arrived: ArrivalCounter::default(),
            arrivals: ArrivalHistory::default(),
            round_trip: UNKNOWN_READ,
            granted_less: false,
        }
    }

    /// Size in force, bytes: what was asked for last, or what the kernel granted of it.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes a look; the new size if the buffer is to grow.
    pub fn on_sample(&mut self, look: &TcpSample) -> Option<u64> {
        if !look.min_rtt.is_zero() {
            self.round_trip = look.min_rtt.clamp(SHORTEST_READ, LONGEST_READ);
        }
        let arrived = self.arrived.total_at(look);
        self.arrivals.record(look.at, arrived, 2 * self.round_trip);
        self.note_grant(look.receive_buffer);
        let in_force = self.size.max(look.receive_buffer / 2);
        let full = self.arrivals.latest(self.round_trip) >= threshold(in_force);
        if !full || self.granted_less || self.size >= self.bounds.largest {
            return None;
        }
        self.size = self.size.saturating_mul(GROWTH).min(self.bounds.largest);
        Some(self.size)
    }

    /// When the next look is due, after the last.
    pub fn next_sample_in(&self) -> Duration {
        (self.round_trip / LOOKS).max(SHORTEST_PAUSE)
    }

    /// The kernel reports twice what it granted.
    fn note_grant(&mut self, reported: u64) {
        if reported > 0 && reported / 2 < self.size {
            self.size = reported / 2;
            self.granted_less = true;
        }
    }
}

/// How much makes a read of a buffer of `size` bytes a full one. The paper's threshold is half of
/// what Linux reports, which is `size`, and also all that the kernel surely offers as window (half to
/// two thirds of what it reports). A sender that is stopped by such a window sends whole segments
/// only, and a sum over looks may miss some of it; an eighth covers both.
fn threshold(size: u64) -> u64 {
    size - size / 8
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "times and sizes are small")]
mod tests;
