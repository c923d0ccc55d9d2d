//! The web page. It loads nothing from elsewhere, uses no cookies, and changes nothing.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, header};

/// Rules for the browser: only the files of this server, and no text that becomes a program.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

type Resource<const HEADERS: usize> = ([(HeaderName, &'static str); HEADERS], &'static str);

/// The page: paths with their advice, and their history.
#[utoipa::path(
    get, path = "/", tag = "page",
    responses((status = 200, content_type = "text/html", body = String)),
)]
pub(super) async fn html() -> Resource<2> {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
    ];
    (headers, include_str!("page/page.html"))
}

/// Style of the page.
#[utoipa::path(
    get, path = "/page.css", tag = "page",
    responses((status = 200, content_type = "text/css", body = String)),
)]
pub(super) async fn css() -> Resource<1> {
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8")];
    (headers, include_str!("page/page.css"))
}

/// Program of the page.
#[utoipa::path(
    get, path = "/page.js", tag = "page",
    responses((status = 200, content_type = "text/javascript", body = String)),
)]
pub(super) async fn script() -> Resource<1> {
    let headers = [(CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (headers, include_str!("page/page.js"))
}
