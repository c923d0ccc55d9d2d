//! The operations of the service, as XML-RPC and JSON share them, and the reasons why one is refused.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::http::StatusCode;
use enable::advice::{Advice, QosAdvice, Question};
use enable::method::fault;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tune::path::QosNeed;
use utoipa::ToSchema;

use super::answers::QuantityAnswer;
use super::names::NameRefused;
use super::shared::{Caller, Shared};
use super::token::TokenRefused;
use crate::chosen_tests::ChosenTests;
use crate::hosts::HostSource;
use crate::log_reader::entry::TRANSFER_TEST;
use crate::measurement::{Measurement, Quantity};
use crate::path_table::InvalidMeasurement;
use crate::service::RequestRefused;
use crate::service::asked::AskedTest;

/// Longest detail of one test in the answer of EnableGetNetInfo, and of a reported measurement, bytes of JSON.
const MOST_DETAIL: usize = 16 * 1024;
/// Most values of one reported measurement.
const MOST_VALUES: usize = Quantity::ALL.len();

/// The reason why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallRefused {
    #[error("there is no method {0:?}")]
    NoMethod(String),
    #[error("the call cannot be read: {0}")]
    Malformed(String),
    #[error("{0}")]
    Arguments(String),
    #[error("{0}")]
    UnknownPath(String),
    #[error(transparent)]
    Forbidden(#[from] TokenRefused),
    #[error("{0}")]
    Busy(String),
    #[error("the history cannot be read now")]
    History,
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    #[error("the body did not arrive in time")]
    TooSlow,
}

impl CallRefused {
    /// Code of the XML-RPC fault.
    pub(super) fn fault(&self) -> i32 {
        match self {
            Self::NoMethod(_) => fault::NO_METHOD,
            Self::Malformed(_) | Self::TooLong(_) | Self::TooSlow => fault::MALFORMED,
            Self::Arguments(_) => fault::ARGUMENTS,
            Self::UnknownPath(_) => fault::UNKNOWN_PATH,
            Self::Forbidden(_) => fault::FORBIDDEN,
            Self::Busy(_) => fault::BUSY,
            Self::History => fault::INTERNAL,
        }
    }

    /// Status of the HTTP response of the JSON interface.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoMethod(_) | Self::UnknownPath(_) => StatusCode::NOT_FOUND,
            Self::Malformed(_) | Self::Arguments(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden(TokenRefused::Missing | TokenRefused::Wrong) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Forbidden(TokenRefused::Unset | TokenRefused::CrossSite) => StatusCode::FORBIDDEN,
            Self::Busy(_) | Self::History => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

impl From<NameRefused> for CallRefused {
    fn from(refused: NameRefused) -> Self {
        match refused {
            NameRefused::Text(_) => Self::Arguments(refused.to_string()),
            NameRefused::Unknown(_) => Self::UnknownPath(refused.to_string()),
            NameRefused::TimedOut(_) | NameRefused::Busy => Self::Busy(refused.to_string()),
        }
    }
}

impl From<RequestRefused> for CallRefused {
    fn from(refused: RequestRefused) -> Self {
        match refused {
            RequestRefused::Client(_)
            | RequestRefused::Test(_)
            | RequestRefused::TooLarge { .. } => Self::Arguments(refused.to_string()),
            RequestRefused::Unknown(_) => Self::UnknownPath(refused.to_string()),
            RequestRefused::Busy => Self::Busy(refused.to_string()),
        }
    }
}

impl From<InvalidMeasurement> for CallRefused {
    fn from(invalid: InvalidMeasurement) -> Self {
        Self::Arguments(invalid.to_string())
    }
}

/// A measurement from outside: of a transfer, or of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportedMeasurement {
    /// The client at the far end, address or name; absent: the caller.
    client: Option<String>,
    /// Name of the test: letters, digits, `.`, `-`, `_`. Default: `transfer`.
    #[serde(default = "transfer_name")]
    test: String,
    /// End of the measurement (RFC 3339); absent: now.
    at: Option<String>,
    /// Quantity to value. `rtt`: round trip, seconds; `loss` and `retransmits`: shares of packets and of segments, 0 to 1;
    /// `bandwidth` and `reverse_bandwidth`: of the bottleneck towards the client and from it, bits per second; `goodput` and
    /// `reverse_goodput`: of a transfer to the client and from it, bits per second; `streams`: of a transfer at its end;
    /// `hops`: routers between both hosts.
    values: BTreeMap<String, f64>,
    /// Anything that people may want to read.
    #[schema(value_type = Option<Object>)]
    detail: Option<Value>,
}

fn transfer_name() -> String {
    TRANSFER_TEST.to_owned()
}

impl Shared {
    /// The client of a call: the one that it names, else the caller.
    pub(super) async fn client(
        &self,
        named: Option<&str>,
        caller: Caller,
    ) -> Result<IpAddr, CallRefused> {
        match named {
            None | Some("") => Ok(caller.0.to_canonical()),
            Some(text) => self.named_client(text).await,
        }
    }

    /// The client of this address or name. Of several addresses, one that is monitored is preferred.
    pub(super) async fn named_client(&self, text: &str) -> Result<IpAddr, CallRefused> {
        let found = self.names.addresses(text).await?;
        let known = found
            .iter()
            .find(|client| self.advisor.view(**client).is_some());
        let client = known.or(found.first()).copied();
        client.ok_or_else(|| NameRefused::Unknown(text.to_owned()).into())
    }

    /// Best TCP buffer, bytes (section 5 of the paper).
    pub(super) fn buffer_size(&self, client: IpAddr) -> Result<u64, CallRefused> {
        let advice = self.advisor.advise(client, &Question::default());
        // A client that asks for nothing else opens one stream: the share of one of several is not for it.
        let buffer = advice.bdp_bytes.or(advice.set_buffer_bytes);
        buffer.ok_or(CallRefused::UnknownPath(advice.why))
    }

    /// Streams to open.
    pub(super) fn streams(&self, client: IpAddr) -> Result<u32, CallRefused> {
        let advice = self.advisor.advise(client, &Question::default());
        advice.streams.ok_or(CallRefused::UnknownPath(advice.why))
    }

    /// Advice; a client whose name has no address gets an answer that says so.
    pub(super) async fn advice(
        &self,
        question: &Question,
        caller: Caller,
    ) -> Result<Advice, CallRefused> {
        match self.client(question.client.as_deref(), caller).await {
            Ok(client) => Ok(self.advisor.advise(client, question)),
            Err(CallRefused::UnknownPath(reason)) => Ok(Advice {
                client: question.client.clone().unwrap_or_default(),
                why: format!("Nothing is known: {reason}."),
                ..Advice::default()
            }),
            Err(other) => Err(other),
        }
    }

    /// Results of all tests.
    pub(super) async fn net_info(&self, client: IpAddr) -> Value {
        let mut info = Map::new();
        info.insert("client".to_owned(), client.to_string().into());
        for summary in self.advisor.net_info(client) {
            let name = summary.quantity.name().to_owned();
            info.insert(name, json!(QuantityAnswer::from(&summary)));
        }
        let tests = self.test_details(client).await;
        if !tests.is_empty() {
            info.insert("tests".to_owned(), tests.into());
        }
        let asked = self.asked_tests(client);
        if !asked.is_empty() {
            info.insert("asked_tests".to_owned(), asked.into());
        }
        let intervals = self.intervals(client);
        if !intervals.is_empty() {
            info.insert("intervals".to_owned(), intervals.into());
        }
        if info.len() == 1 {
            let why = "Nothing is known of this path yet; EnableGetAdvice has it tested.";
            info.insert("why".to_owned(), why.into());
        }
        info.into()
    }

    /// Latest details of each test. While the database is unavailable, there are none.
    pub(super) async fn test_details(&self, client: IpAddr) -> Map<String, Value> {
        let details = self.advisor.details(client).await.unwrap_or_default();
        let small = |detail: &Value| detail.to_string().len() <= MOST_DETAIL;
        let shown = details.into_iter().map(|(test, at, detail)| {
            let detail = if small(&detail) { detail } else { Value::Null };
            (test, json!({ "at": at.to_string(), "detail": detail }))
        });
        shown.collect()
    }

    /// The periodic tests by name, each with its interval and the grounds of it.
    pub(super) fn intervals(&self, client: IpAddr) -> Map<String, Value> {
        let intervals = self.advisor.intervals(client).into_iter();
        intervals.map(|(test, text)| (test, text.into())).collect()
    }

    /// Tests that were asked for, by name: each with its state, and the reason of its wait or failure or its values.
    pub(super) fn asked_tests(&self, client: IpAddr) -> Map<String, Value> {
        let described = |(test, state)| {
            let state = match state {
                AskedTest::Waiting(None) => json!({ "state": "waiting" }),
                AskedTest::Waiting(Some(why)) => json!({ "state": "waiting", "why": why }),
                AskedTest::Failed(at, why) => {
                    json!({ "state": "failed", "at": at.to_string(), "why": why })
                }
                AskedTest::Measured(at, values) => {
                    let values = values.into_iter();
                    let values = values.map(|(quantity, value)| (quantity.name(), value));
                    let values: BTreeMap<_, _> = values.collect();
                    json!({ "state": "measured", "at": at.to_string(), "values": values })
                }
            };
            (test, state)
        };
        let asked = self.advisor.asked_tests(client).into_iter();
        asked.map(described).collect()
    }

    /// Service class.
    pub(super) fn qos(&self, client: IpAddr, need: &QosNeed) -> QosAdvice {
        let verdict = self.advisor.qos(client, need);
        QosAdvice {
            dscp: verdict.dscp.code_point(),
            class: verdict.dscp.name().to_owned(),
            reservation_helps: verdict.reservation_helps,
            why: verdict.why,
        }
    }

    /// Monitors a client; `true` if it is new.
    pub(super) async fn add_host(&self, text: &str) -> Result<(IpAddr, bool), CallRefused> {
        let client = self.named_client(text).await?;
        Ok((client, self.advisor.add_host(client, HostSource::Api)?))
    }

    /// Forgets a client; `false` if it is unknown.
    pub(super) async fn remove_host(&self, text: &str) -> Result<bool, CallRefused> {
        let client = self.named_client(text).await?;
        Ok(self.advisor.remove_host(client))
    }

    /// Chooses the periodic tests of a client, and their intervals. An empty choice leaves them to the settings.
    pub(super) async fn set_tests(
        &self,
        text: &str,
        chosen: &Map<String, Value>,
    ) -> Result<(), CallRefused> {
        let known = self.advisor.tests();
        if let Some(name) = chosen.keys().find(|name| !known.contains(name)) {
            return Err(RequestRefused::Test(name.chars().take(64).collect()).into());
        }
        let tests = ChosenTests::from_json(chosen)
            .map_err(|wrong| CallRefused::Arguments(wrong.to_string()))?;
        let client = self.named_client(text).await?;
        let tests = (!chosen.is_empty()).then_some(tests);
        Ok(self.advisor.set_tests(client, tests)?)
    }

    /// Runs a test as soon as possible.
    pub(super) async fn run_test(&self, text: &str, test: &str) -> Result<(), CallRefused> {
        let client = self.named_client(text).await?;
        Ok(self.advisor.request_test(client, test)?)
    }

    /// Takes in a measurement.
    pub(super) async fn report(
        &self,
        reported: ReportedMeasurement,
        caller: Caller,
    ) -> Result<(), CallRefused> {
        let arguments = |reason: String| CallRefused::Arguments(reason);
        let client = self.client(reported.client.as_deref(), caller).await?;
        let at = match &reported.at {
            None => Timestamp::now(),
            Some(text) => text
                .parse()
                .map_err(|_| arguments("at: this is no time as RFC 3339 writes it".to_owned()))?,
        };
        if reported.values.is_empty() || reported.values.len() > MOST_VALUES {
            return Err(arguments(format!("values: 1 to {MOST_VALUES} of them")));
        }
        let mut values = Vec::new();
        for (name, value) in reported.values {
            let quantity = Quantity::from_name(&name).ok_or_else(|| {
                let name: String = name.chars().take(64).collect();
                arguments(format!("values: there is no quantity {name:?}"))
            })?;
            values.push((quantity, value));
        }
        let size = reported
            .detail
            .as_ref()
            .map_or(0, |detail| detail.to_string().len());
        if size > MOST_DETAIL {
            return Err(arguments(format!("detail: more than {MOST_DETAIL} bytes")));
        }
        let measurement = Measurement {
            client,
            test: reported.test,
            at,
            values,
            detail: reported.detail,
            cost_bytes: 0,
        };
        Ok(self.advisor.report(HostSource::Log, measurement)?)
    }
}
