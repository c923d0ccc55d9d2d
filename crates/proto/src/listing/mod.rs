//! Directory entries and their wire forms: MLSx facts (RFC 3659 §7), `ls -l` lines, names.

mod facts;
mod ls;
mod mlsx;

pub use facts::{Fact, FactSet};
pub use ls::{format_ls, parse_ls};
pub use mlsx::{format_mlsx, parse_mlsx};

use crate::timestamp::Timestamp;

/// Kind of an entry (the `DataType` fact).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// The listed directory itself (`cdir`).
    CurrentDir,
    /// Its parent (`pdir`).
    ParentDir,
    /// Symbolic link: as a server knows it, one that leads nowhere; as a client learns it, any that
    /// the server shows itself.
    SymLink,
    /// Pipe, socket, device.
    Other,
}

/// Rights of the session's account over an entry, for the `Perm` fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryPermissions {
    /// Read or list.
    pub read: bool,
    /// Write or create inside.
    pub write: bool,
    /// Enter (directories).
    pub execute: bool,
}

/// One entry as a server knows it. Symbolic links are followed where they can be; `link_target`
/// tells of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Last component, or the path as asked (MLST).
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Timestamp,
    /// Permission bits, 0..=0o7777.
    pub mode: u32,
    /// Number of links.
    pub link_count: u64,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
    /// Owner's name, or the number as text.
    pub owner: String,
    /// Group's name, or the number as text.
    pub group: String,
    /// Device and inode, for the `Unique` fact.
    pub device_and_inode: (u64, u64),
    /// Target of a symbolic link.
    pub link_target: Option<Vec<u8>>,
    /// Effective rights.
    pub permissions: EntryPermissions,
}

/// An entry as a client learns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Name as listed (for MLSR a relative path).
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Bytes, if told.
    pub size: Option<u64>,
    /// Modification time, if told (LIST tells it only roughly and gives `None`).
    pub modified: Option<Timestamp>,
    /// Permission bits, if told.
    pub mode: Option<u32>,
    /// Owner, if told.
    pub owner: Option<String>,
    /// Group, if told.
    pub group: Option<String>,
    /// Target of a symbolic link, if told; the other facts may be the target's then (`UNIX.slink`).
    pub link_target: Option<Vec<u8>>,
    /// The `Unique` fact, which tells two files of the server apart, if told.
    pub unique: Option<String>,
}

impl ListedEntry {
    /// An entry of which nothing else is told.
    pub fn new(name: &[u8], kind: EntryKind) -> Self {
        Self {
            name: name.to_vec(),
            kind,
            size: None,
            modified: None,
            mode: None,
            owner: None,
            group: None,
            link_target: None,
            unique: None,
        }
    }

    /// Whether this is a symbolic link, whatever its kind says of what it leads to.
    pub fn is_symlink(&self) -> bool {
        self.kind == EntryKind::SymLink || self.link_target.is_some()
    }
}

impl DirectoryEntry {
    /// The owner as one word: the number when the name has spaces or is empty.
    fn owner_column(&self) -> String {
        account_column(&self.owner, self.uid)
    }

    /// The group as one word.
    fn group_column(&self) -> String {
        account_column(&self.group, self.gid)
    }
}

/// Account names of directory services may hold spaces, which would shift every column after them.
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

/// A name as it travels on a line: CR, LF and NUL become `?`.
fn push_name(name: &[u8], line: &mut Vec<u8>) {
    line.extend(name.iter().map(|b| match b {
        b'\r' | b'\n' | 0 => b'?',
        other => *other,
    }));
}

/// Without trailing CRs (TYPE A listings of some servers end in CR CR LF) and LF.
fn without_ending(line: &[u8]) -> &[u8] {
    let end = line
        .iter()
        .rposition(|b| !matches!(b, b'\r' | b'\n'))
        .map_or(0, |i| i + 1);
    &line[..end]
}

/// `.` and `..` as directories of their own kind.
fn directory_kind(name: &[u8]) -> EntryKind {
    match name {
        b"." => EntryKind::CurrentDir,
        b".." => EntryKind::ParentDir,
        _ => EntryKind::Dir,
    }
}

#[cfg(test)]
mod tests;
