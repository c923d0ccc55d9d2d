//! Listings and facts of a store of objects.

use std::ops::ControlFlow;

use data::checksum::ChecksumHasher;
use proto::checksum::ChecksumAlgorithm;
use proto::listing::{DirectoryEntry, EntryKind, EntryPermissions, ListedEntry};
use proto::path::VPath;
use proto::pattern::GlobPattern;
use proto::server::{FileError, FileErrorKind, ListFormat, ListRequest};
use proto::timestamp::Timestamp;

use super::served::ServedFiles;
use crate::files::{Access, ListedFiles, ListingMemory, ListingWriter};

/// Owner and group of everything: objects have none that a client could know.
const OWNER: &str = "ftp";
/// Permission bits that are shown.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const WRITE_BITS: u32 = 0o222;

impl ServedFiles {
    /// The entry of a path.
    pub(super) fn stat(&self, path: &VPath) -> Result<DirectoryEntry, FileError> {
        self.paths.check(Access::Look, path)?;
        let entry = self.store.stat(path)?;
        Ok(self.entry(path, entry))
    }

    /// The entry at `path`.
    fn entry(&self, path: &VPath, listed: ListedEntry) -> DirectoryEntry {
        let is_directory = listed.kind != EntryKind::File;
        let mode = match is_directory {
            true => DIRECTORY_MODE,
            false => FILE_MODE,
        };
        let mut entry = DirectoryEntry {
            name: listed.name,
            kind: listed.kind,
            size: listed.size.unwrap_or(0),
            // Directories have no time of their own. A constant one is no change for those who compare it.
            modified: listed.modified.unwrap_or(Timestamp(0)),
            mode: match self.rights.write {
                true => mode,
                false => mode & !WRITE_BITS,
            },
            link_count: 1,
            uid: 0,
            gid: 0,
            owner: OWNER.to_owned(),
            group: OWNER.to_owned(),
            device_and_inode: (
                number_of(self.store.name().as_bytes()),
                number_of(path.as_bytes()),
            ),
            link_target: None,
            permissions: EntryPermissions {
                read: true,
                write: self.rights.write,
                execute: is_directory,
            },
        };
        self.paths.narrow(&mut entry, path);
        entry
    }

    /// The entry `listed` of a directory, which may be several levels below it.
    fn child(&self, directory: &VPath, listed: ListedEntry) -> DirectoryEntry {
        let path = directory.resolve(&listed.name);
        self.entry(path.as_ref().unwrap_or(directory), listed)
    }

    /// The path to list, and the pattern if there is one. A name that looks like a pattern is taken as a
    /// name if something of that name exists.
    fn resolve_pattern(&self, request: &ListRequest) -> (VPath, Option<GlobPattern>) {
        let Some(pattern) = &request.pattern else {
            return (request.path.clone(), None);
        };
        match request.path.join(pattern) {
            Ok(literal) if self.store.stat(&literal).is_ok() => (literal, None),
            _ => (request.path.clone(), Some(GlobPattern::new(pattern))),
        }
    }

    fn is_directory(&self, path: &VPath) -> Result<bool, FileError> {
        match self.store.enter(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind == FileErrorKind::NotADirectory => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The directory itself, under this name.
    fn directory(&self, path: &VPath, name: &[u8], kind: EntryKind) -> DirectoryEntry {
        let mut entry = self.entry(path, ListedEntry::new(name, EntryKind::Dir));
        entry.kind = kind;
        entry
    }

    /// Writes the directory itself and its parent, with which MLSD and MLSC begin (RFC 3659 section 7.5.1).
    fn write_dir_itself<F: FnMut(Vec<u8>) -> ControlFlow<()>>(
        &self,
        path: &VPath,
        writer: &mut ListingWriter<F>,
    ) {
        let this = self.directory(path, b".", EntryKind::CurrentDir);
        // The result is ignored: if `emit` breaks here, it breaks again at the next entry.
        let _ = writer.entry(&this, None);
        if !path.is_root() {
            let parent = self.directory(&path.parent(), b"..", EntryKind::ParentDir);
            let _ = writer.entry(&parent, None);
        }
    }
}

impl ListedFiles for ServedFiles {
    fn listing_memory(&self) -> &ListingMemory {
        &self.listing_memory
    }

    fn write_listing<F: FnMut(Vec<u8>) -> ControlFlow<()>>(
        &self,
        request: &ListRequest,
        writer: &mut ListingWriter<F>,
    ) -> Result<(), FileError> {
        self.paths.check(Access::List, &request.path)?;
        let (path, pattern) = self.resolve_pattern(request);
        // A name that looks like a pattern leads to another path.
        self.paths.check(Access::List, &path)?;
        let is_directory = self.is_directory(&path)?;
        if pattern.is_some() && !is_directory {
            return Err(not_a_directory(&path));
        }
        if !request.prefix.is_empty() && (pattern.is_some() || !is_directory) {
            writer.prefix.clone_from(&request.prefix);
        }
        let has_facts = matches!(request.format, ListFormat::Facts(_));
        if request.recursive && is_directory {
            let top = self.directory(&path, b".", EntryKind::CurrentDir);
            if writer.entry(&top, None).is_break() {
                return Ok(());
            }
        } else if has_facts && is_directory {
            self.write_dir_itself(&path, writer);
        }
        let mut visit = |listed: ListedEntry| {
            let is_shown = self.paths.shows(&path, &listed.name)
                && pattern
                    .as_ref()
                    .is_none_or(|pattern| pattern.matches(&listed.name));
            match is_shown {
                false => ControlFlow::Continue(()),
                true if !is_directory => writer.entry(&self.entry(&path, listed), None),
                true => writer.entry(&self.child(&path, listed), None),
            }
        };
        match request.recursive && is_directory {
            true => self.store.walk(&path, &mut visit),
            false => self.store.list(&path, &mut visit),
        }
    }
}

fn not_a_directory(path: &VPath) -> FileError {
    FileError::new(
        FileErrorKind::NotADirectory,
        format!("cannot list {path}: Not a directory"),
    )
}

/// A number by which names can be told from each other, the same at all times.
fn number_of(name: &[u8]) -> u64 {
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Sha256);
    hasher.update(name);
    let hex = hasher.finish();
    hex.get(..16)
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .unwrap_or(0)
}
