//! Replies of a server, which may be anything.

use super::{DATA_HEADER, MAX_PACKET, PLAIN_BLOCK, PLAIN_HANDLES, VERSION, attribute, kind};
use crate::checksum::ChecksumAlgorithm;
use crate::timestamp::Timestamp;

/// Longest handle (section 6.3).
const MAX_HANDLE: usize = 256;
/// Bytes of a status' text that are kept.
const MAX_TEXT: usize = 256;
/// Type bits of permissions, and the types (stat(2)).
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// A packet that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SftpError {
    /// Its length is none, or more than [`MAX_PACKET`].
    #[error("a packet has {0} bytes")]
    Length(u32),
    /// It ends before its content.
    #[error("a packet is cut off")]
    Cut,
    /// A server does not send this type.
    #[error("a packet has the type {0}")]
    Kind(u8),
    /// The server speaks this version.
    #[error("the server speaks version {0}")]
    Version(u32),
}

/// Codes of a status (section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SftpStatusCode {
    /// Done.
    Ok,
    /// The end of a file or directory.
    Eof,
    /// No such file.
    NoSuchFile,
    /// Permission denied.
    PermissionDenied,
    /// Any other failure.
    Failure,
    /// The server has lost its own connection.
    Lost,
    /// The server does not know the request.
    Unsupported,
    /// Another code: those of later versions are not sent by a server of this one.
    Other(u32),
}

/// A status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpStatus {
    /// By which decisions are made.
    pub code: SftpStatusCode,
    /// For people.
    pub text: Vec<u8>,
}

/// Attributes, those that the server tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SftpAttributes {
    /// Bytes.
    pub size: Option<u64>,
    /// Type and permission bits (stat(2)).
    pub mode: Option<u32>,
    /// Time of access, seconds since 1970.
    pub accessed: Option<u32>,
    /// Modification time.
    pub modified: Option<Timestamp>,
}

impl SftpAttributes {
    fn has_type(&self, wanted: u32) -> bool {
        self.mode.is_some_and(|mode| mode & TYPE == wanted)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.has_type(DIRECTORY)
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.has_type(LINK)
    }

    /// Whether it is a file, or may be one: a server may tell no types.
    pub fn is_file(&self) -> bool {
        self.mode
            .is_none_or(|mode| matches!(mode & TYPE, REGULAR | 0))
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpName {
    /// Name, or a path.
    pub name: Vec<u8>,
    /// Of the name itself: links are not followed (OpenSSH).
    pub attributes: SftpAttributes,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SftpReply {
    /// A result, or a refusal.
    Status(SftpStatus),
    /// An open file or directory.
    Handle(Vec<u8>),
    /// Bytes of a file.
    Data(Vec<u8>),
    /// Entries of a directory, or one path.
    Names(Vec<SftpName>),
    /// Attributes.
    Attributes(SftpAttributes),
    /// Answer to a request of an extension.
    Extended(Vec<u8>),
}

/// Extensions that the server announces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SftpExtensions {
    /// `posix-rename@openssh.com`
    pub posix_rename: bool,
    /// `fsync@openssh.com`
    pub fsync: bool,
    /// `limits@openssh.com`
    pub limits: bool,
    /// `statvfs@openssh.com`
    pub statvfs: bool,
    /// `check-file`
    pub check_file: bool,
}

/// The first packet of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SftpVersion {
    /// Extensions.
    pub extensions: SftpExtensions,
}

/// Most bytes of a READ and of a WRITE, and most open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SftpLimits {
    /// Of a READ.
    pub read: u32,
    /// Of a WRITE.
    pub write: u32,
    /// Open files and directories.
    pub handles: u32,
}

/// Answer to [`super::SftpRequest::FileSystem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Bytes that are free for this login.
    pub free: u64,
    /// Files that can still be made.
    pub free_files: u64,
    /// Files that there can be. Some file systems count none.
    pub files: u64,
}

impl Default for SftpLimits {
    fn default() -> Self {
        Self {
            read: PLAIN_BLOCK,
            write: PLAIN_BLOCK,
            handles: PLAIN_HANDLES,
        }
    }
}

/// Answer to `check-file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChecksum {
    /// The algorithm that the server has used.
    pub algorithm: Option<ChecksumAlgorithm>,
    /// In lower-case hex.
    pub checksum: String,
}

/// Length of the first packet in `bytes`, with its length field; `None`: the field is not complete.
///
/// # Errors
/// [`SftpError::Length`]
pub fn packet_len(bytes: &[u8]) -> Result<Option<usize>, SftpError> {
    let Some(field) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*field);
    match usize::try_from(length) {
        Ok(found @ 1..=MAX_PACKET) => Ok(Some(found + 4)),
        _ => Err(SftpError::Length(length)),
    }
}

impl SftpVersion {
    /// Parses the first packet, without its length field.
    ///
    /// # Errors
    /// It is no such packet, or of another version.
    pub fn parse(packet: &[u8]) -> Result<Self, SftpError> {
        let mut rest = Fields(packet);
        match rest.u8()? {
            kind::VERSION => {}
            other => return Err(SftpError::Kind(other)),
        }
        match rest.u32()? {
            VERSION => {}
            other => return Err(SftpError::Version(other)),
        }
        let mut extensions = SftpExtensions::default();
        while !rest.0.is_empty() {
            let (name, _data) = (rest.string()?, rest.string()?);
            let known = match name {
                b"posix-rename@openssh.com" => &mut extensions.posix_rename,
                b"fsync@openssh.com" => &mut extensions.fsync,
                b"limits@openssh.com" => &mut extensions.limits,
                b"statvfs@openssh.com" => &mut extensions.statvfs,
                b"check-file" | b"check-file-name" => &mut extensions.check_file,
                _ => continue,
            };
            *known = true;
        }
        Ok(Self { extensions })
    }
}

impl SftpReply {
    /// Parses a packet, without its length field, and the number of its request.
    ///
    /// # Errors
    /// It is no such packet.
    pub fn parse(packet: &[u8]) -> Result<(u32, Self), SftpError> {
        let mut rest = Fields(packet);
        let (kind, id) = (rest.u8()?, rest.u32()?);
        let reply = match kind {
            kind::STATUS => Self::Status(rest.status()?),
            kind::HANDLE => match rest.string()? {
                handle if handle.len() <= MAX_HANDLE => Self::Handle(handle.to_vec()),
                _ => return Err(SftpError::Cut),
            },
            kind::DATA => Self::Data(rest.string()?.to_vec()),
            kind::NAME => {
                let count = rest.u32()?;
                let mut names = Vec::new();
                for _ in 0..count {
                    let (name, _long_form) = (rest.string()?.to_vec(), rest.string()?);
                    let attributes = rest.attributes()?;
                    names.push(SftpName { name, attributes });
                }
                Self::Names(names)
            }
            kind::ATTRS => Self::Attributes(rest.attributes()?),
            kind::EXTENDED_REPLY => Self::Extended(rest.0.to_vec()),
            other => return Err(SftpError::Kind(other)),
        };
        Ok((id, reply))
    }
}

impl SftpLimits {
    /// Parses the answer to [`super::SftpRequest::Limits`]. A limit of none is no limit of the server.
    ///
    /// # Errors
    /// It is no such answer.
    pub fn parse(answer: &[u8]) -> Result<Self, SftpError> {
        let mut rest = Fields(answer);
        let most_of_all = MAX_PACKET as u64 - u64::from(DATA_HEADER);
        let packet = match rest.u64()? {
            0 => most_of_all,
            packet => packet.saturating_sub(u64::from(DATA_HEADER)),
        };
        let block = |told: u64| {
            let told = match told {
                0 => most_of_all,
                told => told,
            };
            let limit = told.min(packet).min(most_of_all);
            u32::try_from(limit).unwrap_or(PLAIN_BLOCK).max(1024)
        };
        Ok(Self {
            read: block(rest.u64()?),
            write: block(rest.u64()?),
            handles: match rest.u64()? {
                0 => u32::MAX,
                told => u32::try_from(told).unwrap_or(u32::MAX),
            },
        })
    }
}

impl FileSystemSpace {
    /// Parses the answer to [`super::SftpRequest::FileSystem`].
    ///
    /// # Errors
    /// It is no such answer.
    pub fn parse(answer: &[u8]) -> Result<Self, SftpError> {
        let mut rest = Fields(answer);
        let (_size, fragment) = (rest.u64()?, rest.u64()?);
        let (_fragments, _free) = (rest.u64()?, rest.u64()?);
        let free = rest.u64()?.saturating_mul(fragment);
        let (files, _free) = (rest.u64()?, rest.u64()?);
        Ok(Self {
            free,
            files,
            free_files: rest.u64()?,
        })
    }

    /// Whether a file of so many bytes can be stored there.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.free >= bytes && (self.files == 0 || self.free_files > 0)
    }
}

impl FileChecksum {
    /// Parses the answer to [`super::SftpRequest::CheckFile`]. The draft of 2006 begins it with a name, later ones do not.
    ///
    /// # Errors
    /// It is no such answer.
    pub fn parse(answer: &[u8]) -> Result<Self, SftpError> {
        let mut rest = Fields(answer);
        let mut algorithm = rest.string()?;
        if algorithm == b"check-file" {
            algorithm = rest.string()?;
        }
        let algorithm = std::str::from_utf8(algorithm).ok();
        Ok(Self {
            algorithm: algorithm.and_then(ChecksumAlgorithm::parse),
            checksum: rest.0.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// Bytes that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], SftpError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(SftpError::Cut)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, SftpError> {
        self.chunk().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, SftpError> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, SftpError> {
        self.chunk().map(u64::from_be_bytes)
    }

    fn string(&mut self) -> Result<&'a [u8], SftpError> {
        let length = usize::try_from(self.u32()?).map_err(|_| SftpError::Cut)?;
        let (first, rest) = self.0.split_at_checked(length).ok_or(SftpError::Cut)?;
        self.0 = rest;
        Ok(first)
    }

    fn status(&mut self) -> Result<SftpStatus, SftpError> {
        let code = match self.u32()? {
            0 => SftpStatusCode::Ok,
            1 => SftpStatusCode::Eof,
            2 => SftpStatusCode::NoSuchFile,
            3 => SftpStatusCode::PermissionDenied,
            4 => SftpStatusCode::Failure,
            6 | 7 => SftpStatusCode::Lost,
            8 => SftpStatusCode::Unsupported,
            other => SftpStatusCode::Other(other),
        };
        // Old servers send no text (section 7).
        let text = self.string().unwrap_or_default();
        let text = text[..text.len().min(MAX_TEXT)].to_vec();
        Ok(SftpStatus { code, text })
    }

    fn attributes(&mut self) -> Result<SftpAttributes, SftpError> {
        let flags = self.u32()?;
        let has = |flag| flags & flag != 0;
        let mut found = SftpAttributes::default();
        if has(attribute::SIZE) {
            found.size = Some(self.u64()?);
        }
        if has(attribute::OWNER) {
            self.u64()?;
        }
        if has(attribute::PERMISSIONS) {
            found.mode = Some(self.u32()?);
        }
        if has(attribute::TIMES) {
            let (accessed, modified) = (self.u32()?, self.u32()?);
            found.accessed = Some(accessed);
            found.modified = Some(Timestamp(modified.into()));
        }
        if has(attribute::EXTENDED) {
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(found)
    }
}
