//! Facts of a file as reported in a response.

use proto::checksum::ChecksumAlgorithm;
use proto::http::content_range::{ContentRange, parse_number};
use proto::http::multistatus::is_strong_etag;
use proto::http::url::HttpUrl;
use proto::http::{date, digest};
use proto::listing::{EntryKind, ListedEntry};

use super::response::HttpResponse;

/// Facts of a file when they were last read.
#[derive(Debug, Clone)]
pub(super) struct HttpFileFacts {
    /// URL after redirects.
    pub(super) url: HttpUrl,
    pub(super) size: Option<u64>,
    /// Strong entity tag as sent by the server.
    pub(super) etag: Option<String>,
    /// Last-Modified as sent by the server.
    pub(super) modified: Option<String>,
    /// The server accepts range requests.
    pub(super) accepts_ranges: bool,
    /// Checksums of the whole file, lower-case hex.
    pub(super) checksums: Vec<(ChecksumAlgorithm, String)>,
}

impl HttpFileFacts {
    /// From a response to HEAD, or to GET of the first byte.
    pub(super) fn from_response(response: &HttpResponse) -> Self {
        let partial = response.status() == 206;
        let content_range = response
            .header("content-range")
            .and_then(ContentRange::parse);
        // Content-Length of a 206 is the length of the range, not of the file.
        let size = match partial {
            true => content_range.and_then(|content_range| content_range.complete_length),
            false => response.header("content-length").and_then(parse_number),
        };
        let accepts = response.header("accept-ranges");
        let text = |name: &str| response.header(name).map(str::to_owned);
        Self {
            url: response.url.clone(),
            size,
            // A weak tag does not guarantee equal bytes (RFC 9110 section 8.8.3).
            etag: text("etag").filter(|etag| is_strong_etag(etag)),
            modified: text("last-modified").filter(|value| date::parse(value).is_some()),
            accepts_ranges: partial || accepts.is_some_and(|how| how.eq_ignore_ascii_case("bytes")),
            checksums: digest::checksums_from_fields(response.headers(), partial),
        }
    }

    /// Whether a response describes the same bytes, as far as it says.
    pub(super) fn matches(&self, response: &HttpResponse) -> bool {
        match (&self.etag, response.header("etag")) {
            (Some(known), Some(value)) => known == value,
            _ => match (&self.modified, response.header("last-modified")) {
                (Some(known), Some(value)) => known == value,
                _ => true,
            },
        }
    }

    pub(super) fn entry(&self, name: &[u8], kind: EntryKind) -> ListedEntry {
        let is_file = kind == EntryKind::File;
        ListedEntry {
            size: self.size.filter(|_| is_file),
            modified: self.modified.as_deref().and_then(date::parse),
            unique: self.etag.clone().filter(|_| is_file),
            ..ListedEntry::new(name, kind)
        }
    }
}
