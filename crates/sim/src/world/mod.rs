//! A simulated network: hosts on access links (own or shared), one bottleneck in each direction, and the flows between
//! the hosts.
//!
//! ```text
//!  sender 0 ── access ──┐                               ┌── access ── receiver 0
//!  sender 1 ── access ──┼──► queue ═ bottleneck ═ delay ┼── access ── receiver 1
//!     cross traffic ────┘◄═ the same for the ACKs ══════┘
//! ```
//!
//! A [`Simulation`] runs a [`Scenario`] on its own clock. While it runs, flows can be added and
//! stopped, and their buffers and pacing rates can be changed. The same scenario with the same calls
//! gives the same results.

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

use crate::tcp::TcpConfig;
use link::Conditions;

pub use cross::CrossTraffic;
pub use packets::AccessLink;
pub use pool::PoolId;
pub use simulation::Simulation;
pub use stats::{FlowStats, QueueingDelay};

/// A network and its traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The direction of the data.
    pub forward: Conditions,
    /// The direction of the acknowledgements.
    pub reverse: Conditions,
    /// The TCP connections, numbered from 0.
    pub flows: Vec<FlowSpec>,
    /// Cross traffic at the forward bottleneck.
    pub cross_traffic: Vec<CrossTraffic>,
    /// Seed of all random events.
    pub seed: u64,
}

/// Description of one TCP connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowSpec {
    /// TCP configuration of both ends.
    pub tcp: TcpConfig,
    /// The sender's access link, for both directions.
    pub sender_access: AccessLink,
    /// The receiver's access link, for both directions.
    pub receiver_access: AccessLink,
    /// The data that the application writes.
    pub source: TrafficSource,
    /// Start time.
    pub start: Duration,
    /// Time at which the application stops writing; written data is still delivered.
    pub stop: Option<Duration>,
    /// The sending host delays segments by a random time up to this (`overhead_` in ns-2). A small value
    /// removes the phase effects of drop-tail queues (Floyd and Jacobson, "On Traffic Phase Effects in
    /// Packet-Switched Gateways", 1991).
    pub jitter: Duration,
}

impl Default for FlowSpec {
    /// An endless flow from the start, with access links of no delay and unlimited rate.
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

/// The data that a flow's application writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficSource {
    /// Endless data, as fast as the send buffer accepts it.
    Unlimited,
    /// So many bytes, as fast as the send buffer accepts them.
    Bytes(u64),
    /// Full segments at this rate of payload; segments that the send buffer does not accept wait.
    Paced(Rate),
    /// Blocks from a pool that several flows share ([`Simulation::add_pool`]).
    Pool(PoolId),
}

/// Number of a flow: its index in [`Scenario::flows`], or the result of [`Simulation::add_flow`].
pub type FlowId = usize;
