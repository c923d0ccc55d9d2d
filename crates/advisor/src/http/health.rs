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
    let mut reasons = Vec::new();
    if !counters.store_available {
        reasons.push("the database is unavailable: nothing is kept beyond memory".to_owned());
    }
    if shared.advisor.tests().is_empty() {
        reasons.push("no test can run on this machine".to_owned());
    }
    let (status, word) = if reasons.is_empty() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "degraded")
    };
    let answer = HealthAnswer {
        status: word,
        reasons,
        clients: counters.clients,
        paths: counters.paths,
    };
    (status, Json(answer))
}
