//! Requests and refusals of one kind of server, as far as they differ from plain HTTP.

use proto::http::url::HttpUrl;

use super::request::HttpRequest;
use super::response::HttpResponse;
use ftp::Failure;
use ftp::failure::Operation;

/// A request as it is sent.
pub(in crate::storage) struct DialectRequest {
    /// The whole URL, perhaps with a signature. It is not shown.
    pub(in crate::storage) uri: String,
    /// Further headers.
    pub(in crate::storage) headers: Vec<(&'static str, String)>,
}

/// A kind of HTTP server with signatures and errors of its own.
pub(in crate::storage) trait HttpDialect: Send + Sync + std::fmt::Debug {
    /// Prepares a request to `to`, which may be the target of a redirect.
    ///
    /// # Errors
    /// The request cannot be signed.
    fn prepare(&self, request: &HttpRequest<'_>, to: &HttpUrl) -> Result<DialectRequest, Failure>;

    /// The failure of a request that was answered with this response.
    fn failure(&self, action: &Operation, response: HttpResponse) -> Failure;
}
