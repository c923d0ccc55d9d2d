//! Metrics of the queue, in the text format of OpenMetrics, which Prometheus reads.

use std::fmt::Error;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::store::QueueOverview;

/// Content type of OpenMetrics.
pub(super) const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most owners with metrics of their own: those with the most jobs.
const MOST_OWNERS: usize = 200;

type MetricLabels = Vec<(&'static str, String)>;
type Gauges = Family<MetricLabels, Gauge<f64, AtomicU64>>;

/// The metrics of a state of the queue; without one, that the database is away.
pub(super) fn text(queue: Option<&QueueOverview>) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("longhaul_queue");
    let up = Gauge::<i64>::default();
    up.set(i64::from(queue.is_some()));
    registry.register("database_up", "Whether the database answers", up);
    if let Some(queue) = queue {
        register(&mut registry, queue);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn register(registry: &mut Registry, queue: &QueueOverview) {
    let jobs = Gauges::default();
    for (state, count) in &queue.jobs {
        let labels = vec![("state", state.name().to_owned())];
        jobs.get_or_create(&labels).set(*count as f64);
    }
    registry.register("jobs", "Jobs by state", jobs);
    let owners = Gauges::default();
    for row in queue.owners.iter().take(MOST_OWNERS) {
        for (state, count) in &row.jobs {
            let labels = vec![
                ("owner", row.owner.clone()),
                ("state", state.name().to_owned()),
            ];
            owners.get_or_create(&labels).set(*count as f64);
        }
    }
    registry.register("owner_jobs", "Jobs by owner and state", owners);
    let attempts = Family::<MetricLabels, Counter>::default();
    for (outcome, count) in &queue.attempts {
        let labels = vec![("outcome", outcome.clone())];
        attempts.get_or_create(&labels).inc_by(*count);
    }
    registry.register("attempts", "Attempts by outcome", attempts);
    let bytes = Counter::<u64>::default();
    bytes.inc_by(queue.bytes);
    registry.register("moved_bytes", "Bytes that attempts moved", bytes);
    let slots: u32 = queue.workers.iter().map(|worker| worker.slots).sum();
    let rate = queue.running.iter().filter_map(|job| job.progress.now_bps);
    let single = [
        ("workers", "Workers", queue.workers.len() as f64),
        (
            "slots",
            "Jobs that all workers run at a time",
            f64::from(slots),
        ),
        (
            "rate_bits_per_second",
            "Rate of the latest 100 running jobs together",
            rate.sum(),
        ),
    ];
    for (name, help, value) in single {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
}
