//! The re-architected drsFTP's receiver (2004 paper, §3): buffers of twice the bandwidth-delay
//! product, per stream.

use std::time::Duration;

use super::{Bounds, Look, StreamId};

/// All streams of a transfer at its receiving end.
#[derive(Debug, Clone)]
pub struct Drs {
    bounds: Bounds,
}

/// What to do after a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// New receive buffers.
    pub resize: Vec<(StreamId, u64)>,
    /// Send `SBUF <now> <size>`.
    pub announce: Option<u64>,
}

/// How often the bandwidth is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interval {
    /// Follows the round trip and how steady the samples are (the paper's future work, §6).
    #[default]
    Adaptive,
    /// Always so long.
    Fixed(Duration),
}

impl Drs {
    /// A transfer that begins.
    pub fn new(bounds: Bounds, interval: Interval) -> Self {
        let _ = interval;
        Self { bounds }
    }

    /// An echo came back: this long after its message left. What cannot be (zero, a minute) is
    /// ignored.
    pub fn on_echo(&mut self, rtt: Duration) {
        let _ = (rtt, self.bounds);
        todo!("drs")
    }

    /// Looks at all live streams.
    pub fn on_look(&mut self, at: Duration, streams: &[Look]) -> Step {
        let _ = (at, streams);
        todo!("drs")
    }

    /// When the next look is due, after the last.
    pub fn due(&self) -> Duration {
        todo!("drs")
    }

    /// Round trip that is reckoned with; `None`: no echo yet.
    pub fn round_trip(&self) -> Option<Duration> {
        todo!("drs")
    }
}
