//! Facts of a file as reported in a response.

use proto::checksum::ChecksumAlgorithm;
use proto::http::content_range::ContentRange;
use proto::http::multistatus::is_strong_etag;
use proto::http::url::HttpUrl;
use proto::http::{date, digest};
use proto::listing::{EntryKind, ListedEntry};

use super::response::HttpResponse;

/// Facts of a file when they were last read.
#[derive(Debug, Clone)]
pub(in crate::storage) struct HttpFileFacts {
    /// URL after redirects.
    pub(in crate::storage) url: HttpUrl,
    pub(in crate::storage) size: Option<u64>,
    /// Entity tag as sent by the server, strong or weak.
    etag: Option<String>,
    /// Last-Modified as sent by the server.
    modified: Option<String>,
    /// The server accepts range requests.
    pub(in crate::storage) accepts_ranges: bool,
    /// Checksums of the whole file, lower-case hex.
    pub(in crate::storage) checksums: Vec<(ChecksumAlgorithm, String)>,
}

impl HttpFileFacts {
    /// From a response with a file, or with a part of it.
    pub(in crate::storage) fn from_response(response: &HttpResponse) -> Self {
        let partial = response.status() == 206;
        let content_range = response
            .header("content-range")
            .and_then(ContentRange::parse);
        // Content-Length of a 206 is the length of the range, not of the file.
        let size = match partial {
            true => content_range.and_then(|content_range| content_range.complete_length),
            false => response.length(),
        };
        let accepts = response.header("accept-ranges");
        let text = |name: &str| response.header(name).map(str::to_owned);
        Self {
            url: response.url.clone(),
            size,
            etag: text("etag"),
            modified: text("last-modified").filter(|value| date::parse(value).is_some()),
            accepts_ranges: partial || accepts.is_some_and(|how| how.eq_ignore_ascii_case("bytes")),
            checksums: digest::checksums_from_fields(response.headers(), partial),
        }
    }

    /// The entity tag that no other version has (RFC 9110 section 8.8.1). A date is none: a file can be written twice in a second,
    /// or be given an earlier time.
    pub(in crate::storage) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| is_strong_etag(etag))
    }

    /// Whether other facts may be of the same version, as far as both tell.
    pub(in crate::storage) fn may_be_same(&self, other: &Self) -> bool {
        // Weak comparison (RFC 9110 section 8.8.3.2): even a weak tag that differs is another version.
        let opaque = |etag: &Option<String>| {
            let etag = etag.as_deref()?;
            Some(etag.strip_prefix("W/").unwrap_or(etag).to_owned())
        };
        agree(self.size, other.size)
            && agree(opaque(&self.etag), opaque(&other.etag))
            && agree(self.modified.as_ref(), other.modified.as_ref())
    }

    pub(in crate::storage) fn entry(&self, name: &[u8], kind: EntryKind) -> ListedEntry {
        let is_file = kind == EntryKind::File;
        ListedEntry {
            size: self.size.filter(|_| is_file),
            modified: self.modified.as_deref().and_then(date::parse),
            version: self.strong_etag().filter(|_| is_file).map(str::to_owned),
            ..ListedEntry::new(name, kind)
        }
    }
}

/// Whether two facts are the same, or one is unknown.
fn agree<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.zip(b).is_none_or(|(a, b)| a == b)
}
