//! Entries: facts, listings, removal, names. All of it runs on a thread for blocking calls.

use std::ops::ControlFlow;

use ftp::answers::{KeptMetadata, RefusedRenameStep, RenameFailure, SymlinkCheckedEntry};
use ftp::failure::{Operation, Sentence};
use ftp::incomplete_listing::IncompleteListing;
use ftp::{Failure, FailureKind};
use proto::listing::{EntryKind, ListedEntry};
use proto::sftp::{FileSystemSpace, SftpAttributes, SftpReply, SftpRequest, SftpStatusCode};
use proto::timestamp::Timestamp;

use super::MAX_PATH;
use super::connection::{MAX_AHEAD, SftpConnection};
use super::errors::{self, SftpFailed};
use crate::local::replacement::random_token;
use crate::storage::contract::RemovedKind;
use crate::storage::entry_names::{MAX_DEPTH, check_name, directory_of, join_path};

/// Most entries of a directory. No real directory exceeds them.
const MAX_ENTRIES: usize = 100_000_000;
/// Most requests for entries that go ahead: their replies are kept.
const MAX_DIRECTORY_READS: usize = 16;
/// Most entries of a tree that is removed: their names are kept.
const MAX_REMOVED: usize = 10_000_000;

pub(super) fn attributes(
    connection: &mut SftpConnection,
    request: &SftpRequest<'_>,
) -> Result<SftpAttributes, SftpFailed> {
    match connection.call(request)? {
        SftpReply::Attributes(attributes) => Ok(attributes),
        other => Err(errors::unexpected(other)),
    }
}

/// The entry of a name with these attributes.
pub(super) fn entry(name: &[u8], attributes: &SftpAttributes) -> ListedEntry {
    let kind = match attributes {
        at if at.is_directory() => EntryKind::Dir,
        at if at.is_link() => EntryKind::SymLink,
        at if at.is_file() => EntryKind::File,
        _ => EntryKind::Other,
    };
    ListedEntry {
        size: attributes.size.filter(|_| kind == EntryKind::File),
        modified: attributes.modified,
        mode: attributes.mode.map(|mode| mode & 0o7777),
        ..ListedEntry::new(name, kind)
    }
}

/// The facts of a path, with links followed. A link that leads nowhere is itself.
pub(super) fn facts(
    connection: &mut SftpConnection,
    path: &[u8],
    name: &[u8],
) -> Result<ListedEntry, SftpFailed> {
    let found = match attributes(connection, &SftpRequest::Stat(path)) {
        Err(missing) if missing.code() == Some(SftpStatusCode::NoSuchFile) => {
            let own = attributes(connection, &SftpRequest::LinkStat(path));
            own.map_err(|_| missing)
        }
        found => found,
    };
    Ok(entry(name, &found?))
}

/// Lists a directory: `visit` receives the entries as they come. `Ok` only at its end, or if `visit` stopped.
///
/// OpenSSH leaves out entries whose attributes it cannot read, and says nothing of it. Without the right to search the directory
/// these are all of them, with `.`.
pub(super) fn list(
    connection: &mut SftpConnection,
    path: &[u8],
    mut visit: impl FnMut(&mut SftpConnection, Vec<ListedEntry>) -> Result<ControlFlow<()>, SftpFailed>,
) -> Result<(), SftpFailed> {
    let handle = connection.open(&SftpRequest::OpenDir(path))?;
    let handles = [handle];
    let listed = read_dirs(connection, &handles, |connection, _, entries| {
        visit(connection, entries)
    });
    let listed = listed.and_then(|(read, _)| check_read(connection, read, &[path]));
    close_dirs(connection, &handles)?;
    listed
}

/// Closes directories, if the connection can still be used.
pub(super) fn close_dirs(
    connection: &mut SftpConnection,
    handles: &[Vec<u8>],
) -> Result<(), SftpFailed> {
    match connection.is_usable() {
        true => handles
            .iter()
            .try_for_each(|handle| connection.send_unheeded(&SftpRequest::Close(handle))),
        false => Ok(()),
    }
}

/// A directory that is read.
#[derive(Default)]
pub(super) struct ReadDirectory {
    has_ended: bool,
    /// Why it was not read to its end.
    failed: Option<SftpFailed>,
    shows_itself: bool,
}

/// Reads open directories: `visit` receives the entries of each as they come. A server has few entries in a reply: the longer
/// directories are, the more requests go ahead. Each fails by itself.
pub(super) fn read_dirs(
    connection: &mut SftpConnection,
    handles: &[Vec<u8>],
    mut visit: impl FnMut(
        &mut SftpConnection,
        usize,
        Vec<ListedEntry>,
    ) -> Result<ControlFlow<()>, SftpFailed>,
) -> Result<(Vec<ReadDirectory>, ControlFlow<()>), SftpFailed> {
    let mut directories: Vec<_> = handles.iter().map(|_| ReadDirectory::default()).collect();
    let mut count = 0;
    // The second one shows the end of a short directory.
    let mut ahead = 2;
    loop {
        let left: Vec<usize> = (0..handles.len())
            .filter(|at| !directories[*at].has_ended)
            .collect();
        if left.is_empty() {
            return Ok((directories, ControlFlow::Continue(())));
        }
        let of_each = ahead.min(MAX_AHEAD / left.len()).max(1);
        ahead = (ahead * 2).min(MAX_DIRECTORY_READS);
        let asked: Vec<usize> = left
            .iter()
            .flat_map(|at| std::iter::repeat_n(*at, of_each))
            .collect();
        let requests: Vec<_> = asked
            .iter()
            .map(|at| SftpRequest::ReadDir(&handles[*at]))
            .collect();
        let timeout = connection.timeout();
        for (at, reply) in asked.iter().zip(connection.call_all(&requests, timeout)?) {
            let directory = &mut directories[*at];
            if directory.has_ended {
                // Servers may answer what was asked for behind the end as they like.
                continue;
            }
            let names = match reply {
                SftpReply::Names(names) => names,
                SftpReply::Status(status) if status.code == SftpStatusCode::Eof => {
                    directory.has_ended = true;
                    continue;
                }
                SftpReply::Status(status) => {
                    directory.has_ended = true;
                    directory.failed = Some(errors::unexpected(SftpReply::Status(status)));
                    continue;
                }
                other => return Err(errors::unexpected(other)),
            };
            count += names.len();
            if count > MAX_ENTRIES || names.is_empty() {
                // Without entries the end would never come.
                return Err(SftpFailed::Unasked);
            }
            directory.shows_itself |= names.iter().any(|found| found.name == b".");
            let entries = names
                .iter()
                .filter(|found| !matches!(found.name.as_slice(), b"." | b".."))
                .map(|found| entry(&found.name, &found.attributes))
                .collect();
            if visit(connection, *at, entries)?.is_break() {
                return Ok((directories, ControlFlow::Break(())));
            }
        }
    }
}

/// Whether directories were read to their ends, and show the attributes of their entries, by those of themselves: servers other
/// than OpenSSH may list none of `.` and `..`.
pub(super) fn check_read(
    connection: &mut SftpConnection,
    mut read: Vec<ReadDirectory>,
    paths: &[&[u8]],
) -> Result<(), SftpFailed> {
    if let Some(failed) = read.iter_mut().find_map(|read| read.failed.take()) {
        return Err(failed);
    }
    let hidden = read
        .iter()
        .zip(paths)
        .filter(|(read, _)| !read.shows_itself);
    let (paths, themselves): (Vec<_>, Vec<_>) = hidden
        .map(|(_, path)| (*path, join_path(path, b".")))
        .unzip();
    let requests: Vec<_> = themselves
        .iter()
        .map(|path| SftpRequest::LinkStat(path))
        .collect();
    let timeout = connection.timeout();
    for (path, reply) in paths.iter().zip(connection.call_all(&requests, timeout)?) {
        match reply {
            SftpReply::Attributes(_) => {}
            SftpReply::Status(_) => {
                let hidden = IncompleteListing::HiddenFromLogin;
                return Err(SftpFailed::Incomplete(hidden, path.to_vec()));
            }
            other => return Err(errors::unexpected(other)),
        }
    }
    Ok(())
}

/// Gives links their targets. A link that is gone keeps an empty one: it stays a link.
pub(super) fn read_links(
    connection: &mut SftpConnection,
    directory: &[u8],
    entries: &mut [ListedEntry],
) -> Result<(), SftpFailed> {
    let mut links: Vec<&mut ListedEntry> = entries
        .iter_mut()
        .filter(|entry| entry.kind == EntryKind::SymLink)
        .collect();
    let timeout = connection.timeout();
    // Their targets may be long: no more of them are held than are kept.
    for some in links.chunks_mut(MAX_AHEAD) {
        let paths: Vec<Vec<u8>> = some
            .iter()
            .map(|link| join_path(directory, &link.name))
            .collect();
        let requests: Vec<_> = paths
            .iter()
            .map(|path| SftpRequest::ReadLink(path))
            .collect();
        let replies = connection.call_all(&requests, timeout)?;
        for ((link, path), reply) in some.iter_mut().zip(&paths).zip(replies) {
            let target = match reply {
                SftpReply::Names(names) => names.into_iter().next().map(|name| name.name),
                _ => None,
            };
            let target = target.unwrap_or_default();
            if target.len() > MAX_PATH {
                let operation = Operation::on_path("read the link", path);
                return Err(SftpFailed::Other(
                    operation.failed(FailureKind::Protocol, "its target is too long"),
                ));
            }
            link.link_target = Some(target);
        }
    }
    Ok(())
}

/// Entries of a listing for a visitor.
pub(super) fn checked(entries: Vec<ListedEntry>) -> impl Iterator<Item = SymlinkCheckedEntry> {
    entries.into_iter().map(SymlinkCheckedEntry::certain)
}

/// Why something could not be made or written at `path`: a refusal without a reason may be one for lack of space. A server tells
/// that by a code in later versions of the protocol only.
pub(super) fn explained(
    connection: &mut SftpConnection,
    failed: SftpFailed,
    path: &[u8],
) -> SftpFailed {
    let can_ask = connection.is_usable() && connection.extensions.statvfs;
    let SftpFailed::Refused(status) = failed else {
        return failed;
    };
    let failed = SftpFailed::Refused(status.clone());
    if !failed.is_plain_refusal() || !can_ask {
        return failed;
    }
    let request = SftpRequest::FileSystem(directory_of(path));
    let Ok(SftpReply::Extended(answer)) = connection.call(&request) else {
        return failed;
    };
    let needed = u64::from(connection.limits.write);
    match FileSystemSpace::parse(&answer) {
        Ok(space) if !space.has_room(needed) => SftpFailed::Full(status),
        _ => failed,
    }
}

pub(super) fn make_dir(connection: &mut SftpConnection, path: &[u8]) -> Result<bool, SftpFailed> {
    let refused = match connection.done(&SftpRequest::MakeDir(path)) {
        Ok(()) => return Ok(true),
        Err(refused) if refused.code().is_some() => refused,
        Err(failed) => return Err(failed),
    };
    match attributes(connection, &SftpRequest::Stat(path)) {
        Ok(found) if found.is_directory() => Ok(false),
        Err(failed) if failed.code().is_none() => Err(failed),
        _ => Err(explained(connection, refused, path)),
    }
}

/// Removes an entry of a kind. RMDIR removes empty directories alone, and REMOVE none.
pub(super) fn remove(
    connection: &mut SftpConnection,
    path: &[u8],
    kind: RemovedKind,
) -> Result<(), SftpFailed> {
    match kind {
        RemovedKind::EmptyDirectory => connection.done(&SftpRequest::RemoveDir(path)),
        RemovedKind::File => {
            refuse_directory(connection, path)?;
            connection.done(&SftpRequest::Remove(path))
        }
        RemovedKind::Tree => {
            let found = attributes(connection, &SftpRequest::LinkStat(path))?;
            match found.is_directory() {
                true => remove_tree(connection, path),
                false => connection.done(&SftpRequest::Remove(path)),
            }
        }
    }
}

/// Some servers remove directories by REMOVE (section 6.5 forbids it).
fn refuse_directory(connection: &mut SftpConnection, path: &[u8]) -> Result<(), SftpFailed> {
    let found = attributes(connection, &SftpRequest::LinkStat(path))?;
    match found.is_directory() {
        true => Err(SftpFailed::Other(
            Operation::on_path("remove", path).failed(FailureKind::Protocol, "it is a directory"),
        )),
        false => Ok(()),
    }
}

/// Lists the whole tree before anything is removed.
fn remove_tree(connection: &mut SftpConnection, top: &[u8]) -> Result<(), SftpFailed> {
    let refused = |reason: &str| {
        let operation = Operation::on_path("remove", top);
        SftpFailed::Other(operation.failed(FailureKind::Protocol, reason))
    };
    let mut directories = vec![(top.to_vec(), 0)];
    let mut files = Vec::new();
    let mut next = 0;
    while let Some((directory, depth)) = directories.get(next).cloned() {
        next += 1;
        if depth > MAX_DEPTH {
            return Err(refused("it is too deep"));
        }
        let mut inside = Vec::new();
        list(connection, &directory, |_, entries| {
            inside.extend(entries);
            Ok(ControlFlow::Continue(()))
        })?;
        for entry in inside {
            check_name(&entry.name).map_err(SftpFailed::Other)?;
            let path = join_path(&directory, &entry.name);
            match entry.kind {
                EntryKind::Dir => directories.push((path, depth + 1)),
                _ => files.push(path),
            }
        }
        if files.len() + directories.len() > MAX_REMOVED {
            return Err(refused("it has too many entries"));
        }
    }
    let files = files.iter().map(|path| SftpRequest::Remove(path));
    // Children before parents.
    let directories = directories.iter().rev();
    let directories = directories.map(|(path, _)| SftpRequest::RemoveDir(path));
    for requests in [files.collect::<Vec<_>>(), directories.collect()] {
        for some in requests.chunks(MAX_AHEAD) {
            let timeout = connection.timeout();
            for reply in connection.call_all(some, timeout)? {
                match errors::done(reply) {
                    // Somebody else has removed it.
                    Err(gone) if gone.code() == Some(SftpStatusCode::NoSuchFile) => {}
                    removed => removed?,
                }
            }
        }
    }
    Ok(())
}

/// Seconds of a time as the protocol has it; `None`: it cannot be expressed.
pub(super) fn seconds(time: Timestamp) -> Option<u32> {
    u32::try_from(time.0).ok()
}

/// Gives a file its name, and its time before. Without an atomic rename an old file is moved aside first and removed afterwards:
/// for a moment there is none of the name, but its content is there at any time.
pub(super) fn rename(
    connection: &mut SftpConnection,
    server: &str,
    from: &[u8],
    to: &[u8],
    modified: Option<Timestamp>,
) -> Result<(), RenameFailure> {
    let operation = Operation::on_path("rename", from).to(proto::printable::printable(to));
    let failure = |failed: SftpFailed| failed.failure(server, &operation);
    if let Some(time) = modified.and_then(seconds) {
        match connection.done(&SftpRequest::SetTime(from, time)) {
            // The copy is complete without the time.
            Err(refused) if refused.code().is_some() => {}
            done => done.map_err(failure)?,
        }
    }
    if connection.extensions.posix_rename {
        return renamed(
            connection.done(&SftpRequest::PosixRename(from, to)),
            failure,
        );
    }
    let refused = match connection.done(&SftpRequest::Rename(from, to)) {
        Err(refused) if refused.is_plain_refusal() => refused,
        done => return renamed(done, failure),
    };
    // A plain rename replaces nothing.
    match attributes(connection, &SftpRequest::LinkStat(to)) {
        Ok(found) if found.is_directory() => Err(RenameFailure {
            failure: failure(refused),
            refused_step: RefusedRenameStep::NewNameIsTaken,
        }),
        Ok(_) => replace(connection, from, to, failure).map_err(Into::into),
        Err(_) => renamed(Err(refused), failure),
    }
}

fn renamed(
    done: Result<(), SftpFailed>,
    failure: impl Fn(SftpFailed) -> Failure,
) -> Result<(), RenameFailure> {
    done.map_err(|failed| {
        let refused_step = match failed.code() {
            Some(SftpStatusCode::Unsupported) => RefusedRenameStep::Unsupported,
            Some(SftpStatusCode::NoSuchFile) | None => RefusedRenameStep::RnfrRefused,
            Some(_) => RefusedRenameStep::RntoRefused,
        };
        RenameFailure {
            failure: failure(failed),
            refused_step,
        }
    })
}

/// Replaces a file by one that is complete. The name under which the old one is meanwhile is nobody else's.
fn replace(
    connection: &mut SftpConnection,
    from: &[u8],
    to: &[u8],
    failure: impl Fn(SftpFailed) -> Failure,
) -> Result<(), Failure> {
    let aside = format!(".longhaul-replaced-{:016x}", random_token());
    let aside = [to, aside.as_bytes()].concat();
    connection
        .done(&SftpRequest::Rename(to, &aside))
        .map_err(&failure)?;
    let Err(refused) = connection.done(&SftpRequest::Rename(from, to)) else {
        if let Err(refused) = connection.done(&SftpRequest::Remove(&aside)) {
            let aside = proto::printable::printable(&aside);
            tracing::warn!(?refused, "the old file stays as {aside}");
        }
        return Ok(());
    };
    let restored = connection.done(&SftpRequest::Rename(&aside, to));
    let failure = failure(refused);
    Err(match restored {
        Ok(()) => failure,
        Err(_) => failure.remark(
            Sentence::from("the old file is now ").name(proto::printable::printable(&aside)),
        ),
    })
}

/// Makes a link. One that has the name is replaced; anything else stays.
pub(super) fn make_link(
    connection: &mut SftpConnection,
    target: &[u8],
    link: &[u8],
) -> Result<bool, SftpFailed> {
    let request = SftpRequest::SymLink { target, link };
    match connection.done(&request) {
        Err(failed) if failed.code() == Some(SftpStatusCode::Unsupported) => Ok(false),
        Err(refused) if refused.code().is_some() => {
            let found = attributes(connection, &SftpRequest::LinkStat(link));
            if !found.is_ok_and(|found| found.is_link()) {
                return Err(refused);
            }
            connection.done(&SftpRequest::Remove(link))?;
            connection.done(&request).map(|()| true)
        }
        made => made.map(|()| true),
    }
}

/// Sets times and permissions. Returns for each whether all of it was set.
pub(super) fn set_metadata(
    connection: &mut SftpConnection,
    changes: &[(Vec<u8>, KeptMetadata)],
) -> Result<Vec<bool>, SftpFailed> {
    let mut requests = Vec::new();
    let mut made = vec![true; changes.len()];
    for (change, (path, kept)) in changes.iter().enumerate() {
        // The time comes last: permissions may take the right to set it, which the owner has in any case.
        let mode = kept
            .mode
            .map(|mode| SftpRequest::SetMode(path, mode & 0o7777));
        let time = kept.modified.map(seconds);
        made[change] = time != Some(None);
        let time = time.flatten().map(|time| SftpRequest::SetTime(path, time));
        requests.extend(
            mode.into_iter()
                .chain(time)
                .map(|request| (change, request)),
        );
    }
    let timeout = connection.timeout();
    let sent: Vec<_> = requests.iter().map(|(_, request)| *request).collect();
    let replies = connection.call_all(&sent, timeout)?;
    for ((change, _), reply) in requests.iter().zip(replies) {
        made[*change] &= errors::done(reply).is_ok();
    }
    Ok(made)
}

/// Sets the time of a file; `false`: it cannot be expressed, or the server does not set it.
pub(super) fn set_modified(
    connection: &mut SftpConnection,
    path: &[u8],
    time: Timestamp,
) -> Result<bool, SftpFailed> {
    let Some(time) = seconds(time) else {
        return Ok(false);
    };
    match connection.done(&SftpRequest::SetTime(path, time)) {
        Err(refused) if refused.code() == Some(SftpStatusCode::Unsupported) => Ok(false),
        done => done.map(|()| true),
    }
}
