//! One response of an HTTP server.

use std::io::Read;

use proto::http::url::HttpUrl;
use ureq::Body;
use ureq::http::Response;

/// Longest unwanted response body that is read so that the connection can be reused, bytes.
const MAX_DISCARDED_BODY: u64 = 64 << 10;

/// A response whose body has not been read yet.
pub(super) struct HttpResponse {
    pub(super) response: Response<Body>,
    /// URL that sent the response, after redirects.
    pub(super) url: HttpUrl,
}

impl HttpResponse {
    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// A header by its lower-case name, the first of several. `None` also if it is not text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let value = self.response.headers().get(name)?;
        value.to_str().ok().map(str::trim)
    }

    /// All headers that are text, with lower-case names.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.response.headers().iter();
        fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// The body as a stream.
    pub(super) fn into_body(self) -> impl Read + Send + 'static {
        self.response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader()
    }

    /// Reads and discards a short body, so that the connection can be reused.
    pub(super) fn discard_body(self) {
        let mut rest = self.into_body().take(MAX_DISCARDED_BODY);
        let _ = std::io::copy(&mut rest, &mut std::io::sink());
    }
}
