//! Clients behind one bottleneck router share (table 5 of the paper). Each is measured once, because two
//! clients of one subnet may have different bottlenecks.

use super::{AggregationPolicy, ClientGroup, ClientPath};

/// Groups by the router before the bottleneck.
#[derive(Debug)]
pub struct ByBottleneck;

impl AggregationPolicy for ByBottleneck {
    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup> {
        path.bottleneck.map(ClientGroup::Router)
    }

    fn measures_each_once(&self) -> bool {
        true
    }
}
