//! A request to an HTTP server, and its body.

use std::io::Read;

use proto::http::url::HttpUrl;

use ftp::failure::Operation;

/// A request.
pub(super) struct HttpRequest<'a> {
    /// Method, for example `GET`.
    pub(super) method: &'a str,
    /// URL.
    pub(super) url: &'a HttpUrl,
    /// Additional headers.
    pub(super) headers: &'a [(&'a str, String)],
    /// The operation for messages, for example `read http://host/f`.
    pub(super) action: &'a Operation,
}

impl HttpRequest<'_> {
    /// Whether the request may be sent to the target of a redirect with this status: where it changes nothing
    /// (RFC 9110 section 9.2.1). What a change would do elsewhere is unknown.
    pub(super) fn follows(&self, status: u16) -> bool {
        match self.method {
            "GET" | "HEAD" => true,
            // 303 names something else that describes the resource (section 15.4.4).
            "PROPFIND" => status != 303,
            _ => false,
        }
    }
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
