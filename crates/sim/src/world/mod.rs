//! A simulated network: hosts on access links, joined by one bottleneck in each direction, and the
//! flows between them.
//!
//! ```text
//!  sender 0 ── access ──┐                               ┌── access ── receiver 0
//!  sender 1 ── access ──┼──► queue ═ bottleneck ═ delay ┼── access ── receiver 1
//!     cross traffic ────┘◄═ the same for the ACKs ══════┘
//! ```
//!
//! [`Simulation`] runs a [`Scenario`] on a clock of its own. Flows can be added, stopped and given
//! other buffers while it runs. The same scenario with the same calls gives the same results.

mod cross;
mod event_handlers;
mod events;
mod flow;
mod packets;
mod pool;
mod simulation;
mod stats;

use std::time::Duration;

use units::Rate;

use crate::link::Conditions;
use crate::tcp::TcpConfig;

pub use cross::CrossTraffic;
pub use packets::AccessLink;
pub use pool::PoolId;
pub use simulation::Simulation;
pub use stats::{FlowStats, QueueingDelay};

/// A network and what happens in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The bottleneck that data meets.
    pub forward: Conditions,
    /// The way back, for acknowledgements.
    pub reverse: Conditions,
    /// TCP connections, numbered from 0.
    pub flows: Vec<FlowSpec>,
    /// Other traffic at the forward bottleneck.
    pub cross_traffic: Vec<CrossTraffic>,
    /// All random events come from it.
    pub seed: u64,
}

/// One TCP connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowSpec {
    /// Both ends' TCP.
    pub tcp: TcpConfig,
    /// The sender's access link, both directions.
    pub sender_access: AccessLink,
    /// The receiver's access link, both directions.
    pub receiver_access: AccessLink,
    /// Bytes to send.
    pub source: TrafficSource,
    /// When it begins.
    pub start: Duration,
    /// When its application stops to write; what was written is still delivered.
    pub stop: Option<Duration>,
    /// The sending host holds what TCP sends back for a random time up to this (`overhead_` in
    /// ns-2). Some removes the phase effects of a drop-tail queue (Floyd and Jacobson 1991).
    pub jitter: Duration,
}

impl Default for FlowSpec {
    /// Endless, from the start, with no access link to speak of.
    fn default() -> Self {
        Self {
            tcp: TcpConfig::default(),
            sender_access: AccessLink::default(),
            receiver_access: AccessLink::default(),
            source: TrafficSource::Unlimited,
            start: Duration::ZERO,
            stop: None,
            jitter: Duration::ZERO,
        }
    }
}

/// Writing of a flow's application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficSource {
    /// As much as there is room for, for ever.
    Unlimited,
    /// So many bytes, as fast as there is room for them.
    Bytes(u64),
    /// A full segment whenever this rate (of payload) has made one; what finds no room waits.
    Paced(Rate),
    /// Block after block from a pool that it shares with other flows ([`Simulation::add_pool`]).
    Pool(PoolId),
}

/// A flow's number: the place in [`Scenario::flows`], or what [`Simulation::add_flow`] returned.
pub type FlowId = usize;
