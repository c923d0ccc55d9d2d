//! The data nodes that a front end knows, and which of them have failed lately.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A node that has failed is not asked for this time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Which data nodes have failed lately. Shared by all sessions.
#[derive(Debug, Default)]
pub(crate) struct NodeDirectory {
    failed: Mutex<HashMap<String, Instant>>,
}

impl NodeDirectory {
    /// Those of `nodes` that may be asked now: all but those that have just failed. If all have, all of them.
    pub(crate) fn usable(&self, nodes: &[String], now: Instant) -> Vec<String> {
        let failed = self.failed.lock();
        let is_usable = |node: &&String| {
            let since = failed.get(*node);
            since.is_none_or(|since| now.saturating_duration_since(*since) >= RETRY_AFTER)
        };
        let usable: Vec<String> = nodes.iter().filter(is_usable).cloned().collect();
        if usable.is_empty() {
            return nodes.to_vec();
        }
        usable
    }

    /// Notes that a node has failed.
    pub(crate) fn note_failure(&self, node: &str, now: Instant) {
        self.failed.lock().insert(node.to_owned(), now);
    }

    /// Notes that a node has answered.
    pub(crate) fn note_success(&self, node: &str) {
        self.failed.lock().remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_failed_is_used_again_later() {
        let nodes = ["a:1", "b:1"].map(String::from);
        let directory = NodeDirectory::default();
        let now = Instant::now();
        assert_eq!(directory.usable(&nodes, now), nodes);
        directory.note_failure("a:1", now);
        assert_eq!(directory.usable(&nodes, now), nodes[1..]);
        assert_eq!(directory.usable(&nodes, now + RETRY_AFTER), nodes);
        directory.note_failure("b:1", now);
        assert_eq!(directory.usable(&nodes, now), nodes);
        directory.note_success("a:1");
        assert_eq!(directory.usable(&nodes, now), nodes[..1]);
    }
}
