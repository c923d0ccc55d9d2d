//! All routes, in one list from which the router is made.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{self, MethodRouter};

use super::shared::Shared;
use super::{description, health, json_api, live, metrics, page, xml_rpc};

/// A path, a method and what answers.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "compared with the description"))]
    method: &'static str,
    path: &'static str,
    answer: MethodRouter<Arc<Shared>>,
}

fn get<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    Route {
        method: "get",
        path,
        answer: routing::get(handler),
    }
}

fn post<H, T>(path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    Route {
        method: "post",
        path,
        answer: routing::post(handler),
    }
}

/// Every route. Without `has_metrics`, /metrics is left out.
fn all(has_metrics: bool) -> Vec<Route> {
    let mut routes = vec![
        get("/", page::html),
        get("/page.css", page::css),
        get("/page.js", page::script),
        post("/", xml_rpc::root),
        post("/RPC2", xml_rpc::rpc2),
        get("/health", health::health),
        get("/api/v1/openapi.json", description::json),
        get("/api/v1/advice", json_api::advice),
        get("/api/v1/net-info", json_api::net_info),
        get("/api/v1/qos", json_api::qos),
        get("/api/v1/paths", json_api::paths),
        get("/api/v1/paths/{client}", json_api::path),
        get("/api/v1/paths/{client}/history", json_api::history),
        get("/api/v1/events", live::events),
        get("/api/v1/tests", json_api::tests),
        get("/api/v1/hosts", json_api::hosts),
        post("/api/v1/hosts", json_api::add_host),
        Route {
            method: "delete",
            path: "/api/v1/hosts/{client}",
            answer: routing::delete(json_api::remove_host),
        },
        Route {
            method: "put",
            path: "/api/v1/hosts/{client}/tests",
            answer: routing::put(json_api::set_tests),
        },
        post("/api/v1/hosts/{client}/tests/{test}", json_api::run_test),
        post("/api/v1/report", json_api::report),
    ];
    if has_metrics {
        routes.push(get("/metrics", metrics::metrics));
    }
    routes
}

/// The router of all routes.
pub(super) fn router(shared: &Arc<Shared>) -> Router {
    let mut router = Router::new();
    for route in all(shared.advisor.config().metrics) {
        router = router.route(route.path, route.answer);
    }
    let counted = middleware::from_fn_with_state(Arc::clone(shared), count);
    router.route_layer(counted).with_state(Arc::clone(shared))
}

async fn count(
    State(shared): State<Arc<Shared>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    // Any word may be a method; those that no route has are one.
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE") => known.to_owned(),
        _ => "other".to_owned(),
    };
    let response = next.run(request).await;
    let path = route.as_ref().map_or("", MatchedPath::as_str);
    let status = response.status().as_u16();
    shared.requests.route(format!("{method} {path}"), status);
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::openapi;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let routes: BTreeSet<(String, String)> = all(true)
            .iter()
            .map(|route| (route.path.to_owned(), route.method.to_owned()))
            .collect();
        let description: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (path.clone(), method.clone()))
        });
        assert_eq!(described.collect::<BTreeSet<_>>(), routes);
    }
}
