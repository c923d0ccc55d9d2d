//! Objects of the JSON interface. Questions and advice are types of the crate `enable`, which knows nothing of OpenAPI: their
//! shapes are described here, and a test compares both.

use std::net::IpAddr;

use enable::advice::Advice;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tune::path::{QosNeed, TrafficPurpose};
use utoipa::{IntoParams, ToSchema};

use super::operations::CallRefused;
use crate::path_table::QuantitySummary;
use crate::service::PathView;
use crate::store::HistoryPoint;

/// Statistics of one quantity.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QuantityAnswer {
    /// Mean of the last values without the largest and smallest tenth.
    trimmed_mean: f64,
    /// Standard deviation of the last values.
    deviation: f64,
    /// The latest value.
    latest: f64,
    /// Number of values.
    count: usize,
    /// Age of the latest value, seconds.
    age_seconds: f64,
}

impl From<&QuantitySummary> for QuantityAnswer {
    fn from(summary: &QuantitySummary) -> Self {
        Self {
            trimmed_mean: summary.trimmed_mean,
            deviation: summary.deviation,
            latest: summary.latest,
            count: summary.count,
            age_seconds: summary.age.as_secs_f64(),
        }
    }
}

/// A monitored client.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HostAnswer {
    /// Its address.
    client: String,
    /// How it became known: `asked`, `log`, `api` or `config`.
    source: &'static str,
    /// When it became known (RFC 3339).
    added: String,
    /// Time since it was last seen, seconds.
    seen_seconds: f64,
    /// Bytes of all transfers that it asked about.
    asked_bytes: u64,
    /// Tests chosen for it: name to interval (`"600s"`), or to `true` where the interval is that of the settings.
    /// Absent: those of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    tests: Option<Map<String, Value>>,
}

impl HostAnswer {
    pub(super) fn new(client: IpAddr, view: &PathView) -> Self {
        Self {
            client: client.to_string(),
            source: view.host.source.name(),
            added: view.host.added.to_string(),
            seen_seconds: view.seen_ago.as_secs_f64(),
            asked_bytes: view.host.asked_bytes,
            tests: view.host.tests.as_ref().map(|tests| tests.to_json()),
        }
    }
}

/// A path, as a line of a table shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PathAnswer {
    /// Address of the client.
    pub(super) client: String,
    /// How it became known: `asked`, `log`, `api` or `config`.
    source: &'static str,
    /// Transfers of the data server with it that run now.
    transfers: u32,
    /// Advice for a transfer of unknown size.
    #[schema(value_type = AdviceSchema)]
    advice: Advice,
}

impl PathAnswer {
    pub(super) fn new(client: IpAddr, view: PathView) -> Self {
        Self {
            client: client.to_string(),
            source: view.host.source.name(),
            transfers: view.transfers,
            advice: view.advice,
        }
    }
}

/// A part of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PathList {
    /// Length of the whole list.
    pub(super) total: usize,
    /// This part.
    pub(super) paths: Vec<PathAnswer>,
}

/// A part of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HostList {
    /// Length of the whole list.
    pub(super) total: usize,
    /// This part.
    pub(super) hosts: Vec<HostAnswer>,
}

/// Everything about a path.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PathDetails {
    /// The client.
    pub(super) host: HostAnswer,
    /// Transfers of the data server with it that run now.
    pub(super) transfers: u32,
    /// Advice for a transfer of unknown size.
    #[schema(value_type = AdviceSchema)]
    pub(super) advice: Advice,
    /// Statistics by quantity.
    pub(super) quantities: std::collections::BTreeMap<&'static str, QuantityAnswer>,
    /// Latest detail by test: its time, and what only people read.
    #[schema(value_type = Object)]
    pub(super) tests: Map<String, Value>,
    /// Tests that were asked for, by name: `state` (`waiting`, `measured` or `failed`), and `why`, `at`, `values`.
    #[schema(value_type = Object)]
    pub(super) asked_tests: Map<String, Value>,
    /// Periodic tests, by name: the interval and its grounds, one sentence.
    #[schema(value_type = Object)]
    pub(super) intervals: Map<String, Value>,
}

/// A value of the history.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PointAnswer {
    /// End of the test, or begin of the span (RFC 3339).
    at: String,
    /// The value, or the mean of the span.
    value: f64,
    /// Length of the span, seconds; 0 for one measurement.
    span_seconds: f64,
    /// Measurements in the span.
    samples: u64,
    /// The test.
    test: String,
}

impl From<HistoryPoint> for PointAnswer {
    fn from(point: HistoryPoint) -> Self {
        Self {
            at: point.at.to_string(),
            value: point.value,
            span_seconds: point.span.as_secs_f64(),
            samples: point.samples,
            test: point.test,
        }
    }
}

/// History of one quantity.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HistoryAnswer {
    /// The client.
    pub(super) client: String,
    /// The quantity.
    pub(super) quantity: &'static str,
    /// Values, oldest first.
    pub(super) points: Vec<PointAnswer>,
}

/// A request that was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorAnswer {
    /// One sentence: the reason.
    pub(super) error: String,
}

/// A change that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangeAnswer {
    /// Whether something is otherwise than before.
    pub(super) changed: bool,
    /// Address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<String>,
}

/// A client to add.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewHost {
    /// Its address or name.
    pub(super) client: String,
}

/// State of the service.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HealthAnswer {
    /// Name of this server: `server-name` of its settings.
    pub(super) server: String,
    /// Version of longhaul.
    pub(super) version: &'static str,
    /// `ok` or `degraded`.
    pub(super) status: &'static str,
    /// Reasons, if it is degraded.
    pub(super) reasons: Vec<String>,
    /// Clients that are monitored.
    pub(super) clients: usize,
    /// Paths of which something is known.
    pub(super) paths: usize,
}

/// Which part of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListPart {
    /// Part of the address.
    pub(super) search: String,
    /// Entries to leave out at the begin.
    pub(super) offset: usize,
    /// Most entries, at most 1000. Default: 100.
    pub(super) limit: Option<usize>,
}

/// Which client.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct QosParameters {
    /// Address or name; absent: the caller.
    pub(super) client: Option<String>,
    /// `background`, `bulk` (default), `interactive` or `streaming`.
    pub(super) purpose: Option<String>,
    /// Rate that the transfer needs, bits per second.
    pub(super) rate_bps: Option<u64>,
}

impl QosParameters {
    /// The needs of the transfer.
    pub(super) fn need(&self) -> Result<QosNeed, CallRefused> {
        let purpose = match self.purpose.as_deref() {
            None | Some("bulk") => TrafficPurpose::Bulk,
            Some("background") => TrafficPurpose::Background,
            Some("interactive") => TrafficPurpose::Interactive,
            Some("streaming") => TrafficPurpose::Streaming,
            Some(_) => {
                let reason = "purpose: background, bulk, interactive or streaming";
                return Err(CallRefused::Arguments(reason.to_owned()));
            }
        };
        Ok(QosNeed {
            purpose,
            rate_bps: self.rate_bps,
        })
    }
}

/// Which values of the history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuestion {
    /// `rtt` (default), `loss`, `bandwidth`, `reverse_bandwidth`, `goodput`, `reverse_goodput`, `streams`,
    /// `retransmits` or `hops`.
    pub(super) quantity: Option<String>,
    /// Begin: a time (RFC 3339), or how long ago (`24h`). Default: 7 days ago.
    pub(super) since: Option<String>,
    /// Most values, the latest ones, at most 5000. Default: 500.
    pub(super) points: Option<u32>,
}

/// Advice for transfers from the data server to one client. A value that is unknown, or that is best left to
/// the kernel, is absent.
#[derive(Serialize, ToSchema)]
#[schema(as = Advice)]
pub(super) struct AdviceSchema {
    /// The client that the advice is for, an IP address.
    client: String,
    /// Socket buffer of one stream to set, bytes. Absent: leave the kernel's autotuning alone.
    set_buffer_bytes: Option<u64>,
    /// Round trip × bottleneck bandwidth, bytes: what all streams together need.
    bdp_bytes: Option<u64>,
    /// Streams to open.
    streams: Option<u32>,
    /// Congestion control of the sender, by its kernel name.
    congestion_control: Option<String>,
    /// Pacing rate of all streams together, bits per second.
    pace_bps: Option<u64>,
    /// Expected goodput of a long transfer, bits per second: the median.
    expected_bps: Option<u64>,
    /// One transfer in ten is slower than this, bits per second.
    p10_bps: Option<u64>,
    /// One transfer in ten is faster than this, bits per second.
    p90_bps: Option<u64>,
    /// Round trip, seconds.
    rtt_seconds: Option<f64>,
    /// Bandwidth of the bottleneck in the direction of the question, bits per second.
    bandwidth_bps: Option<u64>,
    /// Measured rate of the path to the client, bits per second.
    download_bps: Option<u64>,
    /// Measured rate of the path from the client, bits per second.
    upload_bps: Option<u64>,
    /// Share of lost packets, 0 to 1.
    loss: Option<f64>,
    /// The expected limiter of a transfer.
    limited_by: Option<String>,
    /// The two directions of the path differ: one rate is at least twice the other, or the routes differ.
    asymmetric: bool,
    /// How far to trust the advice, 0 (a guess) to 1.
    confidence: f64,
    /// Age of the newest measurement that the advice rests on, seconds.
    age_seconds: Option<f64>,
    /// Another client whose measurements stand in for this one's.
    measured_by: Option<String>,
    /// One sentence: the reason.
    why: String,
}

/// Facts about the client and its transfer. Everything may be absent.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes the parameters of a question")]
pub(super) struct QuestionParameters {
    /// Another client than the caller, an IP address or a name.
    client: Option<String>,
    /// Bytes to transfer.
    bytes: Option<u64>,
    /// `download` (default), or `upload`: from the client to the data server.
    direction: Option<String>,
    /// Files to transfer.
    files: Option<u64>,
    /// Largest receive buffer that the client's kernel allows (the third number of tcp_rmem), bytes.
    max_receive_buffer: Option<u64>,
    /// Largest send buffer that the client's kernel allows (the third number of tcp_wmem), bytes. For uploads.
    max_send_buffer: Option<u64>,
    /// Largest buffer that a program may set on the client (rmem_max, for uploads wmem_max), bytes.
    max_set_buffer: Option<u64>,
    /// Fastest rate at which the client's processor or disk takes data, bits per second.
    client_bps: Option<u64>,
    /// Rate that the client's processors can receive by estimate, all cores together, bits per second. It decides streams.
    processor_bps: Option<u64>,
    /// Cores of the client.
    processor_cores: Option<u32>,
    /// The client cannot let the kernel choose its buffer: it sets one in any case.
    must_set_buffer: Option<bool>,
    /// Most streams that the client can open.
    max_streams: Option<u32>,
}

/// Advice on the service class of transfers to a client.
#[derive(Serialize, ToSchema)]
#[schema(as = QosAdvice)]
pub(super) struct QosSchema {
    /// Differentiated services code point, 0 to 63.
    dscp: u8,
    /// Name of the class, as RFC 4594 and RFC 8622 have it.
    class: String,
    /// A reservation of bandwidth would make transfers faster.
    reservation_helps: bool,
    /// One sentence: the reason.
    why: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use enable::advice::{DataDirection, QosAdvice, Question};
    use serde_json::json;

    use super::*;
    use crate::http::openapi;

    fn described(schema: &Value) -> BTreeSet<String> {
        let properties = schema["properties"].as_object().unwrap();
        properties.keys().cloned().collect()
    }

    fn written<T: Serialize>(value: &T) -> BTreeSet<String> {
        json!(value).as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn objects_of_advice_are_described_as_they_are_written() {
        let document: Value = serde_json::from_str(&openapi()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let schemas = &document["components"]["schemas"];
        let text = || Some("x".to_owned());
        let advice = Advice {
            client: String::new(),
            set_buffer_bytes: Some(1),
            bdp_bytes: Some(1),
            streams: Some(1),
            congestion_control: text(),
            pace_bps: Some(1),
            expected_bps: Some(1),
            p10_bps: Some(1),
            p90_bps: Some(1),
            rtt_seconds: Some(1.0),
            bandwidth_bps: Some(1),
            download_bps: Some(1),
            upload_bps: Some(1),
            loss: Some(1.0),
            limited_by: text(),
            asymmetric: true,
            confidence: 1.0,
            age_seconds: Some(1.0),
            measured_by: text(),
            why: String::new(),
        };
        assert_eq!(described(&schemas["Advice"]), written(&advice));
        assert_eq!(
            described(&schemas["QosAdvice"]),
            written(&QosAdvice::default())
        );
        let question = Question {
            client: text(),
            bytes: Some(1),
            direction: DataDirection::Upload,
            files: Some(1),
            max_receive_buffer: Some(1),
            max_send_buffer: Some(1),
            max_set_buffer: Some(1),
            client_bps: Some(1),
            processor_bps: Some(1),
            processor_cores: Some(1),
            must_set_buffer: true,
            max_streams: Some(1),
        };
        let parameters = &document["paths"]["/api/v1/advice"]["get"]["parameters"];
        let parameters = parameters.as_array().unwrap().iter();
        let names = parameters.map(|one| one["name"].as_str().unwrap().to_owned());
        assert_eq!(names.collect::<BTreeSet<_>>(), written(&question));
    }
}
