//! Looking at a path: HEAD of one file or directory, PROPFIND of what a directory holds.

use std::io::Read as _;

use proto::http::digest;
use proto::http::multistatus::{self, MOST_BYTES};
use proto::http::target::Target;
use proto::listing::Kind;

use super::caller::{Ask, Caller, Payload};
use super::facts::Seen;
use super::refusal;
use crate::{Exit, Failure};

/// HEAD; where that is refused or tells too little, GET of the first byte; where that is, too, and it may be a directory,
/// PROPFIND.
pub(super) fn look(
    caller: &mut Caller,
    named: &Target,
    directory: &Target,
) -> Result<(Seen, Kind), Failure> {
    let doing = format!("read {named}");
    let mut fields = vec![
        ("want-repr-digest", digest::WANTED.to_owned()),
        ("want-digest", digest::WANTED_BEFORE.to_owned()),
    ];
    let ask = |method, fields: &[(&str, String)], caller: &mut Caller| {
        let ask = Ask {
            method,
            target: named,
            fields,
            doing: &doing,
        };
        caller.ask(&ask, Payload::Empty)
    };
    let mut reply = ask("HEAD", &fields, caller)?;
    // Of an empty file Apache tells no length here.
    let is_silent = reply.status() == 200
        && reply.field("content-length").is_none()
        && reply.field("accept-ranges").is_some();
    if (is_silent || matches!(reply.status(), 400 | 403 | 405 | 501)) && !named.is_directory() {
        fields.push(("range", "bytes=0-0".to_owned()));
        reply.skip();
        reply = ask("GET", &fields, caller)?;
        // An empty file has no first byte.
        if reply.status() == 416 {
            fields.pop();
            reply = ask("GET", &fields, caller)?;
        }
    }
    let is_directory = named.is_directory() || reply.target.is_directory();
    match reply.status() {
        200 | 204 | 206 => {
            let seen = Seen::of(&reply);
            reply.skip();
            let kind = if is_directory { Kind::Dir } else { Kind::File };
            Ok((seen, kind))
        }
        403..=405 if is_directory => {
            let failure = refusal::of_status(&doing, &reply);
            let seen = Seen::of(&reply);
            reply.skip();
            match propfind(caller, directory, "0") {
                Ok(_) => Ok((seen, Kind::Dir)),
                Err(_) => Err(failure),
            }
        }
        _ => Err(refusal::of_status(&doing, &reply)),
    }
}

/// The resources that a WebDAV server tells of a collection.
pub(super) fn propfind(
    caller: &mut Caller,
    target: &Target,
    depth: &str,
) -> Result<Vec<multistatus::Resource>, Failure> {
    let doing = format!("list {target}");
    let ask = Ask {
        method: "PROPFIND",
        target,
        fields: &[
            ("depth", depth.to_owned()),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ],
        doing: &doing,
    };
    let reply = caller.ask(&ask, Payload::Text(multistatus::QUESTION))?;
    match reply.status() {
        207 => {}
        200..=299 | 405 | 501 => {
            return Err(Failure::new(
                Exit::Protocol,
                format!(
                    "cannot {doing}: the server is no WebDAV server, and HTTP has no other way to list a \
                     directory; name each file"
                ),
            ));
        }
        _ => return Err(refusal::of_status(&doing, &reply)),
    }
    let mut body = Vec::new();
    reply
        .into_body()
        .take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut body)
        .map_err(|e| {
            let own = caller.dialer.take_failure();
            refusal::of_error(&doing, &ureq::Error::Io(e), own.as_ref())
        })?;
    multistatus::read(&body).map_err(|error| {
        Failure::new(
            Exit::Protocol,
            format!("cannot {doing}: of the server's answer, {error}"),
        )
    })
}
