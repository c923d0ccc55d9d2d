//! A GridFTP transfer on the simulated clock, steered by the code that steers real ones.
//!
//! A control connection measures the path, `tune::streams` says how many streams to open, they
//! share the file block by block, and `tune::limiter` judges at the end what held them back. On
//! every tick the streams are sampled as TCP_INFO would show them; what the policy makes of a sample
//! is applied before time goes on.

mod account;
mod control;
mod live;
mod sample;

use std::time::Duration;

use tune::limiter::Verdict;

use crate::world::{FlowSpec, FlowStats, Scenario};
pub(crate) use control::Control;
use live::Live;

pub use account::account;
pub use sample::Sample;

/// A file to send, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// What a stream takes of it at a time, bytes, at least 1.
    pub block: u64,
    /// How many streams to begin with.
    pub streams: Streams,
    /// What each stream's ends, access links and host are like; it starts when the transfer does,
    /// and its source and stop do not matter.
    pub stream: FlowSpec,
    /// How often the control connection asks something, the streams are sampled, and the policy
    /// decides; above zero.
    pub tick: Duration,
    /// When to give up, since the start of the run.
    pub give_up: Duration,
}

/// How many streams a transfer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Streams {
    /// What [`tune::streams::first`] says of the control connection's round trip.
    Automatic,
    /// So many, at least 1.
    Fixed(u32),
}

/// What can be set while a transfer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Streams, at least 1. One that is closed still sends what it wrote and the block it has begun.
    pub streams: u32,
    /// Send buffer of each, bytes.
    pub send_buffer: u64,
    /// Receive buffer of each, bytes.
    pub receive_buffer: u64,
    /// What all of them together may send, bytes of payload per second, the same part of it each;
    /// `None`: as their windows allow.
    pub pace: Option<u64>,
}

/// How a transfer went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// All of the file arrived.
    pub complete: bool,
    /// Payload that arrived, bytes.
    pub bytes: u64,
    /// From the first stream's opening to the last byte's arrival, or to the giving up.
    pub elapsed: Duration,
    /// Payload per second, bit/s.
    pub goodput: f64,
    /// Round trip of the control connection before the first stream.
    pub control_rtt: Option<Duration>,
    /// Most streams at a time.
    pub streams_max: u32,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// What held it back, judged from the sender's accounts.
    pub limited_by: Verdict,
    /// What each stream did, in the order in which they were opened.
    pub flows: Vec<FlowStats>,
}

impl Transfer {
    /// Runs the transfer over the scenario's network, beside its flows. `policy` is told a sample
    /// every tick and returns the settings to go on with; `None`: leave them.
    pub fn run(
        &self,
        scenario: &Scenario,
        mut policy: impl FnMut(&Sample) -> Option<Settings>,
    ) -> Outcome {
        let mut live = Live::begin(self, scenario);
        while live.run_tick() {
            if let Some(settings) = policy(&live.sample()) {
                live.apply(settings);
            }
        }
        live.outcome()
    }
}

#[cfg(test)]
mod tests;
