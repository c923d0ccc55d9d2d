//! Health of the service, for monitoring.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::answers::HealthAnswer;
use super::shared::Shared;

/// State of the service. Degraded, it still answers from memory.
#[utoipa::path(
    get, path = "/health", tag = "service",
    responses((status = 200, body = HealthAnswer), (status = 503, body = HealthAnswer)),
)]
pub(super) async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, Json<HealthAnswer>) {
    let counters = shared.advisor.counters();
    let reasons = shared.advisor.troubles();
    let (status, word) = if reasons.is_empty() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "degraded")
    };
    let answer = HealthAnswer {
        server: shared.advisor.config().server_name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        status: word,
        reasons,
        clients: counters.clients,
        paths: counters.paths,
    };
    (status, Json(answer))
}
