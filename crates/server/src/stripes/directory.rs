//! The data nodes that a front end knows: which of them have failed lately, and how loaded they are.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::NodeLoad;

/// A node that has failed is not asked for this time, twice as long after each further failure, and never longer than the last.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Which data nodes have failed lately, and what they do. Shared by all sessions.
#[derive(Debug, Default)]
pub(crate) struct NodeDirectory {
    failed: Mutex<HashMap<String, NodeFailures>>,
    /// Those of the settings, with what each has said last.
    known: Mutex<Vec<(String, LastAnswer)>>,
    /// Choices so far: nodes that are equally loaded take turns.
    turns: AtomicUsize,
}

/// The last answer of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAnswer {
    /// It was not asked yet.
    NotAsked,
    /// It did not answer.
    Silent,
    /// It is so loaded.
    Load(NodeLoad),
}

/// The facts that are known of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// Host and port.
    pub(crate) name: String,
    /// Transfers use it: it has answered the last time, and is not left out because of a failure. Also one that was not asked yet.
    pub(crate) is_up: bool,
    /// How loaded it is, if it has answered.
    pub(crate) load: Option<NodeLoad>,
}

/// The failures of a node since it has carried out a part.
#[derive(Debug, Clone, Copy)]
struct NodeFailures {
    last: Instant,
    /// Not asked again for this time.
    pause: Duration,
}

impl NodeFailures {
    /// The node may be asked again.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= self.pause
    }
}

impl NodeDirectory {
    /// Follows the settings: these are the nodes.
    pub(crate) fn set_nodes(&self, nodes: &[String]) {
        let mut known = self.known.lock();
        let before = std::mem::take(&mut *known);
        let last = |node: &String| {
            let before = before.iter().find(|(name, _)| name == node);
            before.map_or(LastAnswer::NotAsked, |(_, answer)| *answer)
        };
        *known = nodes
            .iter()
            .map(|node| (node.clone(), last(node)))
            .collect();
    }

    /// The nodes of the settings.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let known = self.known.lock();
        known.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The facts that are known of each of them.
    pub(crate) fn states(&self, now: Instant) -> Vec<NodeState> {
        let failed = self.failed.lock();
        let is_left_out = |node: &String| {
            let failed = failed.get(node);
            failed.is_some_and(|failed| !failed.is_over(now))
        };
        let known = self.known.lock();
        let state = |(name, answer): &(String, LastAnswer)| NodeState {
            name: name.clone(),
            is_up: *answer != LastAnswer::Silent && !is_left_out(name),
            load: match answer {
                LastAnswer::Load(load) => Some(*load),
                LastAnswer::NotAsked | LastAnswer::Silent => None,
            },
        };
        known.iter().map(state).collect()
    }

    /// Notes how loaded a node says it is.
    pub(crate) fn note_load(&self, node: &str, load: NodeLoad) {
        self.note_answer(node, LastAnswer::Load(load));
    }

    /// Notes that a node does not answer.
    pub(crate) fn note_unreachable(&self, node: &str) {
        self.note_answer(node, LastAnswer::Silent);
    }

    fn note_answer(&self, node: &str, answer: LastAnswer) {
        let mut known = self.known.lock();
        if let Some((_, last)) = known.iter_mut().find(|(name, _)| name == node) {
            *last = answer;
        }
    }

    /// Puts the least loaded first. Nodes that are equally loaded take turns.
    pub(crate) fn sort_by_load<T>(&self, nodes: &mut [T], load: impl Fn(&T) -> NodeLoad) {
        if let Some(count) = NonZeroUsize::new(nodes.len()) {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            nodes.rotate_left(turn % count);
        }
        nodes.sort_by_key(|node| load(node).rank());
    }

    /// Those of `nodes` that may be asked now: all but those that have just failed. If all have, all of them.
    pub(crate) fn usable(&self, nodes: &[String], now: Instant) -> Vec<String> {
        let failed = self.failed.lock();
        let is_usable = |node: &&String| {
            let failed = failed.get(*node);
            failed.is_none_or(|failed| failed.is_over(now))
        };
        let usable: Vec<String> = nodes.iter().filter(is_usable).cloned().collect();
        if usable.is_empty() {
            return nodes.to_vec();
        }
        usable
    }

    /// Notes that a node has failed: it is left out for a while.
    pub(crate) fn note_failure(&self, node: &str, now: Instant) {
        let mut failed = self.failed.lock();
        let first = NodeFailures {
            last: now,
            pause: RETRY_AFTER / 2,
        };
        let failures = failed.entry(node.to_owned()).or_insert(first);
        // One that fails in two transfers at a time has failed once.
        let is_new = failures.pause < RETRY_AFTER || failures.is_over(now);
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
    fn the_state_of_each_node_is_known() {
        let nodes = ["a:1", "b:1", "c:1"].map(String::from);
        let directory = NodeDirectory::default();
        directory.set_nodes(&nodes);
        let now = Instant::now();
        let load = NodeLoad {
            running: 3,
            ..NodeLoad::default()
        };
        directory.note_load("a:1", load);
        directory.note_unreachable("b:1");
        directory.note_load("elsewhere:1", load);
        let states = |now| {
            let states = directory.states(now).into_iter();
            let states = states.map(|state| (state.is_up, state.load));
            states.collect::<Vec<_>>()
        };
        assert_eq!(
            states(now),
            [(true, Some(load)), (false, None), (true, None)]
        );
        directory.note_failure("a:1", now);
        assert_eq!(states(now)[0], (false, Some(load)));
        assert_eq!(states(now + RETRY_AFTER)[0], (true, Some(load)));
        directory.set_nodes(&nodes[..2]);
        assert_eq!(
            states(now + RETRY_AFTER),
            [(true, Some(load)), (false, None)]
        );
        assert_eq!(directory.nodes(), nodes[..2]);
    }

    #[test]
    fn less_loaded_nodes_are_preferred_and_equal_ones_take_turns() {
        let directory = NodeDirectory::default();
        let load = |running, bytes_per_second| NodeLoad {
            running,
            bytes_per_second,
            refused: 0,
        };
        let mut first = Vec::new();
        for _ in 0..4 {
            let mut nodes = [
                ("busy", load(2, 0)),
                ("free", load(0, 0)),
                ("fast", load(1, 9 << 20)),
                ("slow", load(1, 2 << 20)),
                ("idle", load(0, 100)),
            ];
            directory.sort_by_load(&mut nodes, |(_, load)| *load);
            first.push(nodes[0].0);
            let rest: Vec<_> = nodes[2..].iter().map(|(name, _)| *name).collect();
            assert_eq!(rest, ["slow", "fast", "busy"]);
        }
        assert!(
            first.contains(&"free") && first.contains(&"idle"),
            "{first:?}"
        );
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
