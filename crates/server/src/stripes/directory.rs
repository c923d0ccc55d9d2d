//! The data nodes that a front end knows, and which of them have failed lately.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A node that has failed is not asked for this time, twice as long after each further failure, and never longer than the last.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Which data nodes have failed lately. Shared by all sessions.
#[derive(Debug, Default)]
pub(crate) struct NodeDirectory {
    failed: Mutex<HashMap<String, NodeFailures>>,
}

/// The failures of a node since it has carried out a part.
#[derive(Debug, Clone, Copy)]
struct NodeFailures {
    last: Instant,
    /// Not asked again for this time.
    pause: Duration,
}

impl NodeDirectory {
    /// Those of `nodes` that may be asked now: all but those that have just failed. If all have, all of them.
    pub(crate) fn usable(&self, nodes: &[String], now: Instant) -> Vec<String> {
        let failed = self.failed.lock();
        let is_usable = |node: &&String| {
            let failed = failed.get(*node);
            failed.is_none_or(|failed| now.saturating_duration_since(failed.last) >= failed.pause)
        };
        let usable: Vec<String> = nodes.iter().filter(is_usable).cloned().collect();
        if usable.is_empty() {
            return nodes.to_vec();
        }
        usable
    }

    /// Notes that a node has failed.
    pub(crate) fn note_failure(&self, node: &str, now: Instant) {
        let mut failed = self.failed.lock();
        let first = NodeFailures {
            last: now,
            pause: RETRY_AFTER / 2,
        };
        let failures = failed.entry(node.to_owned()).or_insert(first);
        // One that fails in two transfers at a time has failed once.
        let is_new = failures.pause < RETRY_AFTER
            || now.saturating_duration_since(failures.last) >= failures.pause;
        if is_new {
            failures.last = now;
            failures.pause = (failures.pause * 2).min(LONGEST_RETRY);
        }
    }

    /// Notes that a node has carried out a part.
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

    #[test]
    fn a_node_that_fails_again_and_again_is_asked_less_often() {
        let nodes = ["a:1", "b:1"].map(String::from);
        let directory = NodeDirectory::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            directory.note_failure("a:1", now);
            directory.note_failure("a:1", now);
            let begin = now;
            while directory.usable(&nodes, now).len() < 2 {
                now += Duration::from_secs(1);
            }
            pauses.push(now.duration_since(begin).as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    }
}
