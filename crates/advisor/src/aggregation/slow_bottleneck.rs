//! Clients behind a router that is known as a slow bottleneck share, unmeasured but for their route: the slow
//! link limits all of them.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{AggregationPolicy, ClientGroup, ClientPath};

/// Most routers that are remembered.
const MOST_ROUTERS: usize = 100_000;

/// Groups by slow bottleneck routers.
#[derive(Debug)]
pub struct BySlowBottleneck {
    slow_below_bps: u64,
    /// Routers before a slow bottleneck, with the bottleneck's rate in bits per second.
    slow: HashMap<IpAddr, u64>,
}

impl BySlowBottleneck {
    /// A bottleneck below this rate, bits per second, is slow.
    pub fn new(slow_below_bps: u64) -> Self {
        Self {
            slow_below_bps,
            slow: HashMap::new(),
        }
    }
}

impl AggregationPolicy for BySlowBottleneck {
    fn note(&mut self, path: &ClientPath<'_>) {
        let (Some(router), Some(rate)) = (path.bottleneck, path.bandwidth_bps) else {
            return;
        };
        if rate >= self.slow_below_bps {
            // The link was replaced by a faster one.
            self.slow.remove(&router);
        } else if self.slow.len() < MOST_ROUTERS || self.slow.contains_key(&router) {
            self.slow.insert(router, rate);
        }
    }

    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup> {
        let known = |router: &&IpAddr| self.slow.contains_key(*router);
        let routers = path.bottleneck.iter().filter(known);
        // Of several slow routers on the way, the slowest limits.
        routers
            .chain(path.hops.iter().filter(known))
            .min_by_key(|router| self.slow.get(*router))
            .map(|router| ClientGroup::Router(*router))
    }

    fn measures_each_once(&self) -> bool {
        false
    }
}
