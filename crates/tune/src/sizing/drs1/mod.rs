//! Receiver of the first drsFTP (2003 paper, §4.1).
//!
//! "Every time the application reads from the network, it attempts to read an entire receive
//! buffer's worth of data. If more data than some threshold value is read, the assumption can be
//! made that the flow-control window should be increased." The machines of the paper emptied the socket about
//! once per round trip; present ones empty it segment by segment. So a read is here the data that arrived within
//! one round trip of the handshake, checked several times per round trip, since windows arrive in bursts. The
//! round trip of the handshake contains no queue. The data that the path carries in it does not depend on
//! the window, so that growth ends with the first size that is not filled.
//!
//! [`Drs1Reads::Published`] is the rule of the paper: single reads, and half of the reported buffer.

use std::time::Duration;

use super::BufferBounds;
use super::arrivals::{ArrivalCounter, ArrivalHistory};
use crate::sample::TcpSample;

/// Shortest read: on shorter paths the hosts' own delays dominate, and samples would cost too much CPU.
const SHORTEST_READ: Duration = Duration::from_millis(10);
/// Length of a read while no round trip is known: the papers' path.
const UNKNOWN_READ: Duration = Duration::from_millis(100);
/// Longest read.
const LONGEST_READ: Duration = Duration::from_secs(2);
/// Samples per read.
const SAMPLES_PER_READ: u32 = 4;
/// Shortest time between samples.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Growth factor of the paper.
const GROWTH: u64 = 4;

/// How the receiving program reads, and which of its reads count (`--drs1-reads`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drs1Reads {
    /// The data that arrives within a round trip counts, however the program reads it.
    #[default]
    RoundTrip,
    /// The same, and each read offers a buffer of twice the kernel's (§4.1): the bytes are copied once more.
    Buffered,
    /// As published: such reads, each of which counts by itself.
    Published,
}

impl Drs1Reads {
    /// All values with their names.
    pub const ALL: [(&str, Self); 3] = [
        ("round-trip", Self::RoundTrip),
        ("buffered", Self::Buffered),
        ("published", Self::Published),
    ];

    /// Whether each read offers a buffer of twice the kernel's.
    pub const fn are_buffered(self) -> bool {
        matches!(self, Self::Buffered | Self::Published)
    }
}

/// Tuner of one stream's receive buffer.
#[derive(Debug, Clone)]
pub struct Drs1ReceiverTuner {
    bounds: BufferBounds,
    reads: Drs1Reads,
    size: u64,
    arrived: ArrivalCounter,
    arrivals: ArrivalHistory,
    read_time: Duration,
    /// Whether the kernel granted less than requested: its limit is reached.
    is_at_kernel_limit: bool,
}

impl Drs1ReceiverTuner {
    /// Tuner of a stream that begins with the initial size.
    pub fn new(bounds: BufferBounds, reads: Drs1Reads) -> Self {
        Self {
            bounds,
            reads,
            size: bounds.initial.min(bounds.largest),
            arrived: ArrivalCounter::default(),
            arrivals: ArrivalHistory::default(),
            read_time: UNKNOWN_READ,
            is_at_kernel_limit: false,
        }
    }

    /// Size in force, bytes: the size requested last, or what the kernel granted of it.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes a sample; returns the new size if the buffer is to grow.
    pub fn on_sample(&mut self, sample: &TcpSample) -> Option<u64> {
        let rtt = sample.rtt_without_queue();
        if !rtt.is_zero() {
            self.read_time = rtt.clamp(SHORTEST_READ, LONGEST_READ);
        }
        let arrived = self.arrived.total_at(sample);
        // Twice the read, because the read slides over the history.
        self.arrivals.record(sample.at, arrived, 2 * self.read_time);
        self.note_grant(sample.receive_buffer);
        // The kernel may have granted more than was requested, and the window follows that.
        let in_force = self.size.max(sample.receive_buffer / 2);
        let full = match self.reads {
            // The size in force is half of what the kernel reports.
            Drs1Reads::Published => sample.largest_read > in_force,
            Drs1Reads::RoundTrip | Drs1Reads::Buffered => {
                self.arrivals.latest(self.read_time) >= threshold(in_force)
            }
        };
        if !full || self.is_at_kernel_limit || self.size >= self.bounds.largest {
            return None;
        }
        self.size = self.size.saturating_mul(GROWTH).min(self.bounds.largest);
        Some(self.size)
    }

    /// Time from the last sample to the next.
    pub fn next_sample_in(&self) -> Duration {
        (self.read_time / SAMPLES_PER_READ).max(SHORTEST_PAUSE)
    }

    /// Notes the granted size; the kernel reports twice that.
    fn note_grant(&mut self, reported: u64) {
        if reported > 0 && reported / 2 < self.size {
            self.size = reported / 2;
            self.is_at_kernel_limit = true;
        }
    }
}

/// Bytes that make a read of a buffer of `size` bytes a full one. The paper's threshold is half of the
/// reported buffer, which is `size`, and that is also the window that the kernel offers at least. A sender
/// that such a window stops sends whole segments only, and a sum over samples may miss a part; an eighth
/// covers both.
fn threshold(size: u64) -> u64 {
    size - size / 8
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "times and sizes are small")]
mod tests;
