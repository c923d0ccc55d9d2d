//! Directory entries and their wire forms: MLSx facts (RFC 3659 §7), `ls -l` lines, names.

use crate::timestamp::Timestamp;

/// What an entry is (the `Type` fact).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// The listed directory itself (`cdir`).
    CurrentDir,
    /// Its parent (`pdir`).
    ParentDir,
    /// Symbolic link whose target is missing or outside; only from servers that list them.
    SymLink,
    /// Pipe, socket, device.
    Other,
}

/// What the session's account may do with an entry, for the `Perm` fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Read or list.
    pub read: bool,
    /// Write or create inside.
    pub write: bool,
    /// Enter (directories).
    pub execute: bool,
}

/// One entry as a server knows it. Symbolic links are followed; `link_target` tells of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Last component, or the path as asked (MLST).
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Timestamp,
    /// Permission bits, 0..=0o7777.
    pub mode: u32,
    /// Number of links.
    pub links: u64,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
    /// Owner's name, or the number as text.
    pub owner: String,
    /// Group's name, or the number as text.
    pub group: String,
    /// Device and inode, for the `Unique` fact.
    pub unique: (u64, u64),
    /// Target of a symbolic link.
    pub link_target: Option<Vec<u8>>,
    /// Effective rights.
    pub access: Access,
}

/// Which facts a session wants, as a set; default as in the FEAT line's starred ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactSet(u16);

/// A fact that MLST knows, in output order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// `Type`
    Type,
    /// `Modify`
    Modify,
    /// `Charset`
    Charset,
    /// `Size`
    Size,
    /// `Perm`
    Perm,
    /// `UNIX.mode`
    UnixMode,
    /// `UNIX.owner`
    UnixOwner,
    /// `UNIX.group`
    UnixGroup,
    /// `UNIX.slink`
    UnixSlink,
    /// `Unique`
    Unique,
    /// `UNIX.uid`
    UnixUid,
    /// `UNIX.gid`
    UnixGid,
    /// `X.count`
    XCount,
}

impl Default for FactSet {
    fn default() -> Self {
        todo!()
    }
}

impl FactSet {
    /// Reads the argument of `OPTS MLST a;b;c;`; unknown names are ignored.
    pub fn parse(text: &str) -> Self {
        let _ = text;
        todo!()
    }

    /// Whether the fact is wanted.
    pub fn has(self, fact: Fact) -> bool {
        let _ = (self.0, fact);
        todo!()
    }

    /// The FEAT line: every fact, the default ones with `*`.
    pub fn feature_line(self) -> String {
        todo!()
    }

    /// The selected facts as `Type;Size;` for the reply to OPTS MLST.
    pub fn selected(self) -> String {
        todo!()
    }
}

/// `Facts NAME` without line ending. Newline, CR and NUL bytes in the name are percent-free
/// dropped to `?`: such a name cannot travel on a line.
pub fn format_mlsx(entry: &Entry, facts: FactSet, entries_in_dir: Option<u64>) -> Vec<u8> {
    let _ = (entry, facts, entries_in_dir);
    todo!()
}

/// `-rw-r--r--   1 owner group 3000000 Nov 20 08:21 name` without line ending.
pub fn format_ls(entry: &Entry, now: Timestamp) -> Vec<u8> {
    let _ = (entry, now);
    todo!()
}

/// An entry as a client learns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEntry {
    /// Name as listed (for MLSR a relative path).
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
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
}

/// Reads one MLSx line (trailing CRs and one leading space tolerated; fact names in any case).
pub fn parse_mlsx(line: &[u8]) -> Option<RemoteEntry> {
    let _ = line;
    todo!()
}

/// Reads one `ls -l` line of a Unix-like server; `total 12` and the like give `None`.
pub fn parse_ls(line: &[u8]) -> Option<RemoteEntry> {
    let _ = line;
    todo!()
}
