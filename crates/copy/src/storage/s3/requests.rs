//! Single requests about a bucket, each on the connection of a client.

use ftp::failure::Operation;
use ftp::{Failure, FailureKind};
use proto::s3::documents::{DocumentError, ListingPage, MAX_DOCUMENT, is_archive};

use super::bucket::S3Bucket;
use super::composite::ObjectComposite;
use crate::storage::http::client::HttpClient;
use crate::storage::http::facts::HttpFileFacts;
use crate::storage::http::request::{HttpRequest, HttpRequestBody};
use crate::storage::http::response::HttpResponse;
use proto::http::url::HttpUrl;

/// Sends a request. Success is a status of 200 to 206.
///
/// # Errors
/// The refusal by its class.
pub(super) fn call(
    client: &mut HttpClient,
    method: &str,
    url: &HttpUrl,
    headers: &[(&str, String)],
    body: HttpRequestBody<'_>,
    action: &Operation,
) -> Result<HttpResponse, Failure> {
    let request = HttpRequest {
        method,
        url,
        headers,
        action,
    };
    let response = client.send(&request, body)?;
    match response.status() {
        200..=206 => Ok(response),
        _ => Err(client.failure_of(action, response)),
    }
}

/// As [`call`]; returns the document in the answer.
pub(super) fn ask(
    client: &mut HttpClient,
    method: &str,
    url: &HttpUrl,
    headers: &[(&str, String)],
    body: HttpRequestBody<'_>,
    action: &Operation,
) -> Result<Vec<u8>, Failure> {
    let response = call(client, method, url, headers, body, action)?;
    client.read_body(response, action, MAX_DOCUMENT)
}

/// As [`call`], where the answer has nothing of interest.
pub(super) fn command(
    client: &mut HttpClient,
    method: &str,
    url: &HttpUrl,
    headers: &[(&str, String)],
    action: &Operation,
) -> Result<(), Failure> {
    let response = call(client, method, url, headers, HttpRequestBody::Empty, action)?;
    response.discard_body();
    Ok(())
}

/// The failure for a document that is not understood.
pub(super) fn not_understood(action: &Operation, error: DocumentError) -> Failure {
    let reason = format_args!("in the server's answer, {error}");
    action.failed(FailureKind::Protocol, reason)
}

/// Facts of an object.
#[derive(Debug, Clone)]
pub(super) struct ObjectFacts {
    pub(super) file: HttpFileFacts,
    /// Why it cannot be read: the storage class in which it is archived.
    pub(super) archive: Option<String>,
    /// The checksum of its parts' checksums, if it has one.
    pub(super) composite: Option<ObjectComposite>,
}

/// HeadObject.
pub(super) fn head(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    key: &str,
    action: &Operation,
) -> Result<ObjectFacts, Failure> {
    let (found, response) = examine(client, "HEAD", bucket, key, action)?;
    response.discard_body();
    Ok(found)
}

/// HeadObject or GetObject, whose responses have the same facts.
pub(super) fn examine(
    client: &mut HttpClient,
    method: &str,
    bucket: &S3Bucket,
    key: &str,
    action: &Operation,
) -> Result<(ObjectFacts, HttpResponse), Failure> {
    let url = bucket.object_url(key, &[]);
    let headers = [("x-amz-checksum-mode", "ENABLED".to_owned())];
    let response = call(
        client,
        method,
        &url,
        &headers,
        HttpRequestBody::Empty,
        action,
    )?;
    let mut file = HttpFileFacts::from_response(&response);
    // Some servers do not say so of what all of them do.
    file.accepts_ranges = true;
    let archive = archived_in(&response);
    let composite = ObjectComposite::of(&response);
    let found = ObjectFacts {
        file,
        archive,
        composite,
    };
    Ok((found, response))
}

/// The archive in which an object is, unless a copy of it has been restored.
fn archived_in(response: &HttpResponse) -> Option<String> {
    let tier = response.header("x-amz-archive-status");
    let class = response
        .header("x-amz-storage-class")
        .filter(|class| is_archive(class));
    let restored = response
        .header("x-amz-restore")
        .is_some_and(|text| text.contains("ongoing-request=\"false\""));
    let archive = tier.or(class).filter(|_| !restored)?;
    Some(archive.to_owned())
}

/// The region of a bucket (HeadBucket); `None`: the server tells none.
///
/// # Errors
/// There is no such bucket.
pub(super) fn region_of(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    action: &Operation,
) -> Result<Option<String>, Failure> {
    let request = HttpRequest {
        method: "HEAD",
        url: &bucket.url(&[]),
        headers: &[],
        action,
    };
    let response = client.send(&request, HttpRequestBody::Empty)?;
    let region = response.header("x-amz-bucket-region").map(str::to_owned);
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    match region {
        // A refusal tells the region, too.
        Some(region) => {
            Ok(Some(region).filter(|region| region.len() < 64 && region.bytes().all(is_letter)))
        }
        None if response.status() == 404 => Err(client.failure_of(action, response)),
        None => Ok(None),
    }
}

/// Which keys a page of a listing has.
#[derive(Debug, Clone, Default)]
pub(super) struct WantedPage {
    pub(super) prefix: String,
    /// Keys are grouped by their next component; otherwise all of them are listed.
    pub(super) is_grouped: bool,
    /// Most entries. 0: as many as the server likes.
    pub(super) most: u32,
    /// The token of the page before.
    pub(super) token: Option<String>,
}

/// ListObjectsV2, one page.
pub(super) fn list_page(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    wanted: &WantedPage,
    action: &Operation,
) -> Result<ListingPage, Failure> {
    let most = wanted.most.to_string();
    let mut query = vec![
        ("list-type", "2"),
        // XML cannot express every character of a key.
        ("encoding-type", "url"),
        ("prefix", wanted.prefix.as_str()),
    ];
    query.extend(wanted.is_grouped.then_some(("delimiter", "/")));
    query.extend((wanted.most > 0).then_some(("max-keys", most.as_str())));
    query.extend(
        wanted
            .token
            .as_deref()
            .map(|token| ("continuation-token", token)),
    );
    let url = bucket.url(&query);
    let body = ask(client, "GET", &url, &[], HttpRequestBody::Empty, action)?;
    let page = ListingPage::parse(&body).map_err(|error| not_understood(action, error))?;
    // Without an end, a listing would go on for ever.
    if page.next.is_some() && page.next == wanted.token {
        return Err(action.failed(
            FailureKind::Protocol,
            "the server sends the same page of the listing again",
        ));
    }
    Ok(page)
}

/// Whether any object is below a prefix.
pub(super) fn has_objects(
    client: &mut HttpClient,
    bucket: &S3Bucket,
    prefix: &str,
    action: &Operation,
) -> Result<bool, Failure> {
    let wanted = WantedPage {
        prefix: prefix.to_owned(),
        most: 1,
        ..WantedPage::default()
    };
    // A page may be empty and still not be the last one.
    let mut token = None;
    loop {
        let page = list_page(
            client,
            bucket,
            &WantedPage {
                token,
                ..wanted.clone()
            },
            action,
        )?;
        if !page.objects.is_empty() {
            return Ok(true);
        }
        if page.next.is_none() {
            return Ok(false);
        }
        token = page.next;
    }
}
