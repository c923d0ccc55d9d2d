//! Requests and responses in the log, as the dialogue of control connections: without logins, cookies, and the queries of
//! URLs, which may be signatures.

use proto::http::url::HttpUrl;
use ureq::Body;
use ureq::http::{HeaderValue, Response};

use super::request::HttpRequest;
use ftp::session::log_dialogue;

/// Headers of responses whose values may be secrets.
const SECRET: [&str; 4] = [
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "authentication-info",
];
/// Headers of requests whose values are secrets.
const SECRET_OF_REQUESTS: [&str; 5] = [
    "TransferHeaderAuthorization",
    "authorization",
    "x-amz-security-token",
    "x-amz-sso_bearer_token",
    "x-aws-ec2-metadata-token",
];
/// Longest value that is shown, characters.
const MAX_VALUE: usize = 500;

/// Whether a header of a request has a secret.
pub(super) fn is_secret(name: &str) -> bool {
    SECRET_OF_REQUESTS.contains(&name)
}

pub(super) fn log_request(request: &HttpRequest<'_>, to: &HttpUrl, has_login: bool) {
    let server = to.authority();
    log_dialogue(&server, ">", || format!("{} {to}", request.method));
    for (name, value) in request.headers {
        log_dialogue(&server, ">", || match is_secret(name) {
            true => format!("{name}: ***"),
            false => format!("{name}: {}", without_query(name, value)),
        });
    }
    if has_login {
        log_dialogue(&server, ">", || "authorization: ***".to_owned());
    }
}

/// `login`: the value of the Authorization header, which some servers repeat.
pub(super) fn log_response(response: &Response<Body>, from: &HttpUrl, login: Option<&HeaderValue>) {
    let server = from.authority();
    log_dialogue(&server, "<", || response.status().to_string());
    for (name, value) in response.headers() {
        log_dialogue(&server, "<", || {
            let is_secret = SECRET.contains(&name.as_str()) || has_login(value, login);
            let shown = match is_secret {
                true => "***".to_owned(),
                false => without_query(name.as_str(), &String::from_utf8_lossy(value.as_bytes())),
            };
            format!("{name}: {shown}")
        });
    }
}

/// Whether a value has the secret of a login: what is behind the name of its scheme.
fn has_login(value: &HeaderValue, login: Option<&HeaderValue>) -> bool {
    let login = login.map(HeaderValue::as_bytes).unwrap_or_default();
    let secret = login
        .split(|byte| *byte == b' ')
        .next_back()
        .unwrap_or_default();
    let mut parts = value.as_bytes().windows(secret.len().max(1));
    !secret.is_empty() && parts.any(|part| part == secret)
}

/// A value of a header; that of a URL without its query.
fn without_query(name: &str, value: &str) -> String {
    let urls = [
        "location",
        "content-location",
        "destination",
        "source",
        "link",
    ];
    let is_url = urls.iter().any(|url| url.eq_ignore_ascii_case(name));
    let shown: String = value.chars().take(MAX_VALUE).collect();
    match shown.split_once('?') {
        Some((before, _)) if is_url => format!("{before}?..."),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_the_server_repeats_is_a_secret() {
        let login = HeaderValue::from_static("Basic am9lOmh1c2g=");
        let value = |text| HeaderValue::from_static(text);
        assert!(has_login(
            &value("you said Basic am9lOmh1c2g=!"),
            Some(&login)
        ));
        assert!(!has_login(&value("Basic"), Some(&login)));
        assert!(!has_login(&value("am9lOmh1c2g="), None));
    }

    #[test]
    fn queries_of_urls_are_not_shown() {
        let location = "https://h/x?signature=hush";
        assert_eq!(without_query("location", location), "https://h/x?...");
        assert_eq!(without_query("etag", "\"a?b\""), "\"a?b\"");
        assert_eq!(without_query("x", &"y".repeat(9000)).len(), MAX_VALUE);
    }
}
