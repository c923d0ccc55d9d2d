//! The file that is fetched next. If it is small, the request for its facts asks for its bytes as well.

use super::ranges::MIN_REQUEST_BYTES;
use super::response::HttpResponse;

/// The file that a session fetches next, as far as it knows it.
#[derive(Debug, Default)]
pub(in crate::storage) struct ExpectedFetch {
    /// Its path and size.
    expected: Option<(Vec<u8>, u64)>,
    /// The path of a file, and the unread response of the request that has examined it.
    begun: Option<(Vec<u8>, HttpResponse)>,
}

impl ExpectedFetch {
    /// Expects another file. Returns `true` if bytes were asked for that nobody has fetched: the facts that came with them are
    /// of that time.
    pub(in crate::storage) fn expect(&mut self, path: &[u8], size: u64) -> bool {
        self.expected = Some((path.to_vec(), size));
        self.begun.take().is_some()
    }

    /// Whether the next request for the facts of this file shall ask for its bytes. A file is expected once.
    pub(in crate::storage) fn take_expected(&mut self, path: &[u8]) -> bool {
        // One reader fetches up to so many bytes by one request, and of an empty file nothing.
        self.expected
            .take()
            .is_some_and(|(at, size)| at == path && (1..=MIN_REQUEST_BYTES).contains(&size))
    }

    /// Keeps the response of the request that has examined the file at `path`.
    pub(in crate::storage) fn begin(&mut self, path: &[u8], response: HttpResponse) {
        self.begun = Some((path.to_vec(), response));
    }

    /// The response with the bytes of this file. That of another one is dropped.
    pub(in crate::storage) fn take_begun(&mut self, path: &[u8]) -> Option<HttpResponse> {
        let (at, response) = self.begun.take()?;
        (at == path).then_some(response)
    }

    /// Drops a response that nobody has read. It would keep its connection from the next request.
    pub(in crate::storage) fn drop_begun(&mut self) {
        self.begun = None;
    }
}
