//! A request to an HTTP server, and its body.

use std::io::Read;

use proto::http::url::HttpUrl;

/// A request.
pub(super) struct HttpRequest<'a> {
    /// Method, for example `GET`.
    pub(super) method: &'a str,
    /// URL.
    pub(super) url: &'a HttpUrl,
    /// Additional headers.
    pub(super) headers: &'a [(&'a str, String)],
    /// The operation for messages, for example `read http://host/f`.
    pub(super) action: &'a str,
}

/// Body of a request.
pub(super) enum HttpRequestBody<'b> {
    /// No body.
    Empty,
    /// This text.
    Text(&'static str),
    /// As many bytes as the Content-Length header says, or chunked without one.
    Bytes(&'b mut dyn Read),
}
