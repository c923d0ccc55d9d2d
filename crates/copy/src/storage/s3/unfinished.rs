//! Unfinished uploads that the server has, whoever began them: all below a path, and the one with which a copy can go on.

use std::time::SystemTime;

use ftp::failure::Operation;
use ftp::{Failure, FailureKind};
use proto::s3::documents::{ListedUpload, StoredPart, UploadsPage};
use proto::s3::parts::PartPlan;
use proto::timestamp::Timestamp;

use super::bucket::S3Bucket;
use super::record::BegunUpload;
use super::requests::{ask, command, not_understood};
use super::upload::{UploadTarget, stored_parts};
use crate::storage::http::client::HttpClient;
use crate::storage::http::request::HttpRequestBody;
use crate::storage::optional::{UnfinishedUpload, UploadMark};

/// Most uploads of a page: the parts of each are asked for.
const PAGE: &str = "100";
/// How long no part has arrived of an upload that its program has left, seconds. Parts of usual size take less on any path
/// that suits a large object.
const LEFT_FOR: i64 = 15 * 60;

/// Which uploads are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UploadSelection {
    /// That of an object.
    Object(String),
    /// Those of the object with this key, and of all objects below it.
    At(String),
    /// Those of all objects below a prefix, which ends with a slash or is empty.
    Below(String),
}

impl UploadSelection {
    fn prefix(&self) -> &str {
        match self {
            Self::Object(key) | Self::At(key) | Self::Below(key) => key,
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        let rest = key.strip_prefix(self.prefix().as_bytes());
        match self {
            Self::Object(_) => rest == Some(b""),
            Self::At(_) => rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/'))),
            Self::Below(_) => rest.is_some(),
        }
    }
}

/// ListMultipartUploads, one page.
fn uploads_page(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    wanted: &UploadSelection,
    after: Option<&UploadMark>,
    action: &Operation,
) -> Result<UploadsPage, Failure> {
    let mut query = vec![
        ("uploads", ""),
        ("encoding-type", "url"),
        ("prefix", wanted.prefix()),
        ("max-uploads", PAGE),
    ];
    if let Some(UploadMark { key, id }) = after {
        query.push(("key-marker", key));
        query.push(("upload-id-marker", id));
    }
    let url = bucket.url(&query);
    let body = ask(client, "GET", &url, &[], HttpRequestBody::Empty, action)?;
    let mut page = UploadsPage::parse(&body).map_err(|error| not_understood(action, error))?;
    if let (Some((key, id)), Some(before)) = (&page.next, after)
        && (key, id) == (&before.key, &before.id)
    {
        let reason = "the server sends the same page of the uploads again";
        return Err(action.failed(FailureKind::Protocol, reason));
    }
    page.uploads.retain(|upload| wanted.has(&upload.key));
    Ok(page)
}

/// Whether there are unfinished uploads, as far as the first page tells.
pub(super) fn has_some(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    wanted: &UploadSelection,
    action: &Operation,
) -> Result<bool, Failure> {
    uploads_page(client, bucket, wanted, None, action).map(|page| !page.uploads.is_empty())
}

/// A page of unfinished uploads, each with its bytes, and the mark of the next page.
pub(super) fn unfinished(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    wanted: &UploadSelection,
    after: Option<&UploadMark>,
    action: &Operation,
) -> Result<(Vec<UnfinishedUpload>, Option<UploadMark>), Failure> {
    let page = uploads_page(client, bucket, wanted, after, action)?;
    let mut uploads = Vec::with_capacity(page.uploads.len());
    for listed in &page.uploads {
        let path = [b"/", &listed.key[..]].concat();
        let Ok(key) = std::str::from_utf8(&listed.key) else {
            let reason = "the server lists an upload whose key is not UTF-8";
            return Err(action.failed(FailureKind::Protocol, reason));
        };
        let parts = match stored_parts(client, bucket, key, &listed.id, action) {
            // It has ended meanwhile.
            Err(missing) if missing.is_missing() => continue,
            parts => parts?,
        };
        uploads.push(UnfinishedUpload {
            path,
            id: listed.id.clone(),
            bytes: parts.iter().map(|part| part.size).sum(),
            last_change: last_change(listed, &parts),
        });
    }
    let next = page.next.map(|(key, id)| UploadMark { key, id });
    Ok((uploads, next))
}

/// When the last part arrived, or the upload began. `None`: unknown.
fn last_change(listed: &ListedUpload, parts: &[StoredPart]) -> Option<Timestamp> {
    let parts: Option<Vec<_>> = parts.iter().map(|part| part.modified).collect();
    listed.begun.max(parts?.into_iter().max())
}

/// AbortMultipartUpload.
pub(super) fn abort(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    key: &str,
    id: &str,
    action: &Operation,
) -> Result<(), Failure> {
    let url = bucket.object_url(key, &[("uploadId", id)]);
    match command(client, "DELETE", &url, &[], action) {
        // It is over already.
        Err(missing) if missing.is_missing() => Ok(()),
        aborted => aborted,
    }
}

/// The uploads of one object, of which no record of this machine knows.
#[derive(Debug, Default)]
pub(super) struct FoundUploads {
    /// The one with which a copy may go on, if its parts are those of the file.
    pub(super) left: Option<BegunUpload>,
    /// How many others there are.
    pub(super) others: usize,
}

/// Looks for uploads of an object of `length` bytes. Only one that its program has left is chosen: whoever goes on with that of
/// a running one would end it. `may_go_on`: one is to be chosen.
pub(super) fn find_left(
    client: &mut HttpClient,
    target: &UploadTarget,
    length: u64,
    may_go_on: bool,
) -> Result<FoundUploads, Failure> {
    let (bucket, action) = (&target.bucket, &target.action);
    let wanted = UploadSelection::Object(target.key.clone());
    // More uploads of one object than a page has are not looked at.
    let page = uploads_page(client, bucket, &wanted, None, action)?;
    let mut found = FoundUploads::default();
    // The newest one comes last.
    for listed in page.uploads.iter().rev() {
        if found.left.is_none() && may_go_on && has_usual_checksums(listed) {
            let parts = stored_parts(client, bucket, &target.key, &listed.id, action)?;
            let is_left = last_change(listed, &parts).is_some_and(|last| age(last) >= LEFT_FOR);
            // All parts but the last one have one size.
            let part = parts.iter().map(|part| part.size).max().unwrap_or(0);
            if is_left && PartPlan::with_part(length, part).is_some() {
                found.left = Some(BegunUpload {
                    id: listed.id.clone(),
                    part,
                    is_found: true,
                });
                continue;
            }
        }
        found.others += 1;
    }
    Ok(found)
}

/// Whether an upload can be completed with the checksums that those of this program have.
fn has_usual_checksums(listed: &ListedUpload) -> bool {
    let is = |text: &Option<String>, usual: &str| text.as_deref().is_none_or(|text| text == usual);
    is(&listed.algorithm, "CRC32C") && is(&listed.checksum_type, "FULL_OBJECT")
}

/// Seconds since a time. The clock of the server is near that of this machine: signatures need that.
fn age(at: Timestamp) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_those_of_a_key_or_below_it() {
        let key = || "a/b".to_owned();
        let below = UploadSelection::Below("a/b/".to_owned());
        for (listed, is_object, is_at, is_below) in [
            ("a/b", true, true, false),
            ("a/b/c", false, true, true),
            ("a/bc", false, false, false),
            ("a", false, false, false),
        ] {
            let listed = listed.as_bytes();
            assert_eq!(UploadSelection::Object(key()).has(listed), is_object);
            assert_eq!(UploadSelection::At(key()).has(listed), is_at);
            assert_eq!(below.has(listed), is_below);
        }
        assert!(UploadSelection::Below(String::new()).has(b"x"));
    }

    #[test]
    fn the_last_part_is_the_last_change() {
        let listed = ListedUpload {
            begun: Some(Timestamp(5)),
            ..ListedUpload::default()
        };
        let part = |seconds: Option<i64>| StoredPart {
            modified: seconds.map(Timestamp),
            ..StoredPart::default()
        };
        assert_eq!(last_change(&listed, &[]), Some(Timestamp(5)));
        let parts = [part(Some(9)), part(Some(7))];
        assert_eq!(last_change(&listed, &parts), Some(Timestamp(9)));
        // A part whose time is unknown may be the last one.
        assert_eq!(last_change(&listed, &[part(None)]), None);
    }
}
