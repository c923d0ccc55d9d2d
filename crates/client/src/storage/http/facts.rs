//! Facts of a file that an answer tells.

use proto::checksum::ChecksumAlgorithm;
use proto::http::content_range::{ContentRange, parse_number};
use proto::http::multistatus::is_strong_etag;
use proto::http::url::HttpUrl;
use proto::http::{date, digest};
use proto::listing::{EntryKind, ListedEntry};

use super::client::HttpResponse;

/// A file as it was when it was last looked at.
#[derive(Debug, Clone)]
pub(super) struct HttpFileFacts {
    /// Where redirects led.
    pub(super) target: HttpUrl,
    pub(super) size: Option<u64>,
    /// Strong entity tag, as told.
    pub(super) etag: Option<String>,
    /// Last-Modified, as told.
    pub(super) modified: Option<String>,
    /// Parts can be asked for.
    pub(super) ranges: bool,
    /// Checksums of the whole, lower-case hex.
    pub(super) sums: Vec<(ChecksumAlgorithm, String)>,
}

impl HttpFileFacts {
    /// Of an answer to HEAD, or to GET of the first byte.
    pub(super) fn of(reply: &HttpResponse) -> Self {
        let partial = reply.status() == 206;
        let told = reply.field("content-range").and_then(ContentRange::parse);
        let size = match partial {
            true => told.and_then(|told| told.complete_length),
            false => reply.field("content-length").and_then(parse_number),
        };
        let accepts = reply.field("accept-ranges");
        let text = |name: &str| reply.field(name).map(str::to_owned);
        Self {
            target: reply.target.clone(),
            size,
            etag: text("etag").filter(|etag| is_strong_etag(etag)),
            modified: text("last-modified").filter(|told| date::parse(told).is_some()),
            ranges: partial || accepts.is_some_and(|how| how.eq_ignore_ascii_case("bytes")),
            sums: digest::checksums_from_fields(reply.fields(), partial),
        }
    }

    /// Whether an answer is about the same bytes, as far as it tells.
    pub(super) fn is_same(&self, reply: &HttpResponse) -> bool {
        match (&self.etag, reply.field("etag")) {
            (Some(known), Some(told)) => known == told,
            _ => match (&self.modified, reply.field("last-modified")) {
                (Some(known), Some(told)) => known == told,
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
