//! Facts of a path: PROPFIND where the server has WebDAV, otherwise HEAD.

use std::io::Read as _;

use proto::http::digest;
use proto::http::multistatus::{self, DavListing, DavResource, MAX_BODY};
use proto::http::url::HttpUrl;
use proto::listing::{EntryKind, ListedEntry};

use super::client::HttpClient;
use super::errors::{self, RefusedRequest};
use super::facts::HttpFileFacts;
use super::request::{HttpRequest, HttpRequestBody};
use crate::{CopyFailure, Exit};

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
    (urls, name): (&FileUrls, &[u8]),
    support: WebDavSupport,
) -> Result<ResourceFacts, CopyFailure> {
    let url = &urls.requested;
    let action = format!("read {url}");
    let described = match support {
        WebDavSupport::HasNot => None,
        _ => Some(propfind(client, url, (0, &action))),
    };
    let refused = match described {
        Some(Ok(described)) => {
            let entry = described.listing().itself.and_then(|r| r.to_entry(name));
            match entry {
                Some(entry) if entry.kind == EntryKind::Dir || entry.size.is_some() => {
                    return Ok(ResourceFacts {
                        entry,
                        file: None,
                        support: WebDavSupport::Has,
                    });
                }
                _ => None,
            }
        }
        Some(Err(refused)) => Some(refused),
        None => None,
    };
    let status = refused.as_ref().and_then(|refused| refused.status);
    let lacks_method = status.is_some_and(lacks_webdav);
    if let Some(refused) = refused
        && !lacks_method
        // One that fails or is busy has said nothing. Others that do not know the method refuse it in some way.
        && (support == WebDavSupport::Has || matches!(status, Some(408 | 425 | 429 | 500..)))
    {
        return Err(refused.failure);
    }
    let (facts, is_directory) = urls.head(client).map_err(|refused| refused.failure)?;
    let kind = match is_directory {
        true => EntryKind::Dir,
        false => EntryKind::File,
    };
    Ok(ResourceFacts {
        entry: facts.entry(name, kind),
        file: Some(facts).filter(|_| !is_directory),
        support: match support {
            WebDavSupport::Unknown if lacks_method => WebDavSupport::HasNot,
            _ => support,
        },
    })
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
            Some(Err(refused)) if refused.failure.transient => Err(refused),
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
    let action = format!("read {url}");
    let mut headers = vec![
        ("want-repr-digest", digest::WANT_REPR_DIGEST.to_owned()),
        ("want-digest", digest::WANT_DIGEST.to_owned()),
    ];
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
    // Apache sends no length in response to HEAD of an empty file.
    let lacks_length = response.status() == 200
        && response.length().is_none()
        && response.header("accept-ranges").is_some();
    if (lacks_length || matches!(response.status(), 400 | 403 | 405 | 501))
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
}

/// Sends PROPFIND (RFC 4918 section 9.1). `action` is the operation for messages.
pub(super) fn propfind(
    client: &mut HttpClient,
    target: &HttpUrl,
    (depth, action): (u8, &str),
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
            _ if lacks_webdav(status) => CopyFailure::new(
                Exit::Protocol,
                format!("cannot {action}: the server is not a WebDAV server (HTTP {status})"),
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
    let mut body = Vec::new();
    response
        .into_body()
        .take(MAX_BODY as u64 + 1)
        .read_to_end(&mut body)
        .map_err(|e| {
            let dialer_error = client.dialer.take_failure();
            errors::request_failure(action, &ureq::Error::Io(e), dialer_error.as_ref())
        })?;
    let resources = multistatus::parse(&body).map_err(|error| RefusedRequest {
        status: Some(status),
        failure: CopyFailure::new(
            Exit::Protocol,
            format!("cannot {action}: in the server's response, {error}"),
        ),
    })?;
    Ok(DavDescription { resources, url })
}
