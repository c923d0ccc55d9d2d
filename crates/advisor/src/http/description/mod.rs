//! The OpenAPI 3.1 description of the HTTP interface.

use axum::http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, OpenApi as Document};
use utoipa::{Modify, OpenApi};

use super::schema::{AdviceSchema, QosSchema};
use super::{answers, health, live, metrics, operations, page, reads, writes, xml_rpc};

/// The token as a security scheme.
struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The first line of the server's token file."))
            .build();
        let components = document.components.get_or_insert_with(Components::new);
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "longhaul advisor",
        description = "Advice for transfers from a data server: buffer, streams, congestion control and expected rate, from tests of the path and from earlier transfers.",
        license(name = "Apache-2.0 OR MIT"),
    ),
    paths(
        page::html, page::css, page::script, xml_rpc::root, xml_rpc::rpc2, health::health, metrics::metrics, json,
        reads::advice, reads::net_info, reads::qos, reads::paths, reads::path, reads::history, reads::tests,
        reads::hosts, live::events, writes::add_host, writes::remove_host, writes::set_tests, writes::run_test,
        writes::report,
    ),
    components(schemas(
        AdviceSchema, QosSchema, answers::PathList, answers::PathDetails, answers::HistoryAnswer,
        answers::HostList, answers::ChangeAnswer, answers::NewHost, answers::ErrorAnswer, answers::HealthAnswer,
        operations::ReportedMeasurement,
    )),
    modifiers(&TokenScheme),
)]
struct Description;

/// The OpenAPI 3.1 description of the HTTP interface, as JSON.
pub fn openapi() -> String {
    let document = Description::openapi();
    // It holds only what is written in this program.
    serde_json::to_string(&document).unwrap_or_default()
}

/// This description.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "service",
    responses((status = 200, body = Object, description = "OpenAPI 3.1")),
)]
pub(super) async fn json() -> ([(axum::http::HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, "application/json")], openapi())
}

#[cfg(test)]
mod tests;
