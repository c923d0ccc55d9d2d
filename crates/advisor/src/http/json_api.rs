//! The JSON interface under /api/v1: questions, and changes, which need the token.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use enable::advice::{Advice, QosAdvice, Question};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answers::{AdviceSchema, QosSchema, QuestionParameters};
use super::answers::{
    ChangeAnswer, ErrorAnswer, HistoryAnswer, HistoryQuestion, HostAnswer, HostList, ListPart,
    NewHost, PathAnswer, PathDetails, PathList, PointAnswer, QosParameters,
};
use super::connections::read_body;
use super::operations::{CallRefused, ReportedMeasurement};
use super::shared::{Caller, Shared};
use super::token::TokenRefused;
use crate::measurement::Quantity;

/// Answer of a request: JSON either way.
pub(super) type Answer<T> = Result<Json<T>, CallRefused>;

impl IntoResponse for CallRefused {
    fn into_response(self) -> Response {
        let body = Json(ErrorAnswer {
            error: self.to_string(),
        });
        let mut response = (self.status(), body).into_response();
        match self {
            // `Basic` would make browsers keep the token and send it along later.
            Self::Forbidden(TokenRefused::Missing | TokenRefused::Wrong) => {
                let bearer = HeaderValue::from_static("Bearer realm=\"longhaul advisor\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
            }
            Self::Busy(_) | Self::History => {
                let seconds = HeaderValue::from_static("5");
                response.headers_mut().insert(RETRY_AFTER, seconds);
            }
            _ => {}
        }
        response
    }
}

/// The parameters of a query.
pub(super) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, CallRefused> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(rejection) => Err(CallRefused::Arguments(rejection.body_text())),
    }
}

/// The object in a body.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallRefused> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            CallRefused::Arguments(error.to_string())
        } else {
            CallRefused::Malformed(error.to_string())
        }
    })
}

/// Entries of a list, by default and at most.
const ENTRIES: (usize, usize) = (100, 1000);
/// Values of the history, by default and at most.
const POINTS: (u32, u32) = (500, 5000);
/// Span of the history by default.
const SPAN: Duration = Duration::from_secs(7 * 24 * 3600);

type Asked<T> = Result<Query<T>, QueryRejection>;

/// Advice for transfers from the data server to the caller, or to the client that is named. A client that is
/// not known yet is tested as soon as possible; until then the confidence is 0.
#[utoipa::path(
    get, path = "/api/v1/advice", tag = "advice", params(QuestionParameters),
    responses((status = 200, body = AdviceSchema), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn advice(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    asked: Asked<Question>,
) -> Answer<Advice> {
    Ok(Json(shared.advice(&query(asked)?, caller).await?))
}

/// Service class (DSCP) of transfers, and whether a reservation of bandwidth would help.
#[utoipa::path(
    get, path = "/api/v1/qos", tag = "advice", params(QosParameters),
    responses((status = 200, body = QosSchema), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn qos(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    asked: Asked<QosParameters>,
) -> Answer<QosAdvice> {
    let asked = query(asked)?;
    let need = asked.need()?;
    let client = shared.client(asked.client.as_deref(), caller).await?;
    Ok(Json(shared.qos(client, &need)))
}

/// Results of all tests of the path to the caller, or to the client that is named: as EnableGetNetInfo.
#[utoipa::path(
    get, path = "/api/v1/net-info", tag = "advice",
    params(("client" = Option<String>, Query, description = "Address or name; absent: the caller.")),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn net_info(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    asked: Asked<Question>,
) -> Answer<Value> {
    let asked = query(asked)?;
    let client = shared.client(asked.client.as_deref(), caller).await?;
    Ok(Json(shared.net_info(client).await))
}

/// Monitored paths, by address.
#[utoipa::path(
    get, path = "/api/v1/paths", tag = "paths", params(ListPart),
    responses((status = 200, body = PathList), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn paths(
    State(shared): State<Arc<Shared>>,
    asked: Asked<ListPart>,
) -> Answer<PathList> {
    let (total, part) = list_part(&shared, &query(asked)?);
    let paths = part.into_iter().filter_map(|client| {
        let view = shared.advisor.view(client)?;
        Some(PathAnswer::new(client, view))
    });
    Ok(Json(PathList {
        total,
        paths: paths.collect(),
    }))
}

/// Everything about one monitored path. Nothing is noted or scheduled.
#[utoipa::path(
    get, path = "/api/v1/paths/{client}", tag = "paths",
    params(("client" = String, Path, description = "Address or name.")),
    responses((status = 200, body = PathDetails), (status = 404, body = ErrorAnswer)),
)]
pub(super) async fn path(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
) -> Answer<PathDetails> {
    let client = shared.named_client(&client).await?;
    let view = shared.advisor.view(client).ok_or_else(|| unknown(client))?;
    let measured = shared.advisor.measured(client);
    let quantities = measured.iter().map(|one| (one.quantity.name(), one.into()));
    Ok(Json(PathDetails {
        host: HostAnswer::new(client, &view),
        transfers: view.transfers,
        advice: view.advice,
        quantities: quantities.collect(),
        tests: shared.test_details(client).await,
        asked_tests: shared.asked_tests(client),
        intervals: shared.intervals(client),
    }))
}

fn unknown(client: IpAddr) -> CallRefused {
    CallRefused::UnknownPath(format!("{client} is not monitored"))
}

/// History of one quantity of a path, oldest value first.
#[utoipa::path(
    get, path = "/api/v1/paths/{client}/history", tag = "paths",
    params(("client" = String, Path, description = "Address or name."), HistoryQuestion),
    responses((status = 200, body = HistoryAnswer), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn history(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
    asked: Asked<HistoryQuestion>,
) -> Answer<HistoryAnswer> {
    let asked = query(asked)?;
    let name = asked.quantity.as_deref().unwrap_or(Quantity::Rtt.name());
    let quantity = Quantity::from_name(name).ok_or_else(|| {
        let names = Quantity::ALL.map(Quantity::name).join(", ");
        CallRefused::Arguments(format!("quantity: one of {names}"))
    })?;
    let now = Timestamp::now();
    let since = begin_of_history(asked.since.as_deref(), now)?;
    let most = asked.points.unwrap_or(POINTS.0).min(POINTS.1);
    let client = shared.named_client(&client).await?;
    if shared.advisor.view(client).is_none() {
        return Err(unknown(client));
    }
    let found = shared.advisor.history(client, quantity, (since, now), most);
    let points = found.await.map_err(|error| {
        tracing::debug!("history: {error}");
        CallRefused::History
    })?;
    Ok(Json(HistoryAnswer {
        client: client.to_string(),
        quantity: quantity.name(),
        points: points.into_iter().map(PointAnswer::from).collect(),
    }))
}

/// Begin of the history: a time, or how long ago.
fn begin_of_history(text: Option<&str>, now: Timestamp) -> Result<Timestamp, CallRefused> {
    let ago = |ago: Duration| now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH);
    let Some(text) = text else {
        return Ok(ago(SPAN));
    };
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    units::seconds(text).map(ago).map_err(|_| {
        let reason = "since: a time as RFC 3339 writes it, or how long ago (24h)";
        CallRefused::Arguments(reason.to_owned())
    })
}

/// Monitored clients, by address.
#[utoipa::path(
    get, path = "/api/v1/hosts", tag = "hosts", params(ListPart),
    responses((status = 200, body = HostList), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn hosts(
    State(shared): State<Arc<Shared>>,
    asked: Asked<ListPart>,
) -> Answer<HostList> {
    let (total, part) = list_part(&shared, &query(asked)?);
    let hosts = part.into_iter().filter_map(|client| {
        let view = shared.advisor.view(client)?;
        Some(HostAnswer::new(client, &view))
    });
    Ok(Json(HostList {
        total,
        hosts: hosts.collect(),
    }))
}

/// Names of the tests that can run on this machine.
#[utoipa::path(
    get, path = "/api/v1/tests", tag = "tests",
    responses((status = 200, body = Vec<String>)),
)]
pub(super) async fn tests(State(shared): State<Arc<Shared>>) -> Json<Vec<String>> {
    Json(shared.advisor.tests())
}

/// The length of the whole list, and the part that is asked for.
fn list_part(shared: &Shared, asked: &ListPart) -> (usize, Vec<IpAddr>) {
    let mut clients = shared.advisor.addresses();
    let search = asked.search.trim().to_lowercase();
    if !search.is_empty() {
        clients.retain(|client| client.to_string().contains(&search));
    }
    let most = asked.limit.unwrap_or(ENTRIES.0).min(ENTRIES.1);
    let part = clients.iter().skip(asked.offset).take(most);
    (clients.len(), part.copied().collect())
}

fn changed(client: Option<String>, changed: bool) -> Json<ChangeAnswer> {
    Json(ChangeAnswer { changed, client })
}

/// Checks the token before the body is read.
async fn permitted_object<T: DeserializeOwned>(
    shared: &Shared,
    request: Request,
) -> Result<T, CallRefused> {
    shared.may_write(request.headers())?;
    let body = read_body(request.into_body(), shared.limits.body_time).await?;
    object(&body)
}

/// Monitors the path to a client.
#[utoipa::path(
    post, path = "/api/v1/hosts", tag = "hosts", request_body = NewHost, security(("token" = [])),
    responses((status = 200, body = ChangeAnswer), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn add_host(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Answer<ChangeAnswer> {
    let new: NewHost = permitted_object(&shared, request).await?;
    let (client, is_new) = shared.add_host(&new.client).await?;
    Ok(changed(Some(client.to_string()), is_new))
}

/// Stops monitoring a client and forgets its measurements.
#[utoipa::path(
    delete, path = "/api/v1/hosts/{client}", tag = "hosts", security(("token" = [])),
    params(("client" = String, Path, description = "Address or name.")),
    responses((status = 200, body = ChangeAnswer), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn remove_host(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
    request: Request,
) -> Answer<ChangeAnswer> {
    shared.may_write(request.headers())?;
    Ok(changed(None, shared.remove_host(&client).await?))
}

/// Chooses the periodic tests of a client: name to interval (`"10min"`), true or false. Tests that are not named do
/// not run. An empty object leaves them to the settings.
#[utoipa::path(
    put, path = "/api/v1/hosts/{client}/tests", tag = "tests", security(("token" = [])),
    params(("client" = String, Path, description = "Address or name.")),
    request_body(content = Object, description = "Name of a test to its interval (`10min`), or to true or false."),
    responses((status = 200, body = ChangeAnswer), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn set_tests(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
    request: Request,
) -> Answer<ChangeAnswer> {
    let chosen = permitted_object(&shared, request).await?;
    shared.set_tests(&client, &chosen).await?;
    Ok(changed(None, true))
}

/// Runs a test as soon as the budget allows.
#[utoipa::path(
    post, path = "/api/v1/hosts/{client}/tests/{test}", tag = "tests", security(("token" = [])),
    params(
        ("client" = String, Path, description = "Address or name."),
        ("test" = String, Path, description = "Name of the test."),
    ),
    responses((status = 200, body = ChangeAnswer), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn run_test(
    State(shared): State<Arc<Shared>>,
    Path((client, test)): Path<(String, String)>,
    request: Request,
) -> Answer<ChangeAnswer> {
    shared.may_write(request.headers())?;
    shared.run_test(&client, &test).await?;
    Ok(changed(None, true))
}

/// Takes in what a transfer or a tool measured of a path.
#[utoipa::path(
    post, path = "/api/v1/report", tag = "tests", request_body = ReportedMeasurement, security(("token" = [])),
    responses((status = 200, body = ChangeAnswer), (status = "4XX", body = ErrorAnswer)),
)]
pub(super) async fn report(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Answer<ChangeAnswer> {
    let reported = permitted_object(&shared, request).await?;
    shared.report(reported, caller).await?;
    Ok(changed(None, true))
}
