//! Looking at a path: HEAD of one file or directory, PROPFIND of what a directory holds.

use std::io::Read as _;

use proto::http::digest;
use proto::http::multistatus::{self, MAX_BODY};
use proto::http::url::HttpUrl;
use proto::listing::EntryKind;

use super::client::{HttpClient, HttpRequest, HttpRequestBody};
use super::errors;
use super::facts::HttpFileFacts;
use crate::{CopyFailure, Exit};

/// HEAD; where that is refused or tells too little, GET of the first byte; where that is, too, and it may be a directory,
/// PROPFIND.
pub(super) fn look(
    caller: &mut HttpClient,
    named: &HttpUrl,
    directory: &HttpUrl,
) -> Result<(HttpFileFacts, EntryKind), CopyFailure> {
    let doing = format!("read {named}");
    let mut fields = vec![
        ("want-repr-digest", digest::WANT_REPR_DIGEST.to_owned()),
        ("want-digest", digest::WANT_DIGEST.to_owned()),
    ];
    let ask = |method, fields: &[(&str, String)], caller: &mut HttpClient| {
        let ask = HttpRequest {
            method,
            target: named,
            fields,
            doing: &doing,
        };
        caller.ask(&ask, HttpRequestBody::Empty)
    };
    let mut reply = ask("HEAD", &fields, caller)?;
    // Of an empty file Apache tells no length here.
    let is_silent = reply.status() == 200
        && reply.field("content-length").is_none()
        && reply.field("accept-ranges").is_some();
    if (is_silent || matches!(reply.status(), 400 | 403 | 405 | 501)) && !named.has_trailing_slash()
    {
        fields.push(("range", "bytes=0-0".to_owned()));
        reply.skip();
        reply = ask("GET", &fields, caller)?;
        // An empty file has no first byte.
        if reply.status() == 416 {
            fields.pop();
            reply = ask("GET", &fields, caller)?;
        }
    }
    let is_directory = named.has_trailing_slash() || reply.target.has_trailing_slash();
    match reply.status() {
        200 | 204 | 206 => {
            let seen = HttpFileFacts::of(&reply);
            reply.skip();
            let kind = if is_directory {
                EntryKind::Dir
            } else {
                EntryKind::File
            };
            Ok((seen, kind))
        }
        403..=405 if is_directory => {
            let failure = errors::of_status(&doing, &reply);
            let seen = HttpFileFacts::of(&reply);
            reply.skip();
            match propfind(caller, directory, "0") {
                Ok(_) => Ok((seen, EntryKind::Dir)),
                Err(_) => Err(failure),
            }
        }
        _ => Err(errors::of_status(&doing, &reply)),
    }
}

/// The resources that a WebDAV server tells of a collection.
pub(super) fn propfind(
    caller: &mut HttpClient,
    target: &HttpUrl,
    depth: &str,
) -> Result<Vec<multistatus::DavResource>, CopyFailure> {
    let doing = format!("list {target}");
    let ask = HttpRequest {
        method: "PROPFIND",
        target,
        fields: &[
            ("depth", depth.to_owned()),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ],
        doing: &doing,
    };
    let reply = caller.ask(&ask, HttpRequestBody::Text(multistatus::PROPFIND_BODY))?;
    match reply.status() {
        207 => {}
        200..=299 | 405 | 501 => {
            return Err(CopyFailure::new(
                Exit::Protocol,
                format!(
                    "cannot {doing}: the server is no WebDAV server, and HTTP has no other way to list a \
                     directory; name each file"
                ),
            ));
        }
        _ => return Err(errors::of_status(&doing, &reply)),
    }
    let mut body = Vec::new();
    reply
        .into_body()
        .take(MAX_BODY as u64 + 1)
        .read_to_end(&mut body)
        .map_err(|e| {
            let own = caller.dialer.take_failure();
            errors::of_error(&doing, &ureq::Error::Io(e), own.as_ref())
        })?;
    multistatus::parse(&body).map_err(|error| {
        CopyFailure::new(
            Exit::Protocol,
            format!("cannot {doing}: of the server's answer, {error}"),
        )
    })
}
