//! Facts of a path: HEAD for one file or directory, PROPFIND for the entries of a directory.

use std::io::Read as _;

use proto::http::digest;
use proto::http::multistatus::{self, MAX_BODY};
use proto::http::url::HttpUrl;
use proto::listing::EntryKind;

use super::client::HttpClient;
use super::errors;
use super::facts::HttpFileFacts;
use super::request::{HttpRequest, HttpRequestBody};
use crate::{CopyFailure, Exit};

/// Sends HEAD. If that is refused or says too little, sends GET for the first byte. If that fails
/// too and the path may be a directory, sends PROPFIND.
pub(super) fn stat_resource(
    client: &mut HttpClient,
    url: &HttpUrl,
    directory: &HttpUrl,
) -> Result<(HttpFileFacts, EntryKind), CopyFailure> {
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
        && response.header("content-length").is_none()
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
            let kind = if is_directory {
                EntryKind::Dir
            } else {
                EntryKind::File
            };
            Ok((facts, kind))
        }
        // Servers without directory indexes refuse HEAD, but WebDAV still knows the directory.
        403..=405 if is_directory => {
            let failure = errors::status_failure(&action, &response);
            let facts = HttpFileFacts::from_response(&response);
            response.discard_body();
            match propfind(client, directory, "0") {
                Ok(_) => Ok((facts, EntryKind::Dir)),
                Err(_) => Err(failure),
            }
        }
        _ => Err(errors::status_failure(&action, &response)),
    }
}

/// The resources in a WebDAV collection.
pub(super) fn propfind(
    client: &mut HttpClient,
    target: &HttpUrl,
    depth: &str,
) -> Result<Vec<multistatus::DavResource>, CopyFailure> {
    let action = format!("list {target}");
    let request = HttpRequest {
        method: "PROPFIND",
        url: target,
        headers: &[
            ("depth", depth.to_owned()),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ],
        action: &action,
    };
    let response = client.send(&request, HttpRequestBody::Text(multistatus::PROPFIND_BODY))?;
    match response.status() {
        207 => {}
        200..=299 | 405 | 501 => {
            return Err(CopyFailure::new(
                Exit::Protocol,
                format!(
                    "cannot {action}: the server is not a WebDAV server, and HTTP has no other way to list a \
                     directory; name each file"
                ),
            ));
        }
        _ => return Err(errors::status_failure(&action, &response)),
    }
    let mut body = Vec::new();
    response
        .into_body()
        .take(MAX_BODY as u64 + 1)
        .read_to_end(&mut body)
        .map_err(|e| {
            let dialer_error = client.dialer.take_failure();
            errors::request_failure(&action, &ureq::Error::Io(e), dialer_error.as_ref())
        })?;
    multistatus::parse(&body).map_err(|error| {
        CopyFailure::new(
            Exit::Protocol,
            format!("cannot {action}: in the server's response, {error}"),
        )
    })
}
