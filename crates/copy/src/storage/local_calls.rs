//! Blocking calls on local files.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use data::os::{attributes, stat};
use data::store::durability::SyncPolicy;
use data::store::root::FileIdentity;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Stat};
use rustix::io::Errno;

use crate::local::local_name::{LocalName, directory_of, is_directory, is_link};
use crate::local::partial::{local_failure, store_failure};
use ftp::answers::{KeptMetadata, modification_time, version_text};
use ftp::{Failure, FailureKind};

/// Entries that are handed over together while a directory is read.
const ENTRIES_AT_A_TIME: usize = 512;

/// A failure concerning a path: [`FailureKind::NotFound`] if nothing exists there.
pub(super) fn path_failure(path: &Path, error: &io::Error) -> Failure {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            Failure::about(FailureKind::NotFound, path.display(), error).advise("check the path")
        }
        Some(Errno::LOOP) => local_failure(
            path,
            "a symbolic link is in its way, and none is followed below a directory that is copied",
        ),
        _ => store_failure(path, error),
    }
}

/// A failure of the system concerning a name.
fn name_failure(name: &LocalName, errno: Errno) -> Failure {
    path_failure(name.path(), &errno.into())
}

/// The entry for a file with these attributes.
fn listed_entry(name: &[u8], stat: &Stat) -> ListedEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => EntryKind::SymLink,
        FileType::Directory => EntryKind::Dir,
        FileType::RegularFile => EntryKind::File,
        _ => EntryKind::Other,
    };
    let size = u64::try_from(stat.st_size).ok();
    let (device, inode) = stat::inode(stat);
    ListedEntry {
        size: size.filter(|_| kind == EntryKind::File),
        modified: modification_time(stat),
        mode: Some(stat::mode(stat) & 0o7777),
        link_count: Some(stat::link_count(stat)),
        unique: Some(format!("{device:x}-{inode:x}")),
        version: (kind == EntryKind::File).then(|| version_text(&FileIdentity::from_stat(stat))),
        ..ListedEntry::new(name, kind)
    }
}

/// Facts of a name, with links followed if it stands for what they lead to. A dangling link is reported as a link.
pub(super) fn stat_name(name: &LocalName) -> Result<ListedEntry, Failure> {
    let shown = name.path().file_name();
    let shown = shown.map_or(&b""[..], OsStrExt::as_bytes);
    let found = match name.stat() {
        Err(Errno::NOENT) => name.own_stat(),
        found => found,
    };
    let found = found.map_err(|errno| name_failure(name, errno))?;
    Ok(listed_entry(shown, &found))
}

/// Reads an open directory; `visit` receives the entries as they are read, some at a time. Links are not followed. `path` is
/// for messages.
///
/// # Errors
/// It, or the facts of some entries, cannot be read; `visit` has received all others.
pub(super) fn read_directory(
    directory: &File,
    path: &Path,
    mut visit: impl FnMut(Vec<ListedEntry>) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let failed = |errno: Errno| path_failure(path, &errno.into());
    let mut entries = Vec::new();
    let mut read = Ok(());
    for item in Dir::read_from(directory).map_err(failed)? {
        match item
            .map_err(failed)
            .and_then(|item| entry_of(directory, path, &item))
        {
            Ok(entry) => entries.extend(entry),
            Err(failure) => read = read.and(Err(failure)),
        }
        if entries.len() >= ENTRIES_AT_A_TIME && visit(std::mem::take(&mut entries)).is_break() {
            return Ok(());
        }
    }
    let _ = visit(entries);
    read
}

/// An entry of the open directory `path`; `None` if it was removed since the directory was read. A link is not followed.
fn entry_of(
    directory: &File,
    path: &Path,
    item: &DirEntry,
) -> Result<Option<ListedEntry>, Failure> {
    let name = item.file_name();
    if matches!(name.to_bytes(), b"." | b"..") {
        return Ok(None);
    }
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => {
            let path = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            return Err(path_failure(&path, &errno.into()));
        }
    };
    let mut entry = listed_entry(name.to_bytes(), &stat);
    if entry.kind == EntryKind::SymLink {
        let target = rustix::fs::readlinkat(directory, name, Vec::new());
        let target = target.map(std::ffi::CString::into_bytes);
        entry.link_target = Some(target.unwrap_or_default());
    }
    Ok(Some(entry))
}

/// Creates a directory and syncs its name, because a power cut could otherwise remove it with the
/// files in it. `false` if it exists already.
pub(super) fn make_directory(name: &LocalName, policy: SyncPolicy) -> Result<bool, Failure> {
    // The directory entry is durable only after the parent directory is synced (fsync(2)).
    match name.make_directory() {
        Ok(()) => {
            let synced = name.sync_directory(policy);
            synced.map_err(|e| local_failure(name.path(), e))?;
            Ok(true)
        }
        Err(Errno::EXIST) => match name.stat() {
            Ok(there) if is_directory(&there) => Ok(false),
            Ok(there) if is_link(&there) => Err(local_failure(
                name.path(),
                "is a symbolic link, and the copy has a directory of this name: remove the link, or copy this \
                 directory by itself to where the link leads",
            )),
            _ => Err(name_failure(name, Errno::EXIST)),
        },
        Err(errno) => Err(name_failure(name, errno)),
    }
}

/// Creates directories, parents first, and forces their names to disk with `sync`: each directory that holds some of them
/// once. Returns for each whether it was created. If `sync` fails, those whose names are not on disk are removed again, so
/// that whoever makes them one by one learns why. `locate` finds the name of a path.
pub(super) fn make_directories<P: AsRef<Path>>(
    paths: &[P],
    locate: impl Fn(&Path) -> io::Result<LocalName>,
    mut sync: impl FnMut(&LocalName) -> io::Result<()>,
) -> Vec<bool> {
    // None stays open: there may be more directories than descriptors.
    let create = |path: &P| {
        let made = locate(path.as_ref()).map(|name| name.make_directory().is_ok());
        made.unwrap_or(false)
    };
    let mut made: Vec<bool> = paths.iter().map(create).collect();
    let mut synced = HashSet::new();
    let mut failed = false;
    for (path, _) in paths.iter().zip(&made).filter(|(_, made)| **made) {
        let parent = directory_of(path.as_ref());
        if !failed && !synced.contains(parent) {
            failed = locate(path.as_ref()).and_then(|name| sync(&name)).is_err();
            if !failed {
                synced.insert(parent);
            }
        }
    }
    // Children first. After a failure nothing was synced, so no child of a directory without a safe name is left.
    for (path, made) in paths.iter().zip(&mut made).rev() {
        if *made && !synced.contains(directory_of(path.as_ref())) {
            let removed = locate(path.as_ref()).map(|name| name.remove_directory().is_ok());
            *made = !removed.unwrap_or(false);
        }
    }
    made
}

/// Creates a symbolic link. Only another link is replaced.
pub(super) fn make_symlink(target: &Path, name: &LocalName) -> Result<(), Failure> {
    let made = match name.make_link(target) {
        Err(Errno::EXIST) => {
            if !name.own_stat().is_ok_and(|there| is_link(&there)) {
                return Err(local_failure(name.path(), "exists and is not a link"));
            }
            // symlink(2) does not replace, so the old link is removed first.
            name.remove().and_then(|()| name.make_link(target))
        }
        made => made,
    };
    made.map_err(|errno| local_failure(name.path(), io::Error::from(errno)))
}

/// Sets the modification time of a file or directory. `false`: the file system has no such time.
pub(super) fn set_file_time(name: &LocalName, time: Timestamp) -> Result<bool, Failure> {
    let located = name.locate().map_err(|e| path_failure(name.path(), &e))?;
    match attributes::set_modified(located, time.0, 0) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::OVERFLOW) => Ok(false),
        Err(errno) => Err(name_failure(name, errno)),
    }
}

/// Sets time and permissions. Returns whether all of it was set.
pub(super) fn set_kept(name: &LocalName, kept: KeptMetadata) -> bool {
    let has_time = kept
        .modified
        .is_none_or(|time| set_file_time(name, time).unwrap_or(false));
    let set_mode = |mode: u32| {
        let located = name.locate().ok()?;
        attributes::set_mode(located, mode).ok()
    };
    let has_mode = kept.mode.is_none_or(|mode| set_mode(mode).is_some());
    has_time && has_mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_that_holds_new_ones_is_synced_once() {
        let top = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "a/c", "a/d", "a"].map(|name| top.path().join(name));
        let mut synced = Vec::new();
        let made = make_directories(&paths, LocalName::at, |name| {
            synced.push(directory_of(name.path()).to_owned());
            Ok(())
        });
        assert_eq!(made, [true, true, true, true, false]);
        assert_eq!(synced, [top.path().to_owned(), top.path().join("a")]);
    }

    #[test]
    fn directories_whose_names_are_not_on_disk_are_removed_and_not_reported_as_made() {
        let top = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "a/c", "b/d", "b/d/e"].map(|name| top.path().join(name));
        let is_b = |name: &LocalName| directory_of(name.path()).ends_with("b");
        let made = make_directories(&paths, LocalName::at, |name| match is_b(name) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        });
        assert_eq!(made, [true, true, true, false, false]);
        assert_eq!(paths.map(|path| path.exists()).to_vec(), made);
    }
}
