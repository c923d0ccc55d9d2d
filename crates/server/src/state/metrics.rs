//! Numbers of a running server for Prometheus, as OpenMetrics text.
//!
//! The numbers hold no names of users, files or clients.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::stripes::NodeState;
use crate::transfer_log::LoggedTransferKind;

/// Labels of a metric: names and values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Label of a data node: host and port as in the settings.
type NodeLabel = [(&'static str, String); 1];

/// Seconds with a fraction.
type SummedSeconds = Counter<f64, AtomicU64>;

/// The numbers of a server since its start.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics {
    registry: Registry,
    /// Sessions now. Set when the numbers are read.
    sessions_now: Gauge,
    sessions: Counter,
    refused_sessions: Counter,
    logins: Family<Labels<1>, Counter>,
    refused_transfers: Counter,
    transfers_now: Family<Labels<1>, Gauge>,
    transfers: Family<Labels<2>, Counter>,
    bytes: Family<Labels<1>, Counter>,
    seconds: Family<Labels<1>, SummedSeconds>,
    limiter_seconds: Family<Labels<2>, SummedSeconds>,
    /// Of the data nodes of a front end. Set when the numbers are read.
    nodes: NodeMetrics,
}

/// The numbers of each data node, by its own reports.
#[derive(Debug, Default)]
struct NodeMetrics {
    up: Family<NodeLabel, Gauge>,
    running: Family<NodeLabel, Gauge>,
    rate: Family<NodeLabel, Gauge>,
    refused: Family<NodeLabel, Gauge>,
}

/// A transfer that is counted while it runs. When this is dropped, it no longer counts as running.
#[derive(Debug)]
pub(crate) struct CountedTransfer {
    metrics: Arc<ServerMetrics>,
    direction: &'static str,
    /// Bytes that are in the numbers already.
    counted: u64,
}

/// The end of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferOutcome {
    /// Payload bytes moved.
    pub(crate) bytes: u64,
    /// Duration.
    pub(crate) elapsed: Duration,
    /// Name of its limiter; `None`: unknown.
    pub(crate) limiter: Option<&'static str>,
    /// It failed.
    pub(crate) is_error: bool,
}

impl ServerMetrics {
    /// All 0. What has few labels is there from the start, so that a rate sees the first change.
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("longhaul_server"),
            ..Self::default()
        };
        let registry = &mut metrics.registry;
        registry.register("sessions", "Sessions now", metrics.sessions_now.clone());
        let help = "Control connections that became sessions";
        registry.register("sessions_started", help, metrics.sessions.clone());
        let help = "Control connections refused because there were too many";
        registry.register("sessions_refused", help, metrics.refused_sessions.clone());
        registry.register("logins", "Logins by result", metrics.logins.clone());
        let help = "Transfers refused because too many ran (450)";
        registry.register("transfers_refused", help, metrics.refused_transfers.clone());
        let help = "Transfers now, by direction";
        registry.register("transfers_running", help, metrics.transfers_now.clone());
        let help = "Transfers that have ended, by direction and result";
        registry.register("transfers", help, metrics.transfers.clone());
        let help = "Payload of transfers, also of those that run, by direction";
        registry.register_with_unit("payload", help, Unit::Bytes, metrics.bytes.clone());
        let help = "Time of transfers that have ended, summed, by direction";
        registry.register_with_unit("transfer", help, Unit::Seconds, metrics.seconds.clone());
        let help = "Time of transfers that have ended, by direction and by what limited them";
        let limiters = metrics.limiter_seconds.clone();
        registry.register_with_unit("limiter", help, Unit::Seconds, limiters);
        metrics.nodes.register(registry);
        for result in ["ok", "refused"] {
            metrics
                .logins
                .get_or_create(&[("result", result)])
                .inc_by(0);
        }
        for direction in LoggedTransferKind::ALL.map(LoggedTransferKind::name) {
            let label = [("direction", direction)];
            metrics.transfers_now.get_or_create(&label).set(0);
            metrics.bytes.get_or_create(&label).inc_by(0);
            metrics.seconds.get_or_create(&label).inc_by(0.0);
            for result in ["ok", "error"] {
                let labels = [("direction", direction), ("result", result)];
                metrics.transfers.get_or_create(&labels).inc_by(0);
            }
        }
        metrics
    }

    /// Counts a control connection that became a session, or was refused.
    pub(crate) fn count_session(&self, is_admitted: bool) {
        match is_admitted {
            true => self.sessions.inc(),
            false => self.refused_sessions.inc(),
        };
    }

    /// Counts a login that is complete.
    pub(crate) fn count_login(&self, is_accepted: bool) {
        let result = if is_accepted { "ok" } else { "refused" };
        self.logins.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a transfer that got no permit in time.
    pub(crate) fn count_refused_transfer(&self) {
        self.refused_transfers.inc();
    }

    /// Counts a transfer from its start.
    pub(crate) fn transfer_begins(self: &Arc<Self>, kind: LoggedTransferKind) -> CountedTransfer {
        let direction = kind.name();
        let label = [("direction", direction)];
        self.transfers_now.get_or_create(&label).inc();
        CountedTransfer {
            metrics: Arc::clone(self),
            direction,
            counted: 0,
        }
    }

    /// The text for Prometheus; `sessions`: their number now; `nodes`: the data nodes.
    pub(crate) fn text(&self, sessions: usize, nodes: &[NodeState]) -> Result<String, fmt::Error> {
        let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
        self.sessions_now.set(sessions);
        self.nodes.set(nodes);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl NodeMetrics {
    fn register(&self, registry: &mut Registry) {
        let help = "Whether a data node answers and is used";
        registry.register("node_up", help, self.up.clone());
        let help = "Parts of transfers that a data node carries out now, for all its front ends";
        registry.register("node_parts_running", help, self.running.clone());
        let help = "Bytes per second that a data node moves now";
        registry.register("node_bytes_per_second", help, self.rate.clone());
        let help = "Connections and parts that a data node has refused since its start, because a bound was reached";
        registry.register("node_refused", help, self.refused.clone());
    }

    /// Nodes that do not answer have no load.
    fn set(&self, nodes: &[NodeState]) {
        for family in [&self.up, &self.running, &self.rate, &self.refused] {
            family.clear();
        }
        let set = |family: &Family<NodeLabel, Gauge>, node: &NodeState, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            let label = [("node", node.name.clone())];
            family.get_or_create(&label).set(value);
        };
        for node in nodes {
            set(&self.up, node, node.is_up.into());
            if let Some(load) = node.load {
                set(&self.running, node, load.running);
                set(&self.rate, node, load.bytes_per_second);
                set(&self.refused, node, load.refused);
            }
        }
    }
}

impl CountedTransfer {
    /// Counts what moved since the last call; `bytes` is the sum since the start.
    pub(crate) fn count_bytes(&mut self, bytes: u64) {
        let label = [("direction", self.direction)];
        let more = bytes.saturating_sub(self.counted);
        self.metrics.bytes.get_or_create(&label).inc_by(more);
        self.counted += more;
    }

    /// Counts the end of the transfer.
    pub(crate) fn count_end(&mut self, outcome: &TransferOutcome) {
        self.count_bytes(outcome.bytes);
        let direction = ("direction", self.direction);
        let result = if outcome.is_error { "error" } else { "ok" };
        let transfers = &self.metrics.transfers;
        transfers
            .get_or_create(&[direction, ("result", result)])
            .inc();
        let seconds = outcome.elapsed.as_secs_f64();
        let all = &self.metrics.seconds;
        all.get_or_create(&[direction]).inc_by(seconds);
        let limiter = ("limiter", outcome.limiter.unwrap_or("unknown"));
        let by_limiter = &self.metrics.limiter_seconds;
        by_limiter
            .get_or_create(&[direction, limiter])
            .inc_by(seconds);
    }
}

impl Drop for CountedTransfer {
    fn drop(&mut self) {
        let label = [("direction", self.direction)];
        self.metrics.transfers_now.get_or_create(&label).dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripes::NodeLoad;

    fn assert_line(metrics: &ServerMetrics, line: &str) {
        let text = metrics.text(0, &[]).unwrap();
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }

    #[test]
    fn a_transfer_counts_while_it_runs_and_its_bytes_once() {
        let metrics = Arc::new(ServerMetrics::new());
        let mut transfer = metrics.transfer_begins(LoggedTransferKind::Store);
        transfer.count_bytes(70);
        transfer.count_bytes(100);
        let running = "longhaul_server_transfers_running{direction=\"store\"}";
        let bytes = "longhaul_server_payload_bytes_total{direction=\"store\"}";
        assert_line(&metrics, &format!("{running} 1"));
        assert_line(&metrics, &format!("{bytes} 100"));
        transfer.count_end(&TransferOutcome {
            bytes: 120,
            elapsed: Duration::from_millis(2500),
            limiter: Some("store write"),
            is_error: true,
        });
        drop(transfer);
        assert_line(&metrics, &format!("{running} 0"));
        assert_line(&metrics, &format!("{bytes} 120"));
        let limiter = "longhaul_server_limiter_seconds_total{direction=\"store\",limiter=\"store write\"} 2.5";
        assert_line(&metrics, limiter);
        let errors = "longhaul_server_transfers_total{direction=\"store\",result=\"error\"} 1";
        assert_line(&metrics, errors);
        let others = "longhaul_server_payload_bytes_total{direction=\"retrieve\"} 0";
        assert_line(&metrics, others);
    }

    #[test]
    fn each_data_node_has_its_numbers_while_it_is_known() {
        let metrics = ServerMetrics::new();
        let node = |name: &str, load: Option<NodeLoad>| NodeState {
            name: name.to_owned(),
            is_up: load.is_some(),
            load,
        };
        let load = NodeLoad {
            running: 2,
            bytes_per_second: 1000,
            refused: 7,
        };
        let text = metrics
            .text(0, &[node("a:1", Some(load)), node("b:1", None)])
            .unwrap();
        for line in [
            "longhaul_server_node_up{node=\"a:1\"} 1",
            "longhaul_server_node_up{node=\"b:1\"} 0",
            "longhaul_server_node_parts_running{node=\"a:1\"} 2",
            "longhaul_server_node_bytes_per_second{node=\"a:1\"} 1000",
            "longhaul_server_node_refused{node=\"a:1\"} 7",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("node_parts_running{node=\"b:1\"}"), "{text}");
        let text = metrics.text(0, &[]).unwrap();
        assert!(!text.contains("a:1"), "{text}");
    }

    /// Names in a text that begin with the prefix of these metrics.
    fn names_in(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("longhaul_server_"))
    }

    #[test]
    fn the_alerts_of_the_document_use_metrics_that_exist() {
        let document = include_str!("../../../../docs/admin/monitoring.md");
        let metrics = Arc::new(ServerMetrics::new());
        // The first transfer makes the series of limiters.
        let mut transfer = metrics.transfer_begins(LoggedTransferKind::Store);
        transfer.count_end(&TransferOutcome {
            bytes: 1,
            elapsed: Duration::from_secs(1),
            limiter: Some("store write"),
            is_error: false,
        });
        let node = NodeState {
            name: "n:1".to_owned(),
            is_up: false,
            load: None,
        };
        let text = metrics.text(0, &[node]).unwrap();
        let known: Vec<&str> = names_in(&text).collect();
        let used: Vec<&str> = names_in(document).collect();
        assert!(used.len() > 5, "{used:?}");
        for name in used {
            assert!(known.contains(&name), "{name}");
        }
    }
}
