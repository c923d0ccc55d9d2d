//! Requests that change names: MKCOL, DELETE and MOVE (RFC 4918).
//!
//! DELETE of a collection, and MOVE over one, destroy everything in it. So both are preceded by the question what the path is, and
//! carry what a server needs to refuse them if that has changed since: `Depth: 0` (not permitted for a collection, section 9.6.1),
//! `Overwrite: F` to a new name, the entity tag. Servers that check none of these leave the time between two requests, in which
//! another program may put a collection in the place of the file, or a file into an empty collection.
//!
//! DELETE of a file that this session has stored itself is sent without the question; it has `Depth: 0`.

use proto::http::multistatus::is_strong_etag;
use proto::http::url::HttpUrl;
use proto::listing::EntryKind;

use super::client::HttpClient;
use super::errors::{self, RefusedRequest};
use super::lookup::{head, lacks_webdav, propfind};
use super::request::{HttpRequest, HttpRequestBody};
use ftp::answers::{RefusedRenameStep, RenameFailure};
use ftp::failure::Operation;
use ftp::{Failure, FailureKind};

/// The URLs of a path.
#[derive(Debug, Clone)]
pub(super) struct PathUrls {
    /// Of a file there.
    pub(super) file: HttpUrl,
    /// Of a collection there, with a slash at its end.
    pub(super) collection: HttpUrl,
}

impl PathUrls {
    /// Whether a URL is of this path. Servers add or remove the slash at its end.
    pub(super) fn is_either(&self, url: &HttpUrl) -> bool {
        *url == self.file || *url == self.collection
    }
}

/// The kind of a path, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProvedKind {
    is_collection: bool,
    /// Strong entity tag.
    etag: Option<String>,
}

type HeaderFields = Vec<(&'static str, String)>;

/// Asks what a path is, so that nothing else is destroyed.
///
/// # Errors
/// `NotFound`: nothing is there. `Protocol`: the server does not tell, or answers for another path.
fn prove(
    client: &mut HttpClient,
    at: &PathUrls,
    action: &Operation,
) -> Result<ProvedKind, RefusedRequest> {
    let description = propfind(client, &at.file, 0, action)?;
    let answered = &description.url;
    let itself = description.listing().itself;
    match itself.and_then(|itself| Some((itself.kind?, &itself.etag))) {
        Some((kind, etag)) if at.is_either(answered) => Ok(ProvedKind {
            is_collection: kind == EntryKind::Dir,
            etag: etag.clone().filter(|etag| is_strong_etag(etag)),
        }),
        Some(_) => Err(errors::redirected(action, answered).into()),
        None => Err(errors::unknown_kind(action).into()),
    }
}

/// Sends one request without a body, which must succeed.
fn command(
    client: &mut HttpClient,
    method: &str,
    url: &HttpUrl,
    headers: &[(&'static str, String)],
    action: &Operation,
) -> Result<(), RefusedRequest> {
    let request = HttpRequest {
        method,
        url,
        headers,
        action,
    };
    let response = client.send(&request, HttpRequestBody::Empty)?;
    let status = response.status();
    let failure = errors::status_failure(action, &response);
    response.discard_body();
    match status {
        200 | 201 | 204 => Ok(()),
        _ => Err(RefusedRequest {
            status: Some(status),
            failure,
        }),
    }
}

/// Makes a collection.
pub(super) fn make_collection(
    client: &mut HttpClient,
    at: &PathUrls,
) -> Result<(), RefusedRequest> {
    let action = Operation::on("make", &at.collection);
    command(client, "MKCOL", &at.collection, &[], &action)
}

/// The most that a removal may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removable {
    /// A file that this session has stored itself.
    OwnFile,
    /// A file, once it is proved to be one.
    File,
    /// A collection, once it is proved to be empty.
    EmptyCollection,
    /// A file, or a collection with everything in it.
    Tree,
}

/// Removes what is at a path, if that is permitted.
///
/// # Errors
/// `Usage` for a collection that may not be removed.
pub(super) fn remove(
    client: &mut HttpClient,
    at: &PathUrls,
    what: Removable,
) -> Result<(), Failure> {
    let action = Operation::on("remove", &at.file);
    let depth = || ("depth", "0".to_owned());
    if what == Removable::OwnFile {
        let removed = command(client, "DELETE", &at.file, &[depth()], &action);
        return removed.map_err(|refused| refused.failure);
    }
    if what == Removable::EmptyCollection {
        let removed = remove_empty_collection(client, at, &action);
        return removed.map_err(|refused| refused.failure);
    }
    let proved = prove(client, at, &action).map_err(|refused| refused.failure)?;
    if proved.is_collection {
        if what != Removable::Tree {
            return Err(is_collection(
                &action,
                "`longhaul rm -r` removes it with all that is in it",
            ));
        }
        let removed = command(client, "DELETE", &at.collection, &[], &action);
        return removed.map_err(|refused| refused.failure);
    }
    let condition = |etag: &str| ("if-match", etag.to_owned());
    let delete = |client: &mut HttpClient, fields: HeaderFields| {
        let fields = [vec![depth()], fields].concat();
        command(client, "DELETE", &at.file, &fields, &action)
    };
    conditionally(client, at, &proved, &action, condition, delete)
        .map_err(|refused| refused.failure)
}

/// Removes a collection that has no members. DELETE removes them all (RFC 4918 section 9.6.1), so they are listed before.
fn remove_empty_collection(
    client: &mut HttpClient,
    at: &PathUrls,
    action: &Operation,
) -> Result<(), RefusedRequest> {
    let described = propfind(client, &at.collection, 1, action)?;
    if described.url != at.collection {
        return Err(errors::redirected(action, &described.url).into());
    }
    let listing = described.listing();
    let itself = listing.itself.and_then(|itself| itself.kind);
    let is_empty = listing.members.is_empty() && listing.unknown.is_empty();
    if itself != Some(EntryKind::Dir) || !is_empty {
        return Err(action
            .failed(
                FailureKind::Refused,
                "the server does not say that it is an empty directory",
            )
            .into());
    }
    command(client, "DELETE", &at.collection, &[], action)
}

/// Sends a request that destroys the file at `at`, with its entity tag as a condition. Some servers refuse every condition, or have
/// another tag for it: so if the file is still the one that was `proved`, the request is sent without it.
fn conditionally(
    client: &mut HttpClient,
    at: &PathUrls,
    proved: &ProvedKind,
    action: &Operation,
    condition: impl Fn(&str) -> (&'static str, String),
    send: impl Fn(&mut HttpClient, HeaderFields) -> Result<(), RefusedRequest>,
) -> Result<(), RefusedRequest> {
    let Some(etag) = &proved.etag else {
        return send(client, Vec::new());
    };
    let refused = match send(client, vec![condition(etag)]) {
        Err(refused) if refused.status == Some(412) => refused,
        sent => return sent,
    };
    match prove(client, at, action) {
        Ok(now) if now == *proved => send(client, Vec::new()),
        // Without its status, which is none of the request that was refused.
        Err(lost) if lost.failure.may_retry() => Err(lost.failure.into()),
        _ => Err(refused),
    }
}

/// Gives a file or a collection another name. A file replaces a file, and nothing else. `is_own_file`: this session has stored it.
pub(super) fn rename(
    client: &mut HttpClient,
    from: &PathUrls,
    to: &PathUrls,
    is_own_file: bool,
) -> Result<(), RenameFailure> {
    let action = Operation::on("rename", &from.file).to(&to.file);
    // Where the server does not tell, it is taken for a file.
    let is_tree = !is_own_file
        && match prove(client, from, &action) {
            Err(refused) if refused.failure.is_missing() || refused.failure.may_retry() => {
                return Err(refused.failure.into());
            }
            proved => proved.is_ok_and(|proved| proved.is_collection),
        };
    let old = file_to_replace(client, to, &action)?;
    let (source, new_name) = match is_tree {
        true => (&from.collection, &to.collection),
        false => (&from.file, &to.file),
    };
    let move_it = |client: &mut HttpClient, overwrite: &str, fields: HeaderFields| {
        send_move(client, source, new_name, overwrite, &fields, &action)
    };
    let moved = match old {
        None => move_it(client, "F", Vec::new()),
        Some(_) if is_tree => {
            return Err(new_name_is_taken(
                action.failed(FailureKind::Usage, "a file is there; remove it first"),
            ));
        }
        Some(_) if has_delimiters(to) => {
            return Err(new_name_refused(action.failed(
                FailureKind::Protocol,
                "a file is there, and a server may take the new name for another one",
            )));
        }
        Some(old) => {
            let condition = |etag: &str| ("if", format!("<{}> ([{etag}])", to.file.uri()));
            let replace =
                |client: &mut HttpClient, fields: HeaderFields| move_it(client, "T", fields);
            conditionally(client, to, &old, &action, condition, replace)
        }
    };
    match moved {
        Ok(()) => check_new_name(client, to, &action),
        // The server has taken the new name for another one, which something has.
        Err(refused) if refused.status == Some(412) && has_delimiters(to) => {
            Err(new_name_refused(refused.failure))
        }
        Err(refused) => Err(refused_move(client, from, to, &action, refused)),
    }
}

/// The file that a MOVE to a path replaces; `None`: nothing is there. Servers that ignore `Overwrite: F` destroy what is there.
///
/// # Errors
/// A collection is there, or what is there is unknown.
fn file_to_replace(
    client: &mut HttpClient,
    to: &PathUrls,
    action: &Operation,
) -> Result<Option<ProvedKind>, RenameFailure> {
    let unknown = match prove(client, to, action) {
        Ok(proved) if proved.is_collection => {
            return Err(new_name_is_taken(is_collection(
                action,
                "name the file in it",
            )));
        }
        Ok(proved) => return Ok(Some(proved)),
        Err(unknown) => unknown,
    };
    if unknown.failure.is_missing() {
        return Ok(None);
    }
    // HEAD cannot tell files from collections, but says whether anything is there.
    let found = match unknown.status {
        Some(status) if status != 207 && !unknown.failure.may_retry() => {
            head(client, &to.file).map_err(|refused| refused.failure)
        }
        _ => Err(unknown.failure.clone()),
    };
    match found {
        Err(missing) if missing.is_missing() => Ok(None),
        Err(lost) if lost.may_retry() => Err(lost.into()),
        _ => {
            let failure = unknown
                .failure
                .remark("nothing shows that the new name is free");
            Err(new_name_is_taken(failure))
        }
    }
}

/// Whether a path has characters before which some servers cut off a destination, though they are escaped (wsgidav).
fn has_delimiters(at: &PathUrls) -> bool {
    let path = at.file.segments().concat();
    path.iter().any(|byte| b";?#".contains(byte))
}

/// Fails if the server may have misunderstood the new name, and nothing is there after the MOVE.
fn check_new_name(
    client: &mut HttpClient,
    to: &PathUrls,
    action: &Operation,
) -> Result<(), RenameFailure> {
    if !has_delimiters(to) {
        return Ok(());
    }
    match prove(client, to, action) {
        Err(missing) if missing.failure.is_missing() => Err(new_name_refused(action.failed(
            FailureKind::Protocol,
            "the server has given it another name; look for one that ends before a character of \
                 the new name, and remove it",
        ))),
        _ => Ok(()),
    }
}

/// Why a server would not rename the file at a path, whether or not there is one: it has no WebDAV.
///
/// # Errors
/// The connection is lost, or the server is busy.
pub(super) fn refuses_renames(
    client: &mut HttpClient,
    at: &PathUrls,
) -> Result<Option<RenameFailure>, Failure> {
    let action = Operation::on("rename", &at.file);
    match propfind(client, &at.file, 0, &action) {
        Err(refused) if refused.failure.may_retry() => Err(refused.failure),
        Err(refused) if refused.status.is_some_and(lacks_webdav) => {
            Ok(Some(unsupported(refused.failure)))
        }
        _ => Ok(None),
    }
}

/// Sends MOVE.
fn send_move(
    client: &mut HttpClient,
    from: &HttpUrl,
    to: &HttpUrl,
    overwrite: &str,
    fields: &[(&'static str, String)],
    action: &Operation,
) -> Result<(), RefusedRequest> {
    let mut send = |destination: String| {
        let own = vec![
            ("destination", destination),
            ("overwrite", overwrite.to_owned()),
        ];
        command(
            client,
            "MOVE",
            from,
            &[own, fields.to_vec()].concat(),
            action,
        )
    };
    match send(to.uri()) {
        // A server behind a proxy has another name than its proxy, and takes the destination for another server's (section
        // 9.9.4). A path names none (section 10.3).
        Err(refused) if matches!(refused.status, Some(400 | 502)) => send(to.path_and_query()),
        sent => sent,
    }
}

/// The failure of a MOVE that was refused, with what it says about the server.
fn refused_move(
    client: &mut HttpClient,
    from: &PathUrls,
    to: &PathUrls,
    action: &Operation,
    refused: RefusedRequest,
) -> RenameFailure {
    let RefusedRequest { status, failure } = refused;
    let does_not_move = || {
        let status = status.unwrap_or_default();
        action.failed(
            FailureKind::Protocol,
            format_args!("the server does not do that (HTTP {status})"),
        )
    };
    match status {
        Some(409 | 507) => new_name_refused(failure),
        // No condition has failed: nothing has the name.
        Some(412) if is_missing(client, to, action) => unsupported(does_not_move()),
        // Something has the new name by now, or the name leads elsewhere: what is there is unknown.
        Some(300..=399 | 412) => new_name_is_taken(failure),
        None if !failure.may_retry() => new_name_is_taken(failure),
        // No file of this server can be moved (RFC 9110 sections 15.5.6 and 15.6.2).
        Some(405 | 501) => unsupported(failure),
        // It means another server (section 9.9.4), so the next attempt would end in the same way.
        Some(502) => unsupported(does_not_move()),
        // Proxies that do not know the method.
        Some(404 | 410) if head(client, &from.file).is_ok() => unsupported(does_not_move()),
        _ => failure.into(),
    }
}

fn is_missing(client: &mut HttpClient, at: &PathUrls, action: &Operation) -> bool {
    matches!(prove(client, at, action), Err(missing) if missing.failure.is_missing())
}

fn unsupported(failure: Failure) -> RenameFailure {
    RenameFailure {
        failure,
        refused_step: RefusedRenameStep::Unsupported,
    }
}

fn new_name_is_taken(failure: Failure) -> RenameFailure {
    RenameFailure {
        failure,
        refused_step: RefusedRenameStep::NewNameIsTaken,
    }
}

fn new_name_refused(failure: Failure) -> RenameFailure {
    RenameFailure {
        failure,
        refused_step: RefusedRenameStep::RntoRefused,
    }
}

fn is_collection(action: &Operation, advice: &str) -> Failure {
    action.failed(
        FailureKind::Usage,
        format_args!("a directory is there; {advice}"),
    )
}
