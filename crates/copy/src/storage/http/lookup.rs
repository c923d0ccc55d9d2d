//! Facts of a path: PROPFIND where the server has WebDAV, otherwise HEAD.

use proto::http::digest;
use proto::http::multistatus::{self, DavListing, DavResource, MAX_BODY};
use proto::http::url::HttpUrl;
use proto::listing::{EntryKind, ListedEntry};

use super::client::HttpClient;
use super::errors::{self, RefusedRequest};
use super::facts::HttpFileFacts;
use super::request::{HttpRequest, HttpRequestBody};
use super::response::HttpResponse;
use ftp::failure::Operation;
use ftp::{Failure, FailureKind};

/// The facts of a path, as far as one request or two have told them.
#[derive(Debug)]
pub(super) struct ResourceFacts {
    pub(super) entry: ListedEntry,
    /// From HEAD, if it was sent. Of a file only.
    pub(super) file: Option<HttpFileFacts>,
    pub(super) support: WebDavSupport,
}

/// Whether a server has WebDAV, as far as its answers have told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebDavSupport {
    Unknown,
    Has,
    HasNot,
}

/// Asks what a path is. Only PROPFIND tells files from collections: many servers answer HEAD for both in the same way.
/// `support` is that of the directory. `name` is that of the entry.
pub(super) fn examine(
    client: &mut HttpClient,
    urls: &FileUrls,
    name: &[u8],
    support: WebDavSupport,
) -> Result<ResourceFacts, Failure> {
    let (entry, support) = match support {
        WebDavSupport::HasNot => (None, support),
        _ => described(client, urls, name, support)?,
    };
    if let Some(entry) = entry {
        return Ok(ResourceFacts {
            entry,
            file: None,
            support,
        });
    }
    let (facts, is_directory) = urls.head(client).map_err(|refused| refused.failure)?;
    let kind = match is_directory {
        true => EntryKind::Dir,
        false => EntryKind::File,
    };
    Ok(ResourceFacts {
        entry: facts.entry(name, kind),
        file: Some(facts).filter(|_| !is_directory),
        support,
    })
}

/// The entry of a path as PROPFIND tells it; `None` where HEAD may decide what it is. With what is known of the server then.
fn described(
    client: &mut HttpClient,
    urls: &FileUrls,
    name: &[u8],
    support: WebDavSupport,
) -> Result<(Option<ListedEntry>, WebDavSupport), Failure> {
    let url = &urls.requested;
    let action = Operation::on("read", url);
    let refused = match propfind(client, url, 0, &action) {
        Ok(described) => {
            let itself = described.listing().itself;
            return match itself.and_then(|itself| itself.to_entry(name)) {
                Some(entry) if entry.kind == EntryKind::Dir || entry.size.is_some() => {
                    Ok((Some(entry), WebDavSupport::Has))
                }
                // A file without its length.
                Some(_) => Ok((None, support)),
                // A proxy may have given a file another path.
                None if itself.is_none() && !described.has_collections() => Ok((None, support)),
                None => Err(unknown_kind(client, urls, &action)),
            };
        }
        Err(refused) => refused,
    };
    let has_no_method = matches!(refused.status, Some(405 | 501));
    match (support, refused.status) {
        _ if has_no_method && support == WebDavSupport::Has => Ok((None, support)),
        (WebDavSupport::Has, _) => Err(refused.failure),
        (_, Some(status)) if lacks_webdav(status) => Ok((None, WebDavSupport::HasNot)),
        // Who fails, is busy, is lost or is not understood has said nothing.
        (_, Some(207 | 500..)) => Err(refused.failure),
        _ if refused.failure.may_retry() => Err(refused.failure),
        // Servers that do not know the method refuse it in some way.
        _ => Ok((None, support)),
    }
}

/// The failure for a path of which a server with WebDAV does not say what it is. HEAD says at least whether anything is there.
fn unknown_kind(client: &mut HttpClient, urls: &FileUrls, action: &Operation) -> Failure {
    match urls.head(client) {
        Err(refused) if refused.failure.is_missing() || refused.failure.may_retry() => {
            refused.failure
        }
        _ => errors::unknown_kind(action),
    }
}

/// Whether a status in response to PROPFIND says that the server has no WebDAV there. Any other refusal may be about the one
/// path, or the one moment.
pub(super) fn lacks_webdav(status: u16) -> bool {
    matches!(status, 200..=206 | 208..=299 | 405 | 501)
}

/// The URLs of a file.
#[derive(Debug, Clone)]
pub(super) struct FileUrls {
    pub(super) requested: HttpUrl,
    /// The URL to which the last request for it was redirected. Another mirror has other entity tags.
    pub(super) last_target: Option<HttpUrl>,
}

impl FileUrls {
    /// As [`head`], of the last target as long as that answers.
    pub(super) fn head(
        &self,
        client: &mut HttpClient,
    ) -> Result<(HttpFileFacts, bool), RefusedRequest> {
        let last = self.last_target.as_ref().map(|target| head(client, target));
        match last {
            Some(Ok(facts)) => Ok(facts),
            Some(Err(refused)) if refused.failure.may_retry() => Err(refused),
            // A signed URL may have expired.
            _ => head(client, &self.requested),
        }
    }
}

/// Facts of a file by HEAD; with `true` if the URL is that of a directory: it ends with a slash, or leads to one that does. If HEAD
/// is refused or says too little, sends GET for the first byte.
pub(super) fn head(
    client: &mut HttpClient,
    url: &HttpUrl,
) -> Result<(HttpFileFacts, bool), RefusedRequest> {
    let action = Operation::on("read", url);
    let mut headers = wanted_digests().to_vec();
    let send = |method, headers: &[(&str, String)], client: &mut HttpClient| {
        let request = HttpRequest {
            method,
            url,
            headers,
            action: &action,
        };
        client.send(&request, HttpRequestBody::Empty)
    };
    let mut response = send("HEAD", &headers, client)?;
    // Apache sends no length in response to HEAD of an empty file, and servers that make no content for HEAD send that of none.
    let lacks_length = match response.length() {
        None => response.header("accept-ranges").is_some(),
        Some(length) => length == 0,
    };
    let is_unsure = response.status() == 200 && lacks_length;
    if (is_unsure || matches!(response.status(), 400 | 403 | 405 | 501))
        && !url.has_trailing_slash()
    {
        headers.push(("range", "bytes=0-0".to_owned()));
        response.discard_body();
        response = send("GET", &headers, client)?;
        // An empty file has no first byte.
        if response.status() == 416 {
            headers.pop();
            response = send("GET", &headers, client)?;
        }
    }
    let is_directory = url.has_trailing_slash() || response.url.has_trailing_slash();
    match response.status() {
        200 | 204 | 206 => {
            let facts = HttpFileFacts::from_response(&response);
            response.discard_body();
            Ok((facts, is_directory))
        }
        status => Err(RefusedRequest {
            status: Some(status),
            failure: errors::status_failure(&action, &response),
        }),
    }
}

/// Facts of a file by GET, whose response has its bytes as well. `None` where [`head`] has to tell them: the response has no
/// length, is coded, or leads to a directory.
pub(super) fn begin_fetch(
    client: &mut HttpClient,
    url: &HttpUrl,
) -> Result<Option<(HttpFileFacts, HttpResponse)>, Failure> {
    let action = Operation::on("read", url);
    let request = HttpRequest {
        method: "GET",
        url,
        headers: &wanted_digests(),
        action: &action,
    };
    let response = client.send(&request, HttpRequestBody::Empty)?;
    let facts = HttpFileFacts::from_response(&response);
    let is_file = !response.url.has_trailing_slash() && response.foreign_coding(url).is_none();
    match response.status() {
        200 if facts.size.is_some() && is_file => Ok(Some((facts, response))),
        200..=299 => {
            response.discard_body();
            Ok(None)
        }
        // A fetch would be told the same.
        _ => Err(client.failure_of(&action, response)),
    }
}

/// The headers that ask for checksums (RFC 9530, and RFC 3230 before it).
fn wanted_digests() -> [(&'static str, String); 2] {
    [
        ("want-repr-digest", digest::WANT_REPR_DIGEST.to_owned()),
        ("want-digest", digest::WANT_DIGEST.to_owned()),
    ]
}

/// A server's description of a resource, and with depth 1 of its members.
#[derive(Debug)]
pub(super) struct DavDescription {
    resources: Vec<DavResource>,
    /// URL that answered, after redirects.
    pub(super) url: HttpUrl,
}

impl DavDescription {
    pub(super) fn listing(&self) -> DavListing<'_> {
        DavListing::of(&self.resources, &self.url)
    }

    /// Whether any of the resources is a collection.
    fn has_collections(&self) -> bool {
        let mut kinds = self.resources.iter().map(|resource| resource.kind);
        kinds.any(|kind| kind == Some(EntryKind::Dir))
    }
}

/// Sends PROPFIND (RFC 4918 section 9.1). `action` is the operation for messages.
pub(super) fn propfind(
    client: &mut HttpClient,
    target: &HttpUrl,
    depth: u8,
    action: &Operation,
) -> Result<DavDescription, RefusedRequest> {
    let request = HttpRequest {
        method: "PROPFIND",
        url: target,
        headers: &[
            ("depth", depth.to_string()),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ],
        action,
    };
    let response = client.send(&request, HttpRequestBody::Text(multistatus::PROPFIND_BODY))?;
    let status = response.status();
    if status != 207 {
        let failure = match status {
            _ if lacks_webdav(status) => action.failed(
                FailureKind::Protocol,
                format_args!("the server is not a WebDAV server (HTTP {status})"),
            ),
            _ => errors::status_failure(action, &response),
        };
        response.discard_body();
        return Err(RefusedRequest {
            status: Some(status),
            failure,
        });
    }
    let url = response.url.clone();
    let body = client.read_body(response, action, MAX_BODY)?;
    let resources = multistatus::parse(&body).map_err(|error| RefusedRequest {
        status: Some(status),
        failure: action.failed(
            FailureKind::Protocol,
            format_args!("in the server's response, {error}"),
        ),
    })?;
    Ok(DavDescription { resources, url })
}
