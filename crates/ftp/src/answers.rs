//! Answers of storages about files: facts of a source, entries of a directory, refused renames.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use data::os::stat;
use data::store::root::FileIdentity;
use proto::listing::{CoarseTime, ListedEntry};
use proto::timestamp::Timestamp;
use rustix::fs::Stat;

use crate::Failure;

/// Facts of a source file, read before it is transferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceFacts {
    /// Bytes.
    pub size: Option<u64>,
    /// Modification time.
    pub modified: Option<Timestamp>,
    /// Modification time as far as a listing shows it, if `modified` is unknown.
    pub coarse_time: Option<CoarseTime>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// A hash of what only this version of the file has: its entity tag, inode and times of a local file, the fraction of the
    /// time at a server. Equal ones show that the content is the same; different ones may also be those of one content, after
    /// a change of attributes, or at another host of a server. `None`: the storage tells nothing of that kind.
    pub version: Option<u64>,
    /// A hash of what identifies a file or directory whatever its content is: device and inode, the `Unique` fact.
    pub identity: Option<u64>,
    /// Whether it is in an archive, so that it can be read only while a copy of it is restored there.
    pub is_archived: bool,
}

/// Proof that bytes which are fetched at different times are of one version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceVersion {
    /// Size and time, as the storage tells them.
    Facts,
    /// A text that no other version has: a strong entity tag (RFC 9110 section 8.8.3).
    Tag(String),
    /// Nothing. Bytes of two transfers are not joined, unless a checksum of the whole file proves them.
    Unknown,
}

/// Metadata that a copy takes from its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptMetadata {
    /// Modification time.
    pub modified: Option<Timestamp>,
    /// Permission bits.
    pub mode: Option<u32>,
}

impl SourceFacts {
    /// The facts in an entry of a listing.
    pub fn from_entry(entry: &ListedEntry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
            coarse_time: entry.coarse_time,
            mode: entry.mode,
            version: version_of(entry),
            identity: identity_of(entry),
            is_archived: entry.is_archived,
        }
    }

    /// The facts of a local file.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).ok(),
            modified: modification_time(stat),
            coarse_time: None,
            mode: Some(stat::mode(stat) & 0o7777),
            version: Some(hash_of(version_text(&FileIdentity::from_stat(stat)))),
            identity: Some(hash_of(stat::inode(stat))),
            is_archived: false,
        }
    }

    /// The earliest and the latest moment of the modification; `None` if nothing is known of it.
    pub fn modified_between(&self) -> Option<(Timestamp, Timestamp)> {
        let exact = self.modified.map(|time| (time, time));
        exact.or_else(|| {
            self.coarse_time
                .map(|time| (time.earliest(), time.latest()))
        })
    }
}

/// The marks of a version of a local file beside size and time, as text.
pub fn version_text(found: &FileIdentity) -> String {
    // Without the device, whose number may be another one after the next boot.
    let (_, inode) = found.inode;
    let (fraction, changed) = (found.modified.nanoseconds, found.changed);
    format!(
        "{inode}-{fraction}-{}.{}",
        changed.seconds, changed.nanoseconds
    )
}

fn version_of(entry: &ListedEntry) -> Option<u64> {
    if let Some(version) = &entry.version {
        return Some(hash_of(version));
    }
    // Some servers end every time in zeros. A `Unique` fact alone outlives a change of content.
    let fraction = entry.modified_fraction.filter(|fraction| *fraction != 0)?;
    Some(hash_of((entry.unique.as_deref(), fraction)))
}

fn identity_of(entry: &ListedEntry) -> Option<u64> {
    let unique = entry.unique.as_deref()?;
    Some(match inode_of(unique) {
        // The same of this machine and of a server on it.
        Some(inode) => hash_of(inode),
        None => hash_of(unique),
    })
}

/// A hash that is the same in every process: a journal may hold it.
fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Device and inode in a `Unique` fact. Servers write two hexadecimal numbers, with a character of their own between them
/// (longhaul and globus `-`, proftpd `U`, pure-ftpd and pyftpdlib `g`).
fn inode_of(unique: &str) -> Option<(u64, u64)> {
    let (device, inode) = unique.split_once(|c: char| !c.is_ascii_hexdigit())?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(device)?, number(inode)?))
}

/// Metadata to set of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataChange<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// `None` in it: left as it is.
    pub kept: KeptMetadata,
}

/// Modification time of a local file.
pub fn modification_time(stat: &Stat) -> Option<Timestamp> {
    // Protocols have no times before 1970.
    (stat.st_mtime >= 0).then_some(Timestamp(stat.st_mtime))
}

/// Which entries of a listing must be told from symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymlinkCheckScope {
    /// None, for a listing that is only shown.
    Nothing,
    /// Directories, for a copy: a link to a directory could lead out of the tree.
    Directories,
    /// Every entry, for a removal: also dangling links, which MLSD may not list.
    Everything,
}

/// A directory entry, and whether the storage says if it is a symbolic link.
#[derive(Debug, Clone)]
pub struct SymlinkCheckedEntry {
    /// The entry.
    pub entry: ListedEntry,
    /// `false` for a directory that may really be a link to one: the server does not tell them
    /// apart.
    pub is_certain: bool,
}

impl SymlinkCheckedEntry {
    /// An entry of a storage that tells links.
    pub fn certain(entry: ListedEntry) -> Self {
        Self {
            entry,
            is_certain: true,
        }
    }
}

/// The failure of a rename, and the step that failed.
#[derive(Debug)]
pub struct RenameFailure {
    /// The refusal, or why there was no answer.
    pub failure: Failure,
    /// The step that was refused.
    pub refused_step: RefusedRenameStep,
}

/// The step of a rename that was refused. Only a refusal of RNTO says anything about the new name, and only one is about
/// more than this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedRenameStep {
    /// The storage has no rename.
    Unsupported,
    /// RNFR was refused, or the session failed before an answer.
    RnfrRefused,
    /// RNTO was refused, possibly because a file has the new name.
    NewNameMayExist,
    /// Something has the new name, or may have it, that must stay: it is no file, or the storage does not tell what it is.
    NewNameIsTaken,
    /// RNTO was refused for another reason: permission, space, a missing directory.
    RntoRefused,
}

impl From<Failure> for RenameFailure {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            refused_step: RefusedRenameStep::RnfrRefused,
        }
    }
}

/// Callback that receives the result of each removal.
pub type RemovalReport<'r> = dyn FnMut(Result<(), Failure>) + Send + 'r;

/// Callback that receives entries one by one and breaks when it needs no more.
pub type EntryVisitor<'v> = dyn FnMut(ListedEntry) -> ControlFlow<()> + Send + 'v;

/// Callback that receives the entries of a directory.
pub type ListingVisitor<'v> = dyn FnMut(SymlinkCheckedEntry) -> ControlFlow<()> + Send + 'v;

#[cfg(test)]
mod tests {
    use proto::listing::EntryKind;

    use super::*;

    #[test]
    fn a_file_has_one_identity_at_every_server_of_its_machine_whatever_its_times_are() {
        let identity = |unique: &str, modified_fraction| {
            SourceFacts::from_entry(&ListedEntry {
                unique: Some(unique.to_owned()),
                modified_fraction,
                ..ListedEntry::new(b"f", EntryKind::File)
            })
            .identity
        };
        let own = identity("fd01-2a0b", None);
        for other in ["fd01U2a0b", "fd01g2a0b", "FD01-2A0B"] {
            assert_eq!(identity(other, Some(5)), own, "{other}");
        }
        for other in ["fd01-2a0c", "fd012a0b", "fd01-2a0b-3", "fd01-", "x"] {
            assert_ne!(identity(other, None), own, "{other}");
        }
        let here = rustix::fs::stat("/").unwrap();
        let listed = identity(&format!("{:x}g{:x}", here.st_dev, here.st_ino), None);
        assert_eq!(listed, SourceFacts::from_stat(&here).identity);
    }

    #[test]
    fn a_server_shows_a_version_by_a_tag_or_a_fraction_of_the_time_and_not_by_the_name_of_the_file()
    {
        let version = |unique: Option<&str>, modified_fraction, version: Option<&str>| {
            SourceFacts::from_entry(&ListedEntry {
                unique: unique.map(str::to_owned),
                modified_fraction,
                version: version.map(str::to_owned),
                ..ListedEntry::new(b"f", EntryKind::File)
            })
            .version
        };
        for unproved in [None, Some(0)] {
            assert_eq!(version(Some("fd01-2a0b"), unproved, None), None);
        }
        let shown = [
            version(None, None, Some("\"v1\"")),
            version(None, None, Some("\"v2\"")),
            version(None, Some(5), None),
            version(Some("fd01-2a0b"), Some(5), None),
            version(Some("fd01-2a0b"), Some(6), None),
        ];
        for (n, one) in shown.iter().enumerate() {
            assert!(one.is_some() && !shown[..n].contains(one), "{n}");
        }
    }

    #[test]
    fn a_local_file_that_is_written_again_has_another_version_also_with_its_old_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let written = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(long_ago).unwrap();
            FileIdentity::once_settled(&file).unwrap();
            SourceFacts::from_stat(&rustix::fs::fstat(&file).unwrap())
        };
        let (first, second) = (written("one"), written("two"));
        assert_eq!((first.size, first.modified), (second.size, second.modified));
        assert_eq!(first.identity, second.identity);
        assert_ne!(first.version, second.version);
    }
}
