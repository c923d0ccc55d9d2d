//! What network to build: hosts, and a path between every two of them.

use sim::link::Conditions;

/// Most hosts in one lab.
pub const MOST_HOSTS: usize = 26;

/// A host: a network namespace with one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Lower-case letters, digits and hyphens, a letter first; `LAB_` + upper case (hyphens as
    /// underscores) is the variable that holds its address.
    pub name: String,
    /// `net.*` settings, in the order given.
    pub sysctls: Vec<(String, String)>,
    /// TCP congestion control; `None`: the system's.
    pub congestion: Option<String>,
}

/// The path between two hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Indices into [`Topology::hosts`], the smaller one first.
    pub between: (usize, usize),
    /// From the first to the second.
    pub forward: Conditions,
    /// From the second to the first.
    pub back: Conditions,
}

/// A whole network. Every two hosts have a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// At least two.
    pub hosts: Vec<Host>,
    /// One for every two hosts.
    pub paths: Vec<Path>,
    /// Makes random events repeat.
    pub seed: u64,
    /// Let a host hand over many segments at once (loss and timing stay per segment).
    pub offload: bool,
    /// Interface MTU, bytes, 576..=9000.
    pub mtu: u16,
}

impl Topology {
    /// Host number `index`'s IPv4 address: 10.99.0.1 is the first.
    pub fn address(index: usize) -> std::net::Ipv4Addr {
        let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
        std::net::Ipv4Addr::new(10, 99, 0, last)
    }
}
