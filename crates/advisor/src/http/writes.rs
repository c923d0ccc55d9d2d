//! The interface under /api/v1: changes. Each needs the token.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use serde::de::DeserializeOwned;

use super::answers::{ChangeAnswer, ErrorAnswer, NewHost};
use super::json::{Answer, object};
use super::operations::{CallRefused, ReportedMeasurement};
use super::request_body;
use super::shared::{Caller, Shared};

fn changed(client: Option<String>, changed: bool) -> Json<ChangeAnswer> {
    Json(ChangeAnswer { changed, client })
}

/// Checks the token before the body is read.
async fn permitted_object<T: DeserializeOwned>(
    shared: &Shared,
    request: Request,
) -> Result<T, CallRefused> {
    shared.may_write(request.headers())?;
    let body = request_body::read(request.into_body(), shared.limits.body_time).await?;
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
