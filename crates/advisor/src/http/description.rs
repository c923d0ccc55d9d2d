//! The OpenAPI 3.1 description of the HTTP interface.

use axum::http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, OpenApi as Document};
use utoipa::{Modify, OpenApi};

use super::answers::{AdviceSchema, QosSchema};
use super::{answers, health, json_api, live, metrics, operations, page, xml_rpc};

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
        json_api::advice, json_api::net_info, json_api::qos, json_api::paths, json_api::path, json_api::history, json_api::tests,
        json_api::hosts, live::events, json_api::add_host, json_api::remove_host, json_api::set_tests, json_api::run_test,
        json_api::report,
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
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_reference_of_the_description_leads_to_a_schema() {
        let text = openapi();
        let document: Value = serde_json::from_str(&text).unwrap();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        assert!(text.contains("\"token\""));
    }
}
