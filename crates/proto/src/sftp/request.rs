//! Requests of a client.

use super::{VERSION, attribute, kind};

/// How a file is opened (section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFlags {
    /// To read.
    Read,
    /// To write; what is there stays, and a file that is missing is made.
    Write,
    /// To write into a file that is there.
    WriteExisting,
    /// To write from nothing, into the file of the name.
    Replace,
    /// To write from nothing; nothing has the name.
    New,
}

impl OpenFlags {
    const fn bits(self) -> u32 {
        const READ: u32 = 1;
        const WRITE: u32 = 2;
        const CREATE: u32 = 8;
        const TRUNCATE: u32 = 16;
        const EXCLUSIVE: u32 = 32;
        match self {
            Self::Read => READ,
            Self::Write => WRITE | CREATE,
            Self::WriteExisting => WRITE,
            Self::Replace => WRITE | CREATE | TRUNCATE,
            Self::New => WRITE | CREATE | EXCLUSIVE,
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SftpRequest<'a> {
    /// Opens a file: a handle.
    Open(&'a [u8], OpenFlags),
    /// Closes a handle.
    Close(&'a [u8]),
    /// Reads at an offset: data, or the status of the end.
    Read {
        /// Of the file.
        handle: &'a [u8],
        /// Of the first byte.
        offset: u64,
        /// Most bytes.
        length: u32,
    },
    /// Attributes, with links followed.
    Stat(&'a [u8]),
    /// Attributes of an open file.
    HandleStat(&'a [u8]),
    /// Attributes of the name itself.
    LinkStat(&'a [u8]),
    /// Sets the times of access and modification, both to this one.
    SetTime(&'a [u8], u32),
    /// Sets the times of an open file.
    HandleSetTimes {
        /// Of the file.
        handle: &'a [u8],
        /// Of access.
        accessed: u32,
        /// Of modification.
        modified: u32,
    },
    /// Sets permissions.
    SetMode(&'a [u8], u32),
    /// Opens a directory: a handle.
    OpenDir(&'a [u8]),
    /// Some entries of a directory, or the status of the end.
    ReadDir(&'a [u8]),
    /// Removes a file or a link.
    Remove(&'a [u8]),
    /// Makes a directory.
    MakeDir(&'a [u8]),
    /// Removes an empty directory.
    RemoveDir(&'a [u8]),
    /// The absolute form of a path: one name.
    RealPath(&'a [u8]),
    /// Renames. What has the new name stays, with a refusal.
    Rename(&'a [u8], &'a [u8]),
    /// Content of a link: one name.
    ReadLink(&'a [u8]),
    /// Makes a link.
    SymLink {
        /// Content.
        target: &'a [u8],
        /// Name.
        link: &'a [u8],
    },
    /// Renames, and replaces a file that has the new name (OpenSSH).
    PosixRename(&'a [u8], &'a [u8]),
    /// Forces an open file to disk (OpenSSH).
    Fsync(&'a [u8]),
    /// Asks for limits of requests (OpenSSH).
    Limits,
    /// Space of the file system of a path (OpenSSH).
    FileSystem(&'a [u8]),
    /// Checksum of a part of a file.
    CheckFile {
        /// Of the file.
        path: &'a [u8],
        /// Name of the algorithm, in lower case.
        algorithm: &'a str,
        /// Of the first byte.
        offset: u64,
        /// Bytes; 0: to the end.
        length: u64,
    },
}

impl SftpRequest<'_> {
    /// Appends the packet.
    pub fn put(&self, id: u32, out: &mut Vec<u8>) {
        put_packet(out, |out| match *self {
            Self::Open(path, flags) => {
                put_head(out, kind::OPEN, id, path);
                put_u32(out, flags.bits());
                // No attributes: the server's defaults.
                put_u32(out, 0);
            }
            Self::Close(handle) => put_head(out, kind::CLOSE, id, handle),
            Self::Read {
                handle,
                offset,
                length,
            } => {
                put_head(out, kind::READ, id, handle);
                put_u64(out, offset);
                put_u32(out, length);
            }
            Self::Stat(path) => put_head(out, kind::STAT, id, path),
            Self::HandleStat(handle) => put_head(out, kind::FSTAT, id, handle),
            Self::LinkStat(path) => put_head(out, kind::LSTAT, id, path),
            Self::SetTime(path, time) => {
                put_head(out, kind::SETSTAT, id, path);
                put_u32(out, attribute::TIMES);
                put_u32(out, time);
                put_u32(out, time);
            }
            Self::HandleSetTimes {
                handle,
                accessed,
                modified,
            } => {
                put_head(out, kind::FSETSTAT, id, handle);
                put_u32(out, attribute::TIMES);
                put_u32(out, accessed);
                put_u32(out, modified);
            }
            Self::SetMode(path, mode) => {
                put_head(out, kind::SETSTAT, id, path);
                put_u32(out, attribute::PERMISSIONS);
                put_u32(out, mode);
            }
            Self::OpenDir(path) => put_head(out, kind::OPENDIR, id, path),
            Self::ReadDir(handle) => put_head(out, kind::READDIR, id, handle),
            Self::Remove(path) => put_head(out, kind::REMOVE, id, path),
            Self::MakeDir(path) => {
                put_head(out, kind::MKDIR, id, path);
                put_u32(out, 0);
            }
            Self::RemoveDir(path) => put_head(out, kind::RMDIR, id, path),
            Self::RealPath(path) => put_head(out, kind::REALPATH, id, path),
            Self::Rename(from, to) => {
                put_head(out, kind::RENAME, id, from);
                put_string(out, to);
            }
            Self::ReadLink(path) => put_head(out, kind::READLINK, id, path),
            // The draft has the link first. OpenSSH has it last, and others follow OpenSSH (PROTOCOL, section 4.1).
            Self::SymLink { target, link } => {
                put_head(out, kind::SYMLINK, id, target);
                put_string(out, link);
            }
            Self::PosixRename(from, to) => {
                put_head(out, kind::EXTENDED, id, b"posix-rename@openssh.com");
                put_string(out, from);
                put_string(out, to);
            }
            Self::Fsync(handle) => {
                put_head(out, kind::EXTENDED, id, b"fsync@openssh.com");
                put_string(out, handle);
            }
            Self::Limits => put_head(out, kind::EXTENDED, id, b"limits@openssh.com"),
            Self::FileSystem(path) => {
                put_head(out, kind::EXTENDED, id, b"statvfs@openssh.com");
                put_string(out, path);
            }
            Self::CheckFile {
                path,
                algorithm,
                offset,
                length,
            } => {
                put_head(out, kind::EXTENDED, id, b"check-file-name");
                put_string(out, path);
                put_string(out, algorithm.as_bytes());
                put_u64(out, offset);
                put_u64(out, length);
                // One checksum, not one for each block.
                put_u32(out, 0);
            }
        });
    }
}

/// Appends the first packet of a client.
pub fn put_init(out: &mut Vec<u8>) {
    put_packet(out, |out| {
        out.push(kind::INIT);
        put_u32(out, VERSION);
    });
}

/// Appends a WRITE of bytes at an offset, which `fill` appends. Returns their number: without any there is no
/// packet.
///
/// # Errors
/// Those of `fill`: there is no packet.
pub fn put_write<E>(
    out: &mut Vec<u8>,
    id: u32,
    handle: &[u8],
    offset: u64,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<u32, E> {
    let before = out.len();
    let mut filled = Ok(());
    let mut length = 0;
    put_packet(out, |out| {
        put_head(out, kind::WRITE, id, handle);
        put_u64(out, offset);
        let at = out.len();
        put_u32(out, 0);
        filled = fill(out);
        length = length_from(out, at + 4);
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    });
    if filled.is_err() || length == 0 {
        out.truncate(before);
    }
    filled.map(|()| length)
}

/// Appends a packet: its length, and what `body` appends.
fn put_packet(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put_u32(out, 0);
    body(out);
    let length = length_from(out, at + 4);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Bytes after an offset. Packets are far below 4 GiB.
fn length_from(out: &[u8], at: usize) -> u32 {
    u32::try_from(out.len() - at).unwrap_or(u32::MAX)
}

fn put_head(out: &mut Vec<u8>, kind: u8, id: u32, first: &[u8]) {
    out.push(kind);
    put_u32(out, id);
    put_string(out, first);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    put_u32(out, length);
    out.extend_from_slice(bytes);
}
