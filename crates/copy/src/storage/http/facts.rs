//! Facts of a file as reported in a response.

use proto::checksum::ChecksumAlgorithm;
use proto::http::content_range::ContentRange;
use proto::http::multistatus::is_strong_etag;
use proto::http::url::HttpUrl;
use proto::http::{date, digest};
use proto::listing::{EntryKind, ListedEntry};

use super::response::HttpResponse;
use crate::storage::contract::FilePart;
use ftp::Failure;

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

    /// The checksum that the server has of a part, which it has of the whole file only.
    ///
    /// # Errors
    /// `Protocol`: it has none, as the message says with those that it has. `server` is its name.
    pub(in crate::storage) fn checksum_of(
        &self,
        algorithm: ChecksumAlgorithm,
        part: &FilePart,
        server: &str,
    ) -> Result<String, Failure> {
        let is_whole = part.offset == 0 && (part.length.is_none() || part.length == self.size);
        let known = |(known, _): &&(ChecksumAlgorithm, String)| *known == algorithm;
        let reason = match (self.checksums.iter().find(known), self.checksums.first()) {
            (Some((_, sum)), _) if is_whole => return Ok(sum.clone()),
            (_, Some(_)) if !is_whole => "has checksums of whole files only".to_owned(),
            (_, Some((first, _))) => {
                let names: Vec<&str> = self.checksums.iter().map(|(sum, _)| sum.name()).collect();
                format!(
                    "has no {} of this file, but {}: use cksum -a {first}, or cp --verify {first}",
                    algorithm.name(),
                    names.join(", "),
                    first = first.name().to_ascii_lowercase()
                )
            }
            (_, None) => format!(
                "has no {} of this file, nor another checksum of the whole: copy it, or use cp --verify none",
                algorithm.name()
            ),
        };
        Err(Failure::protocol(format!("{server} {reason}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_that_a_file_does_not_have_is_refused_with_those_that_it_has() {
        let facts = |checksums| HttpFileFacts {
            url: HttpUrl::new(false, "h", 80, b"/f", None),
            size: Some(10),
            etag: None,
            modified: None,
            accepts_ranges: true,
            checksums,
        };
        let (wanted, has) = (ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Md5);
        let part = |length| FilePart { offset: 0, length };
        let ask = |facts: &HttpFileFacts, algorithm, length| {
            let sum = facts.checksum_of(algorithm, &part(length), "s3://b");
            sum.map_err(|failure| failure.to_string())
        };
        let one = facts(vec![(has, "ab".to_owned())]);
        assert_eq!(ask(&one, has, None), Ok("ab".to_owned()));
        assert_eq!(ask(&one, has, Some(10)), Ok("ab".to_owned()));
        let refused = ask(&one, wanted, None).unwrap_err();
        let expected =
            "s3://b has no SHA256 of this file, but MD5: use cksum -a md5, or cp --verify md5";
        assert_eq!(refused, expected);
        let refused = ask(&one, has, Some(9)).unwrap_err();
        assert!(refused.contains("whole files only"), "{refused}");
        let refused = ask(&facts(Vec::new()), wanted, None).unwrap_err();
        assert!(refused.contains("nor another checksum"), "{refused}");
    }
}
