//! Requests that change names: directories, removals, renames.
//!
//! A directory is what keys have in common. An empty one is an object without bytes whose key ends with a slash, as Amazon's
//! console makes it.

use data::checksum::ChecksumHasher;
use ftp::answers::{RefusedRenameStep, RenameFailure};
use ftp::failure::Operation;
use ftp::{Failure, FailureKind};
use proto::checksum::ChecksumAlgorithm;
use proto::s3::documents;

use super::bucket::S3Bucket;
use super::checksums::base64_of_hex;
use super::dialect::error_failure;
use super::requests::{WantedPage, ask, command, has_objects, head, list_page, not_understood};
use crate::storage::contract::RemovedKind;
use crate::storage::http::client::HttpClient;
use crate::storage::http::request::HttpRequestBody;

/// Largest object that one request copies, bytes.
const MAX_COPY: u64 = 5 << 30;

/// A path of a bucket.
#[derive(Debug, Clone)]
pub(super) struct PlaceInBucket {
    pub(super) bucket: S3Bucket,
    /// The key of an object there.
    pub(super) key: String,
    /// The prefix of the keys below.
    pub(super) prefix: String,
}

/// Makes a directory. `false`: it exists.
pub(super) fn make_directory(
    client: &mut HttpClient,
    at: &PlaceInBucket,
    action: &Operation,
) -> Result<bool, Failure> {
    let PlaceInBucket { bucket, prefix, .. } = at;
    if has_objects(client, bucket, prefix, action)? {
        return Ok(false);
    }
    let above = prefix
        .trim_end_matches('/')
        .rfind('/')
        .map(|end| &prefix[..=end]);
    if let Some(above) = above
        && !has_objects(client, bucket, above, action)?
    {
        return Err(action.failed(
            FailureKind::NotFound,
            "the directory above it does not exist; make it first",
        ));
    }
    put_mark(client, bucket, prefix, action)?;
    Ok(true)
}

/// Makes the object without bytes that marks a directory.
pub(super) fn put_mark(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    prefix: &str,
    action: &Operation,
) -> Result<(), Failure> {
    let headers = [("content-length", "0".to_owned())];
    let url = bucket.object_url(prefix, &[]);
    command(client, "PUT", &url, &headers, action)
}

/// The content of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryContent {
    /// There is no such directory.
    Missing,
    /// Nothing but the mark of the directory itself.
    Mark,
    /// Something.
    Entries,
}

/// Looks what is in a directory.
pub(super) fn content_of(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    prefix: &str,
    action: &Operation,
) -> Result<DirectoryContent, Failure> {
    let wanted = WantedPage {
        prefix: prefix.to_owned(),
        most: 2,
        ..WantedPage::default()
    };
    let page = list_page(client, bucket, &wanted, action)?;
    let is_mark = |key: &[u8]| key == prefix.as_bytes();
    let has_entries =
        page.next.is_some() || page.objects.iter().any(|object| !is_mark(&object.key));
    Ok(match (has_entries, page.objects.is_empty()) {
        (true, _) => DirectoryContent::Entries,
        (false, true) => DirectoryContent::Missing,
        (false, false) => DirectoryContent::Mark,
    })
}

/// Removes what is at a path, if it is of this kind.
pub(super) fn remove(
    client: &mut HttpClient,
    at: &PlaceInBucket,
    kind: RemovedKind,
    action: &Operation,
) -> Result<(), Failure> {
    let PlaceInBucket {
        bucket,
        key,
        prefix,
    } = at;
    if kind == RemovedKind::EmptyDirectory {
        return remove_empty_directory(client, bucket, prefix, action);
    }
    let object = match head(client, bucket, key, action) {
        Err(missing) if missing.is_missing() => None,
        object => Some(object?),
    };
    if object.is_some() {
        return command(client, "DELETE", &bucket.object_url(key, &[]), &[], action);
    }
    let is_directory = has_objects(client, bucket, prefix, action)?;
    match kind {
        _ if !is_directory => Err(missing(action)),
        RemovedKind::Tree => remove_below(client, bucket, prefix, action),
        _ => Err(action.failed(
            FailureKind::Usage,
            "a directory is there; `longhaul rm -r` removes it with all that is in it",
        )),
    }
}

fn missing(action: &Operation) -> Failure {
    action.failed(
        FailureKind::NotFound,
        "the bucket has no such object; check the path",
    )
}

fn remove_empty_directory(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    prefix: &str,
    action: &Operation,
) -> Result<(), Failure> {
    match content_of(client, bucket, prefix, action)? {
        DirectoryContent::Entries => {
            return Err(action.failed(FailureKind::Refused, "the directory is not empty"));
        }
        DirectoryContent::Missing => return Err(missing(action)),
        DirectoryContent::Mark => {}
    }
    command(
        client,
        "DELETE",
        &bucket.object_url(prefix, &[]),
        &[],
        action,
    )
}

/// Removes every object below a prefix, page by page (DeleteObjects).
fn remove_below(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    prefix: &str,
    action: &Operation,
) -> Result<(), Failure> {
    let mut wanted = WantedPage {
        prefix: prefix.to_owned(),
        ..WantedPage::default()
    };
    loop {
        let page = list_page(client, bucket, &wanted, action)?;
        let mut keys = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            let key = std::str::from_utf8(&object.key).ok();
            let key = key.filter(|key| key.starts_with(prefix));
            keys.push(key.ok_or_else(|| {
                let reason = "the server lists a key that is not below it";
                action.failed(FailureKind::Protocol, reason)
            })?);
        }
        remove_objects(client, bucket, &keys, action)?;
        if page.next.is_none() {
            return Ok(());
        }
        wanted.token = page.next;
    }
}

fn remove_objects(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    keys: &[&str],
    action: &Operation,
) -> Result<(), Failure> {
    // XML cannot express these, and no path leads to such an object, but it is in the way of the directory's end.
    let (odd, plain): (Vec<&str>, Vec<&str>) = keys
        .iter()
        .partition(|key| key.chars().any(char::is_control));
    for key in odd {
        command(client, "DELETE", &bucket.object_url(key, &[]), &[], action)?;
    }
    if plain.is_empty() {
        return Ok(());
    }
    let text = documents::removal_request(&plain);
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Md5);
    hasher.update(text.as_bytes());
    let mut headers = vec![("content-type", "application/xml".to_owned())];
    // The request must have a checksum.
    headers.extend(base64_of_hex(&hasher.finish()).map(|sum| ("content-md5", sum)));
    let url = bucket.url(&[("delete", "")]);
    let body = ask(
        client,
        "POST",
        &url,
        &headers,
        HttpRequestBody::Text(&text),
        action,
    )?;
    match documents::removal_error(&body) {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error_failure(action, &error, 200)),
        Err(error) => Err(not_understood(action, error)),
    }
}

/// Gives an object another name, by a copy within the server.
pub(super) fn rename(
    client: &mut HttpClient,
    from: &PlaceInBucket,
    to: &PlaceInBucket,
    headers: &[(&'static str, String)],
    action: &Operation,
) -> Result<(), RenameFailure> {
    let bucket = &from.bucket;
    let object = match head(client, bucket, &from.key, action) {
        Err(failure) if failure.is_missing() => {
            if has_objects(client, bucket, &from.prefix, action)? {
                let reason = "a directory is there, and directories of a bucket have no name of their own: copy it";
                return Err(unsupported(action.failed(FailureKind::Protocol, reason)));
            }
            return Err(RenameFailure {
                failure,
                refused_step: RefusedRenameStep::RnfrRefused,
            });
        }
        object => object?,
    };
    if object.file.size.is_none_or(|size| size > MAX_COPY) {
        let reason = "the server renames no objects of more than 5 GiB: copy it";
        return Err(unsupported(action.failed(FailureKind::Protocol, reason)));
    }
    if has_objects(client, bucket, &to.prefix, action)? {
        return Err(RenameFailure {
            failure: action.failed(
                FailureKind::Usage,
                "a directory is there; name the file in it",
            ),
            refused_step: RefusedRenameStep::NewNameIsTaken,
        });
    }
    let mut fields = headers.to_vec();
    fields.push(("content-length", "0".to_owned()));
    fields.push(("x-amz-copy-source", bucket.copy_source(&from.key)));
    if let Some(etag) = object.file.strong_etag() {
        fields.push(("x-amz-copy-source-if-match", etag.to_owned()));
    }
    let url = bucket.object_url(&to.key, &[]);
    let body = ask(client, "PUT", &url, &fields, HttpRequestBody::Empty, action)?;
    match documents::copy_result(&body) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(error_failure(action, &error, 200).into()),
        Err(error) => return Err(not_understood(action, error).into()),
    }
    command(
        client,
        "DELETE",
        &bucket.object_url(&from.key, &[]),
        &[],
        action,
    )?;
    Ok(())
}

fn unsupported(failure: Failure) -> RenameFailure {
    RenameFailure {
        failure,
        refused_step: RefusedRenameStep::Unsupported,
    }
}
