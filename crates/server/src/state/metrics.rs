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

use crate::transfer_log::LoggedTransferKind;

/// Labels of a metric: names and values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

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

    /// The text for Prometheus; `sessions`: their number now.
    pub(crate) fn text(&self, sessions: usize) -> Result<String, fmt::Error> {
        let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
        self.sessions_now.set(sessions);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
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

    fn assert_line(metrics: &ServerMetrics, line: &str) {
        let text = metrics.text(0).unwrap();
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
}
