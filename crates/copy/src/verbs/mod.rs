//! The single-file commands (ls, stat, rm, mkdir, mv, cksum): one session each, no retries.

use std::sync::Arc;

use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;
use proto::listing::EntryKind;

use crate::local::partial::hashed_partial_path;
use crate::options::RemoteOptions;
use crate::plan::make_with_parents;
use crate::storage::collected::CollectedEntries;
use crate::storage::contract::Storage;
use crate::storage::entry_names::join_path;
use crate::storage_access::StorageAccess;
use crate::verbs::matching::{ShownTree, UnlistedDirectories, visit_tree};
use crate::verbs::removal_preview::directory_failure;
use ftp::answers::{EntryVisitor, RemovalReport, SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::location::{Location, Server, StorageId};
use ftp::session::{ListingUse, SessionOpening, display_path};
use ftp::{Failure, FailureKind};

mod matching;
pub(crate) mod removal_preview;
mod unfinished;

pub use unfinished::{
    UploadRemoval, UploadVisitor, idle_time, remove_unfinished, visit_unfinished,
};

/// One entry of `ls` and `stat`.
pub type RemoteEntry = proto::listing::ListedEntry;

/// A URL's server and path. Local paths are refused: the system's own tools handle those.
fn parse_remote_url(url: &str, options: &RemoteOptions) -> Result<(Server, Vec<u8>), Failure> {
    match Location::parse_secured(url, &options.security)? {
        Location::Remote { server, path } => {
            options.security.check_use(&[&server])?;
            Ok((server, path))
        }
        other => Err(Failure::usage(format!(
            "{} is not remote: give a URL (ftp:, ftps:, gsiftp:, ssh:, sshftp:, sftp:, http:, https:, dav:, davs: or \
             s3:), or a remote of the configuration",
            other.display()
        ))),
    }
}

async fn open_storage(
    server: &Server,
    options: &RemoteOptions,
) -> Result<Box<dyn Storage>, Failure> {
    open_for(ListingUse::Reading, server, options).await
}

/// A storage whose listings are used so.
async fn open_for(
    listing_use: ListingUse,
    server: &Server,
    options: &RemoteOptions,
) -> Result<Box<dyn Storage>, Failure> {
    let id = StorageId::Server(server.clone());
    let access = storage_access(listing_use, options);
    access.open(&id, SessionOpening::default()).await
}

fn storage_access(listing_use: ListingUse, options: &RemoteOptions) -> StorageAccess {
    StorageAccess {
        timeout: options.timeout,
        foreign_data: false,
        listing_use,
        sync_policy: SyncPolicy::default(),
        trees: Arc::default(),
    }
}

/// The path without trailing slashes, which servers expect in names; the root stays `/`.
fn without_trailing_slash(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(1, |i| i + 1);
    &path[..end]
}

/// Lists a remote directory or file.
pub async fn list(url: &str, options: &RemoteOptions) -> Result<Vec<RemoteEntry>, Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_storage(&server, options).await?;
    let result = async {
        let mut entries = match path.ends_with(b"/") {
            true => collect_entries(&mut *storage, without_trailing_slash(&path)).await?,
            false => list_directory_or_file(&mut *storage, &path).await?,
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
    .await;
    storage.close().await;
    result
}

/// Like [`list`], for large directories: `visit` receives the entries as they arrive, in the
/// server's order, and returns `Break` to stop. Memory is bounded.
///
/// The last component of the URL may be a pattern (`*`, `?`, `[]`, `{a,b}`), which stands for the entries of that name.
/// With `recursive`, the content of each directory comes after it, under its path; links are not followed.
///
/// # Errors
/// As [`list`]; `NotFound` if nothing matches; `Partial` if directories below could not be listed. Some entries may have
/// been visited before the error.
pub async fn list_each(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
    visit: &mut EntryVisitor<'_>,
) -> Result<(), Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_storage(&server, options).await?;
    let at = Location::Remote { server, path };
    let result = list_location(&mut *storage, &at, recursive, visit).await;
    storage.close().await;
    result
}

async fn list_location(
    storage: &mut dyn Storage,
    at: &Location,
    recursive: bool,
    visit: &mut EntryVisitor<'_>,
) -> Result<(), Failure> {
    let path = without_trailing_slash(at.path());
    let mut unlisted = UnlistedDirectories::default();
    if let Some(matched) = matching::expand(storage, at).await? {
        if let Some(failure) = matched.incomplete {
            unlisted.add(failure);
        }
        for entry in matched.entries {
            let is_directory = entry.kind == EntryKind::Dir && !entry.is_symlink();
            let name = entry.name.clone();
            if visit(entry).is_break() {
                return Ok(());
            }
            if is_directory && recursive {
                let top = join_path(&matched.parent, &name);
                let tree = ShownTree {
                    top: &top,
                    prefix: &name,
                };
                if visit_tree(storage, tree, &mut unlisted, visit)
                    .await?
                    .is_break()
                {
                    return Ok(());
                }
            }
        }
        return unlisted.result();
    }
    let is_directory = at.path().ends_with(b"/");
    if !is_directory && let Some(entry) = stat_if_file(storage, path).await? {
        // The visitor's wish to stop is irrelevant after the only entry.
        let _ = visit(entry);
        return Ok(());
    }
    if !recursive {
        let mut visit = |checked: SymlinkCheckedEntry| visit(checked.entry);
        let scope = SymlinkCheckScope::Nothing;
        return storage.list(path, scope, &mut visit).await;
    }
    let tree = ShownTree {
        top: path,
        prefix: b"",
    };
    let _ = visit_tree(storage, tree, &mut unlisted, visit).await?;
    unlisted.result()
}

/// All entries of a directory.
async fn collect_entries(
    storage: &mut dyn Storage,
    path: &[u8],
) -> Result<Vec<RemoteEntry>, Failure> {
    let listed = CollectedEntries::of(storage, path, SymlinkCheckScope::Nothing).await?;
    let entries = listed.complete()?.into_iter().map(|checked| checked.entry);
    Ok(entries.collect())
}

/// The entries of a directory, or the entry of a file under its last component.
async fn list_directory_or_file(
    storage: &mut dyn Storage,
    path: &[u8],
) -> Result<Vec<RemoteEntry>, Failure> {
    match stat_if_file(storage, path).await? {
        Some(entry) => Ok(vec![entry]),
        None => collect_entries(storage, path).await,
    }
}

/// The entry of the file at `path` under its last component; `None` for a directory.
async fn stat_if_file(
    storage: &mut dyn Storage,
    path: &[u8],
) -> Result<Option<RemoteEntry>, Failure> {
    let mut entry = storage.stat(path).await?;
    if entry.kind == EntryKind::Dir {
        return Ok(None);
    }
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    entry.name = path[start..].to_vec();
    Ok(Some(entry))
}

/// Facts of one remote path.
pub async fn stat(url: &str, options: &RemoteOptions) -> Result<RemoteEntry, Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_storage(&server, options).await?;
    let result = storage.stat(without_trailing_slash(&path)).await;
    storage.close().await;
    result
}

/// Deletes a remote file, or a directory tree when `recursive`.
pub async fn remove(url: &str, recursive: bool, options: &RemoteOptions) -> Result<(), Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let path = removable_path(Some(&server), &path)?;
    let mut storage = open_for(ListingUse::Deleting, &server, options).await?;
    let result = remove_path(&mut *storage, path, recursive).await;
    storage.close().await;
    result
}

async fn remove_path(
    storage: &mut dyn Storage,
    path: &[u8],
    recursive: bool,
) -> Result<(), Failure> {
    match recursive {
        true => storage.remove_tree(path).await,
        false => remove_file(storage, path).await,
    }
}

/// Deletes all that a URL stands for: what it names, or what matches the pattern in its last component. `report`
/// receives the result of each removal; a failure does not keep the others.
///
/// # Errors
/// `NotFound` if nothing matches. The session was lost; then nothing further is deleted.
pub async fn remove_each(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
    report: &mut RemovalReport<'_>,
) -> Result<(), Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_for(ListingUse::Deleting, &server, options).await?;
    let at = Location::Remote { server, path };
    let result = async {
        for path in removed_paths(&mut *storage, &at).await? {
            let removed = remove_path(&mut *storage, &path, recursive).await;
            if removed.as_ref().is_err_and(Failure::may_retry) {
                // The session is lost.
                return removed;
            }
            report(removed);
        }
        Ok(())
    }
    .await;
    storage.close().await;
    result
}

/// The paths that a removal of `at` is about.
async fn removed_paths(storage: &mut dyn Storage, at: &Location) -> Result<Vec<Vec<u8>>, Failure> {
    let path = removable_path(at.server(), at.path())?;
    let Some(matched) = matching::expand(storage, at).await? else {
        return Ok(vec![path.to_vec()]);
    };
    // Not even the names of those that match are beyond doubt.
    if let Some(failure) = matched.incomplete {
        return Err(failure.within("nothing was deleted"));
    }
    let names = matched.entries.iter().map(|entry| &entry.name);
    Ok(names.map(|name| join_path(&matched.parent, name)).collect())
}

/// Shows `visit` what [`remove_each`] would delete, and deletes nothing: each entry has its full path on the server for its
/// name, a directory comes before its content, and links are not followed. `Break` ends the listing.
///
/// # Errors
/// As [`remove`]; with a pattern the first failure, after all that could be shown.
pub async fn preview_removal(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
    visit: &mut EntryVisitor<'_>,
) -> Result<(), Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_for(ListingUse::Deleting, &server, options).await?;
    let at = Location::Remote { server, path };
    let result = async {
        let mut first_failure = None;
        for path in removed_paths(&mut *storage, &at).await? {
            let previewed =
                removal_preview::preview_removal(&mut *storage, &path, recursive, visit);
            match previewed.await {
                Err(failure) if failure.may_retry() => return Err(failure),
                Err(failure) => first_failure = first_failure.or(Some(failure)),
                Ok(()) => {}
            }
        }
        first_failure.map_or(Ok(()), Err)
    }
    .await;
    storage.close().await;
    result
}

/// The path of a removal: anything but the root and a home directory of an ssh: or sshftp: URL. `.` and `..` as the last name are refused as by rm(1): `rm -r d/..` would
/// remove what is around `d`, up to the root.
fn removable_path<'a>(server: Option<&Server>, path: &'a [u8]) -> Result<&'a [u8], Failure> {
    let usage = |message: String| Err(Failure::usage(message));
    let path = without_trailing_slash(path);
    let name = path.strip_prefix(b"/").unwrap_or(path);
    let is_ssh = server.is_some_and(|server| server.scheme.is_ssh());
    if name == b"~" || (is_ssh && name.starts_with(b"~") && !name.contains(&b'/')) {
        return usage("a home directory is not removed".to_owned());
    }
    match path.rsplit(|byte| *byte == b'/').next().unwrap_or_default() {
        b"" if server.is_some() => usage(
            "the root is not removed; a pattern names all that is in it, for example 'URL/*'"
                .to_owned(),
        ),
        b"" => usage("the root is not removed".to_owned()),
        b"." | b".." => usage(format!(
            "{} is not removed: name the directory itself",
            display_path(path)
        )),
        _ => Ok(path),
    }
}

/// Removes a file, and the partial file of an unfinished upload if that has a hash for its name:
/// nobody else could tell what it belongs to.
async fn remove_file(storage: &mut dyn Storage, path: &[u8]) -> Result<(), Failure> {
    let result = remove_existing(storage, path).await;
    // Also when the file itself is missing: an upload that never finished leaves only its partial
    // file.
    let is_absent = result.as_ref().err().is_none_or(Failure::is_missing);
    let Some(partial) = hashed_partial_path(path).filter(|_| is_absent) else {
        return result;
    };
    match (result, storage.remove(&partial).await) {
        (Err(_), Ok(())) => Ok(()),
        // Usually there is no partial file.
        (result, _) => result,
    }
}

/// Removes a file. The refusal to remove a directory is explained here, since servers use many
/// texts for it, and some none.
async fn remove_existing(storage: &mut dyn Storage, path: &[u8]) -> Result<(), Failure> {
    let Err(failure) = storage.remove(path).await else {
        return Ok(());
    };
    if failure.may_retry() || failure.is_missing() {
        return Err(failure);
    }
    match storage.stat(path).await {
        Ok(entry) if entry.kind == EntryKind::Dir => Err(directory_failure(storage.name(), path)),
        _ => Err(failure),
    }
}

/// Creates a remote directory. With `parents`, also creates the missing directories above it and
/// accepts existing ones.
pub async fn make_dir(url: &str, parents: bool, options: &RemoteOptions) -> Result<(), Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_storage(&server, options).await?;
    let result = if parents {
        make_with_parents(&mut *storage, &path).await
    } else {
        match storage.make_dir(without_trailing_slash(&path)).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let directory = Location::Remote {
                    server: server.clone(),
                    path: path.clone(),
                };
                Err(Failure::protocol(format!(
                    "{} exists already (`longhaul mkdir -p` takes that for done)",
                    directory.display()
                )))
            }
            Err(failure) => Err(failure),
        }
    };
    storage.close().await;
    result
}

/// Renames on one server. `to` is a URL of the same server.
pub async fn rename(from: &str, to: &str, options: &RemoteOptions) -> Result<(), Failure> {
    let (server, from) = parse_remote_url(from, options)?;
    let (other, to) = parse_remote_url(to, options)?;
    // RNFR and RNTO work within one session; the login may differ in spelling.
    if (&server.host, server.port) != (&other.host, other.port) {
        return Err(Failure::usage(
            "both names must be on one server: copy with cp and remove with rm instead",
        ));
    }
    let mut storage = open_storage(&server, options).await?;
    let result = storage
        .rename(
            without_trailing_slash(&from),
            without_trailing_slash(&to),
            None,
        )
        .await;
    let result = result.map_err(|failure| failure.failure);
    storage.close().await;
    result
}

/// Checksum of a remote or local file, or of a part of it, in lower-case hex.
pub async fn checksum(
    url: &str,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    options: &RemoteOptions,
) -> Result<String, Failure> {
    match Location::parse_secured(url, &options.security)? {
        Location::StandardStreams => Err(Failure::usage(
            "standard input cannot be checksummed: name a file",
        )),
        at @ Location::Local(_) => {
            let access = storage_access(ListingUse::Reading, options);
            let opening = SessionOpening::default();
            let mut files = access.open(&StorageId::LocalFiles, opening).await?;
            files.checksum(algorithm, offset, length, at.path()).await
        }
        Location::Remote { server, path } => {
            options.security.check_use(&[&server])?;
            let mut storage = open_storage(&server, options).await?;
            let mut result = storage
                .checksum(algorithm, offset, length, without_trailing_slash(&path))
                .await;
            if result
                .as_ref()
                .is_err_and(|f| f.kind() == FailureKind::Protocol && !f.may_retry())
                && let Err(missing) = storage.stat(without_trailing_slash(&path)).await
            {
                // A server without this checksum may not have the file either.
                result = Err(missing);
            }
            storage.close().await;
            result
        }
    }
}
