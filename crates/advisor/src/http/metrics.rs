//! Metrics of the service and of paths, in the text format of OpenMetrics, which Prometheus reads.

use std::fmt::Error;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::shared::Shared;

/// Most paths with metrics of their own: those of the settings, then those seen last.
const MOST_PATHS: usize = 200;

/// Content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics of the service and of at most 200 paths.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses((status = 200, content_type = "application/openmetrics-text", body = String)),
)]
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let mut registry = Registry::with_prefix("longhaul_advisor");
    registry.register_collector(Box::new(Snapshot::take(&shared)));
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Name and value of a label.
type Label = (&'static str, String);

/// Values of a metric, by their labels.
type Labelled<T> = Vec<(Vec<Label>, T)>;

/// A metric with all its values.
#[derive(Debug)]
enum Values {
    Counter(u64),
    Gauge(f64),
    Counters(Labelled<u64>),
    Gauges(Labelled<f64>),
}

/// All metrics of one moment: name, help and values.
#[derive(Debug)]
struct Snapshot(Vec<(&'static str, &'static str, Values)>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        for (name, help, values) in &self.0 {
            let kind = match values {
                Values::Counter(_) | Values::Counters(_) => MetricType::Counter,
                Values::Gauge(_) | Values::Gauges(_) => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match values {
                Values::Counter(value) => ConstCounter::new(*value).encode(metric)?,
                Values::Gauge(value) => ConstGauge::new(*value).encode(metric)?,
                Values::Counters(values) => {
                    for (labels, value) in values {
                        ConstCounter::new(*value).encode(metric.encode_family(labels)?)?;
                    }
                }
                Values::Gauges(values) => {
                    for (labels, value) in values {
                        ConstGauge::new(*value).encode(metric.encode_family(labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers below 2^53 are exact")]
fn number(value: u64) -> f64 {
    value as f64
}

fn size(value: usize) -> f64 {
    number(u64::try_from(value).unwrap_or(u64::MAX))
}

impl Snapshot {
    fn take(shared: &Shared) -> Self {
        let mut snapshot = Self(Vec::new());
        snapshot.add_service(shared);
        snapshot.add_tests(shared);
        snapshot.add_requests(shared);
        snapshot.add_paths(shared);
        snapshot
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.0.push((name, help, Values::Counter(value)));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.0.push((name, help, Values::Gauge(value)));
    }

    fn add_service(&mut self, shared: &Shared) {
        let counters = shared.advisor.counters();
        self.gauge(
            "clients",
            "Clients that are monitored",
            size(counters.clients),
        );
        self.gauge(
            "paths",
            "Paths of which something is known",
            size(counters.paths),
        );
        self.counter("questions", "Questions answered", counters.questions);
        let help = "Questions about clients of which nothing was known";
        self.counter("unknown_questions", help, counters.unknown);
        self.counter(
            "measurements",
            "Measurements taken in",
            counters.measurements,
        );
        self.counter("anomalies", "Anomalies of paths", counters.anomalies);
        let help = "Transfers of the data server that run now";
        self.gauge("transfers", help, number(counters.transfers));
        let help = "Whether the database can be used, 1 or 0";
        self.gauge(
            "store_available",
            help,
            f64::from(u8::from(counters.store_available)),
        );
        let help = "Entries written to the database";
        self.counter("store_written", help, counters.store_written);
        let help = "Entries lost because the database was unavailable for too long";
        self.counter("store_dropped", help, counters.store_dropped);
    }

    fn add_tests(&mut self, shared: &Shared) {
        let tests = shared.advisor.counters().schedule;
        self.counter("tests_started", "Tests started", tests.started);
        let outcomes = [
            ("succeeded", tests.succeeded),
            ("failed", tests.failed),
            ("put_off", tests.put_off),
            ("too_large", tests.too_large),
            ("refused", tests.on_demand_refused),
        ];
        let labelled =
            |(outcome, count): (&str, u64)| (vec![("outcome", outcome.to_owned())], count);
        let values = Values::Counters(outcomes.map(labelled).into());
        self.0.push(("tests", "Tests by outcome", values));
        self.gauge("tests_running", "Tests that run now", size(tests.running));
        let help = "Tests on demand that wait";
        self.gauge("tests_waiting", help, size(tests.waiting_on_demand));
        let help = "Bytes that tests put on the network";
        self.counter("budget_spent_bytes", help, tests.budget_spent);
        let help = "Bytes that tests sent beyond what they had announced";
        self.counter("budget_excess_bytes", help, tests.excess_bytes);
        let help = "Bytes that tests may send now";
        self.gauge("budget_left_bytes", help, number(tests.budget_left));
        let help = "Times that a test had to wait for the budget";
        self.counter("budget_refusals", help, tests.budget_refusals);
    }

    fn add_requests(&mut self, shared: &Shared) {
        let requests = shared
            .requests
            .routes()
            .into_iter()
            .map(|((route, status), count)| {
                let labels = vec![("route", route), ("status", status.to_string())];
                (labels, count)
            });
        let values = Values::Counters(requests.collect());
        self.0
            .push(("http_requests", "HTTP requests by route and status", values));
        let calls = shared.requests.calls().into_iter();
        let calls = calls.map(|(method, count)| (vec![("method", method.to_owned())], count));
        let values = Values::Counters(calls.collect());
        self.0.push(("calls", "Calls of XML-RPC by method", values));
        let (connections, requests) = shared.requests.refused();
        let help = "Connections refused because there were too many";
        self.counter("refused_connections", help, connections);
        let help = "Requests refused because one address sent too many";
        self.counter("refused_requests", help, requests);
        let help = "Connections now";
        self.gauge("connections", help, size(shared.peers.connections()));
        let listeners = shared.limits.subscribers - shared.subscribers.available_permits();
        self.gauge(
            "listeners",
            "Listeners to live updates now",
            size(listeners),
        );
    }

    fn add_paths(&mut self, shared: &Shared) {
        let clients = shared.advisor.recently_seen(MOST_PATHS);
        let views = clients.into_iter().filter_map(|client| {
            let advice = shared.advisor.view(client)?.advice;
            Some((client, advice))
        });
        let views: Vec<_> = views.collect();
        let mut add = |name, help, value: &dyn Fn(&enable::advice::Advice) -> Option<f64>| {
            let values = views.iter().filter_map(|(client, advice)| {
                Some((vec![("client", client.to_string())], value(advice)?))
            });
            self.0.push((name, help, Values::Gauges(values.collect())));
        };
        let known = |advice: &enable::advice::Advice| advice.rtt_seconds.or(advice.age_seconds);
        add("path_rtt_seconds", "Round trip", &|advice| {
            advice.rtt_seconds
        });
        add(
            "path_bandwidth_bits_per_second",
            "Bandwidth of the bottleneck",
            &|advice| advice.bandwidth_bps.map(number),
        );
        add(
            "path_download_bits_per_second",
            "Measured rate of the path to the client",
            &|advice| advice.download_bps.map(number),
        );
        add(
            "path_upload_bits_per_second",
            "Measured rate of the path from the client",
            &|advice| advice.upload_bps.map(number),
        );
        add(
            "path_goodput_bits_per_second",
            "Expected goodput of a long transfer",
            &|advice| advice.expected_bps.map(number),
        );
        add("path_loss_ratio", "Share of lost packets", &|advice| {
            advice.loss
        });
        add(
            "path_buffer_bytes",
            "Round trip times bandwidth",
            &|advice| advice.bdp_bytes.map(number),
        );
        add(
            "path_confidence_ratio",
            "Confidence of the advice",
            &|advice| known(advice).map(|_| advice.confidence),
        );
        add(
            "path_age_seconds",
            "Age of the newest measurement",
            &|advice| advice.age_seconds,
        );
    }
}
