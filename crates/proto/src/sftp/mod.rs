//! SFTP, version 3 (draft-ietf-secsh-filexfer-02), with extensions of OpenSSH (its PROTOCOL, section 4) and `check-file`
//! (draft-ietf-secsh-filexfer-extensions-00, section 3).
//!
//! Names are any bytes, which the libraries for SFTP hold as UTF-8.

mod reply;
mod request;

pub use reply::{
    FileChecksum, FileSystemSpace, SftpAttributes, SftpError, SftpExtensions, SftpLimits, SftpName,
    SftpReply, SftpStatus, SftpStatusCode, SftpVersion, packet_len,
};
pub use request::{OpenFlags, SftpRequest, put_init, put_write};

/// Longest packet, after its length: that of OpenSSH. A server may send no longer one.
pub const MAX_PACKET: usize = 256 << 10;
/// Bytes of one READ or WRITE that every server takes (section 3).
pub const PLAIN_BLOCK: u32 = 32 << 10;
/// Open files that every server is taken to allow.
pub const PLAIN_HANDLES: u32 = 64;
/// Bytes of a packet with data beside the data and the handle.
pub const DATA_HEADER: u32 = 1024;

const VERSION: u32 = 3;

/// Types of packets (section 3).
mod kind {
    pub(super) const INIT: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const WRITE: u8 = 6;
    pub(super) const LSTAT: u8 = 7;
    pub(super) const FSTAT: u8 = 8;
    pub(super) const SETSTAT: u8 = 9;
    pub(super) const FSETSTAT: u8 = 10;
    pub(super) const OPENDIR: u8 = 11;
    pub(super) const READDIR: u8 = 12;
    pub(super) const REMOVE: u8 = 13;
    pub(super) const MKDIR: u8 = 14;
    pub(super) const RMDIR: u8 = 15;
    pub(super) const REALPATH: u8 = 16;
    pub(super) const STAT: u8 = 17;
    pub(super) const RENAME: u8 = 18;
    pub(super) const READLINK: u8 = 19;
    pub(super) const SYMLINK: u8 = 20;
    pub(super) const STATUS: u8 = 101;
    pub(super) const HANDLE: u8 = 102;
    pub(super) const DATA: u8 = 103;
    pub(super) const NAME: u8 = 104;
    pub(super) const ATTRS: u8 = 105;
    pub(super) const EXTENDED: u8 = 200;
    pub(super) const EXTENDED_REPLY: u8 = 201;
}

/// Flags of attributes (section 5).
mod attribute {
    pub(super) const SIZE: u32 = 1;
    pub(super) const OWNER: u32 = 2;
    pub(super) const PERMISSIONS: u32 = 4;
    pub(super) const TIMES: u32 = 8;
    pub(super) const EXTENDED: u32 = 0x8000_0000;
}

#[cfg(test)]
mod tests;
