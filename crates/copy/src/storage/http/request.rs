//! A request to an HTTP server, and its body.

use std::io::Read;

use proto::http::url::HttpUrl;

use ftp::failure::Operation;

/// A request.
pub(in crate::storage) struct HttpRequest<'a> {
    /// Method, for example `GET`.
    pub(in crate::storage) method: &'a str,
    /// URL.
    pub(in crate::storage) url: &'a HttpUrl,
    /// Additional headers.
    pub(in crate::storage) headers: &'a [(&'a str, String)],
    /// The operation for messages, for example `read http://host/f`.
    pub(in crate::storage) action: &'a Operation,
}

impl HttpRequest<'_> {
    /// Whether the request may be sent to the target of a redirect with this status: where it changes nothing
    /// (RFC 9110 section 9.2.1), and for copies between servers. What another change would do elsewhere is unknown.
    pub(in crate::storage) fn follows(&self, status: u16) -> bool {
        match self.method {
            "GET" | "HEAD" => true,
            // 303 names something else that describes the resource (section 15.4.4).
            "PROPFIND" => status != 303,
            // WLCG HTTP-TPC: a redirector names the server that makes the copy, and nothing is done before (sections 15.4.8 and 15.4.9).
            "COPY" => matches!(status, 307 | 308),
            _ => false,
        }
    }
}

/// Body of a request.
pub(in crate::storage) enum HttpRequestBody<'b> {
    /// No body.
    Empty,
    /// This text.
    Text(&'b str),
    /// As many bytes as the Content-Length header says, or chunked without one.
    Bytes(&'b mut dyn Read),
}
