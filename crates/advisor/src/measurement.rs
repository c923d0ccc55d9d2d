//! One result of one test: numbers with a meaning, and the details that only people read.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The meaning of a measured number, and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Round trip, seconds.
    Rtt,
    /// Share of lost packets, 0 to 1.
    Loss,
    /// Bandwidth of the bottleneck towards the client, bits per second.
    Bandwidth,
    /// Bandwidth of the bottleneck from the client to this host, bits per second.
    ReverseBandwidth,
    /// Goodput of a transfer to the client, bits per second.
    Goodput,
    /// Goodput of a transfer from the client, bits per second.
    ReverseGoodput,
    /// Streams that a transfer used at its end.
    Streams,
    /// Share of retransmitted segments, 0 to 1.
    Retransmits,
    /// Routers between this host and the client.
    Hops,
}

impl Quantity {
    /// Every quantity.
    pub const ALL: [Self; 9] = [
        Self::Rtt,
        Self::Loss,
        Self::Bandwidth,
        Self::ReverseBandwidth,
        Self::Goodput,
        Self::ReverseGoodput,
        Self::Streams,
        Self::Retransmits,
        Self::Hops,
    ];

    /// Its name in the database, the protocols and the metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtt => "rtt",
            Self::Loss => "loss",
            Self::Bandwidth => "bandwidth",
            Self::ReverseBandwidth => "reverse_bandwidth",
            Self::Goodput => "goodput",
            Self::ReverseGoodput => "reverse_goodput",
            Self::Streams => "streams",
            Self::Retransmits => "retransmits",
            Self::Hops => "hops",
        }
    }

    /// Whether this number can be a value: finite, not negative, shares at most 1.
    pub fn allows(self, value: f64) -> bool {
        let most = match self {
            Self::Loss | Self::Retransmits => 1.0,
            _ => f64::MAX,
        };
        (0.0..=most).contains(&value)
    }

    /// The quantity of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The result of one test of the path to one client.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The client at the far end of the path.
    pub client: IpAddr,
    /// Name of the test.
    pub test: String,
    /// End of the test.
    pub at: Timestamp,
    /// The measured numbers.
    pub values: Vec<(Quantity, f64)>,
    /// Details that only people read, and those that a later run of the same test needs (the hops of a route, the output of a
    /// program).
    pub detail: Option<serde_json::Value>,
    /// Bytes that the test put on the network, both directions together.
    pub cost_bytes: u64,
}
