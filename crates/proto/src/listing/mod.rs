//! Directory entries and their forms in listings: MLSx facts (RFC 3659 §7) and `ls -l` lines.

mod coarse_time;
mod dos;
mod eplf;
mod facts;
mod ls;
mod mlsx;
pub(crate) mod months;
mod reader;
mod row_date;

pub use coarse_time::CoarseTime;
pub use facts::{Fact, FactSet};
pub use ls::{format_ls, parse_ls};
pub use mlsx::{format_mlsx, parse_mlsx};
pub use reader::{ListingFormat, ListingReader};

use crate::timestamp::Timestamp;

/// Kind of an entry (the `Type` fact).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// The listed directory itself (`cdir`).
    CurrentDir,
    /// Parent of the listed directory (`pdir`).
    ParentDir,
    /// Symbolic link. At the server: a dangling link, since others have the kind of their target. At the
    /// client: any link that the server shows as a link.
    SymLink,
    /// Pipe, socket or device.
    Other,
}

/// Permissions of the session's account on an entry, for the `Perm` fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryPermissions {
    /// May read the file or list the directory.
    pub read: bool,
    /// May write the file or create entries in the directory.
    pub write: bool,
    /// May enter the directory.
    pub execute: bool,
}

/// A directory entry at the server. Symbolic links are followed if possible; `link_target` shows that
/// the entry is a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Last component, or the path that the client sent (MLST).
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Size, bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Timestamp,
    /// Permission bits, 0..=0o7777.
    pub mode: u32,
    /// Number of hard links.
    pub link_count: u64,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Name of the owner, or the user ID as text.
    pub owner: String,
    /// Name of the group, or the group ID as text.
    pub group: String,
    /// Device and inode, for the `Unique` fact.
    pub device_and_inode: (u64, u64),
    /// Target of a symbolic link.
    pub link_target: Option<Vec<u8>>,
    /// Permissions of the session's account.
    pub permissions: EntryPermissions,
}

/// A directory entry that a client has read from a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Name in the listing (for MLSR a relative path).
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Size, bytes, if listed.
    pub size: Option<u64>,
    /// Modification time, if listed to the second and in UTC.
    pub modified: Option<Timestamp>,
    /// Its fraction of a second, nanoseconds, if listed.
    pub modified_fraction: Option<u32>,
    /// Modification time as far as LIST shows it, if `modified` is unknown.
    pub coarse_time: Option<CoarseTime>,
    /// Permission bits, if listed.
    pub mode: Option<u32>,
    /// Owner, if listed.
    pub owner: Option<String>,
    /// Group, if listed.
    pub group: Option<String>,
    /// Target of a symbolic link, if listed. The other facts may be those of the target (`UNIX.slink`).
    pub link_target: Option<Vec<u8>>,
    /// The `Unique` fact, which identifies a file of the server, whatever its content is, if listed.
    pub unique: Option<String>,
    /// A text that no other version of the file has (a strong entity tag), if the storage has such texts.
    pub version: Option<String>,
    /// Whether this session may enter and list a directory (`Perm`), if listed.
    pub may_list: Option<bool>,
    /// Number of names that the file has (hard links), if listed.
    pub link_count: Option<u64>,
    /// Whether the file is in an archive: it can be read only while a copy of it is restored there.
    pub is_archived: bool,
}

impl ListedEntry {
    /// An entry with name and kind only.
    pub fn new(name: &[u8], kind: EntryKind) -> Self {
        Self {
            name: name.to_vec(),
            kind,
            size: None,
            modified: None,
            modified_fraction: None,
            coarse_time: None,
            mode: None,
            owner: None,
            group: None,
            link_target: None,
            unique: None,
            version: None,
            may_list: None,
            link_count: None,
            is_archived: false,
        }
    }

    /// Whether this is a symbolic link. Its kind may be that of the target.
    pub fn is_symlink(&self) -> bool {
        self.kind == EntryKind::SymLink || self.link_target.is_some()
    }
}

impl DirectoryEntry {
    /// The owner as one word: the user ID if the name is empty or contains spaces.
    fn owner_column(&self) -> String {
        account_column(&self.owner, self.uid)
    }

    /// The group as one word, likewise.
    fn group_column(&self) -> String {
        account_column(&self.group, self.gid)
    }
}

/// Column of an account: the name, or the ID if the name is no single word. Account names of directory
/// services may contain spaces, which would shift the following columns.
fn account_column(name: &str, number: u32) -> String {
    let is_word = !name.is_empty()
        && !name
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || c == ';');
    if is_word {
        name.to_owned()
    } else {
        number.to_string()
    }
}

/// Appends a name to a line; CR, LF and NUL become `?`.
fn push_name(name: &[u8], line: &mut Vec<u8>) {
    line.extend(name.iter().map(|b| match b {
        b'\r' | b'\n' | 0 => b'?',
        other => *other,
    }));
}

/// The line without trailing CR and LF. TYPE A listings of some servers end lines with CR CR LF.
fn without_ending(line: &[u8]) -> &[u8] {
    let end = line
        .iter()
        .rposition(|b| !matches!(b, b'\r' | b'\n'))
        .map_or(0, |i| i + 1);
    &line[..end]
}

/// Kind of a directory with this name: `.` and `..` have kinds of their own.
fn directory_kind(name: &[u8]) -> EntryKind {
    match name {
        b"." => EntryKind::CurrentDir,
        b".." => EntryKind::ParentDir,
        _ => EntryKind::Dir,
    }
}

#[cfg(test)]
mod tests;
