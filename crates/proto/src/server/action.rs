//! Requests of a session to its driver, and the driver's answers.

use std::net::IpAddr;

use crate::address::AddressFamily;
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DataType, Secret, TransferMode};
use crate::drs::DrsAddress;
use crate::listing::{DirectoryEntry, FactSet};
use crate::path::VPath;
use crate::ranges::RangeSet;
use crate::remark::CompletionRemarks;
use crate::reply::Reply;
use crate::security::{CommandProtection, SecurityMechanism, SecurityToken};
use crate::sizing::SocketBuffers;
use crate::streams::ParallelismRange;
use crate::stripes::StripeAddresses;
use crate::timestamp::Timestamp;

/// One thing for the driver to do.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionAction {
    /// Send this on the control channel.
    Reply(Reply),
    /// Carry the security of the control connection on; outcome [`DriverEvent::Security`]. Asked only for
    /// mechanisms that [`SessionConfig::mechanisms`](super::SessionConfig) offers.
    Secure(SecurityRequest),
    /// Check a login; outcome [`DriverEvent::Login`].
    Authenticate {
        /// As given by USER.
        user: String,
        /// As given by PASS.
        password: Secret,
    },
    /// Work on files; outcome [`DriverEvent::File`].
    File(FileRequest),
    /// Open a listener for data connections (closing what was there); outcome
    /// [`DriverEvent::Listening`].
    Listen(ListenRequest),
    /// From now on data connections are made to these addresses; closes what was there. No outcome:
    /// connections are made when a transfer starts.
    ConnectTo(StripeAddresses),
    /// Close listener and all data connections.
    DropChannel,
    /// Open a listener for the DRS channel (DPSV), closing the one before; outcome
    /// [`DriverEvent::DrsListening`].
    ListenDrs(AddressFamily),
    /// From now on the DRS channel is made to this address (DPRT); closes the listener. No outcome.
    ConnectDrs(DrsAddress),
    /// Forget the DRS channel.
    DropDrs,
    /// The receiver of the running transfer has buffers of this size now, bytes (SBUF in a
    /// transfer, 2003 paper §4.2).
    SetSendBuffer(u64),
    /// Run a transfer; outcomes [`DriverEvent::Opened`] (once, unless it fails before), then
    /// [`DriverEvent::Transferred`]. The session sends [`SessionAction::DropChannel`] when the data channel
    /// is not to be used again (MODE S; failures after `Opened`); otherwise the driver keeps
    /// listener and MODE E connections for the next transfer.
    Transfer(Box<TransferRequest>),
    /// Stop what runs: a transfer ([`DriverEvent::Transferred`] with [`TransferError::Aborted`]
    /// follows) or a checksum ([`DriverEvent::File`] with [`FileErrorKind::Aborted`] follows).
    Abort,
    /// Tell the administrator: data connections with this host were refused, which the setting
    /// `foreign-data-addresses` would allow.
    ReportForeignHost(IpAddr),
    /// Remember for logs: key and value (`client`, `task`).
    LogField(&'static str, String),
    /// Set the session's idle time-out, seconds (SITE IDLE, bounded by `SessionConfig::max_idle_seconds`).
    IdleTimeout(u32),
    /// Close the control connection after what was sent.
    Close,
}

/// Task of the driver's security mechanism (RFC 2228).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityRequest {
    /// Begin an exchange, unless more than AUTH was read from the client, a part of a line included
    /// ([`SecurityFailure::ReadAhead`]). From here until the answer to [`SecurityRequest::Handshake`],
    /// if that follows, nothing may be read from the connection as commands. Answer
    /// [`SecurityResponse::Ready`].
    Begin(SecurityMechanism),
    /// Send what was replied so far, in the clear, then shake hands on the connection. Answer
    /// [`SecurityResponse::Secured`]. After a failure the connection is closed.
    Handshake,
    /// Give the mechanism the client's token. Answer [`SecurityResponse::Continue`] or
    /// [`SecurityResponse::Secured`].
    ProcessToken(SecurityToken),
    /// Check and take off the protection of a command. Answer [`SecurityResponse::Command`]. Its replies
    /// are for the driver to protect in the same way (RFC 2228 §3, 63x).
    Unprotect(CommandProtection, SecurityToken),
}

/// Answer of the driver's security mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityResponse {
    /// The exchange can begin, and nothing was read behind AUTH.
    Ready,
    /// The exchange goes on when the client has answered this.
    Continue(SecurityToken),
    /// The exchange is over; with the last token for the client, if there is one.
    Secured(Option<SecurityToken>),
    /// A command line, without its ending. It may hold a password.
    Command(Secret),
}

/// Why the driver's security mechanism does not go on; the text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecurityFailure {
    /// The client, or somebody on the way, had sent more behind AUTH before it was answered.
    #[error("more was sent behind AUTH")]
    ReadAhead,
    /// The mechanism is offered, but cannot be had now.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The other end's part of the exchange is not right.
    #[error("failed: {0}")]
    Failed(String),
}

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenRequest {
    /// Family wanted.
    pub family: AddressFamily,
    /// Data connections may come from any host (third-party transfers), not only from the control
    /// peer.
    pub any_host: bool,
    /// A host that they may come from besides the control peer.
    pub other_host: Option<IpAddr>,
    /// The connections' socket buffers, asked for before listening where they are pinned.
    pub buffers: SocketBuffers,
}

/// Work on files that has no data channel. Paths are inside the session's root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named for the command's arguments")]
pub enum FileRequest {
    /// Answer [`FileResponse::DirectoryEntry`]; `name` of the entry is the last component.
    Stat(VPath),
    /// Does the directory exist and may it be entered? Answer [`FileResponse::Done`].
    ChangeDir(VPath),
    MakeDir(VPath),
    RemoveDir(VPath),
    Delete(VPath),
    /// Recursive delete.
    RemoveTree(VPath),
    Rename {
        from: VPath,
        to: VPath,
    },
    SetModified(VPath, Timestamp),
    Chmod(VPath, u32),
    Chgrp(VPath, String),
    /// `target` is kept as given.
    Symlink {
        target: Vec<u8>,
        link: VPath,
    },
    Truncate(VPath, u64),
    /// MLSC and `STAT path`: answer [`FileResponse::DrsLineBuffer`].
    List(ListRequest),
    /// CKSM: answer [`FileResponse::Checksum`]; the driver reports [`DriverEvent::ChecksumProgress`] every
    /// `marker_seconds` meanwhile when that is not 0.
    Checksum {
        algorithm: ChecksumAlgorithm,
        path: VPath,
        offset: u64,
        /// `None`: to the end.
        length: Option<u64>,
        marker_seconds: u32,
    },
}

/// Which entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Directory or file.
    pub path: VPath,
    /// [`GlobPattern`](crate::pattern::Pattern) of the last component (LIST only): `path` is then the directory.
    pub pattern: Option<Vec<u8>>,
    /// How to write each entry.
    pub format: ListFormat,
    /// With everything below (MLSR).
    pub recursive: bool,
}

/// How entries are written, one a line, CR LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// MLSD, MLSC, MLSR.
    Facts(FactSet),
    /// LIST, STAT.
    LsLong,
    /// NLST.
    Names,
}

/// A transfer, fully decided.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferRequest {
    /// The transfer's content.
    pub kind: TransferKind,
    /// MODE.
    pub mode: TransferMode,
    /// TYPE.
    pub type_: DataType,
    /// Data connections to open when the server sends in MODE E, >= 1.
    pub streams: ParallelismRange,
    /// Congestion control that the client asked for; empty: none.
    pub congestion_control: String,
    /// Listen first and tell the address in a preliminary reply (delayed passive): the driver
    /// listens and reports [`DriverEvent::Listening`] before [`DriverEvent::Opened`].
    pub delayed_passive: Option<ListenRequest>,
    /// Socket buffers of the data connections.
    pub buffers: SocketBuffers,
    /// Seconds between 112 markers, 0 none.
    pub perf_marker_seconds: u32,
    /// Seconds between 111 markers, 0 none (stores in MODE E only).
    pub range_marker_seconds: u32,
}

/// Content of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub enum TransferKind {
    /// RETR, ERET.
    Retrieve {
        /// The file.
        path: VPath,
        /// Part to send (ERET P); wire offsets in MODE E count from its start.
        partial: Option<(u64, u64)>,
        /// Ranges that the receiver has already, in wire offsets; `Offset` skips a prefix.
        already_received: RangeSet,
    },
    /// STOR, APPE, STOU, ESTO.
    Store {
        /// The file. For STOU the driver makes the name unique and reports it in
        /// [`DriverEvent::Opened`].
        path: VPath,
        /// How the file is opened.
        disposition: StoreDisposition,
        /// Expected size from ALLO; advisory.
        announced_size: Option<u64>,
        /// Sum while storing, so that a later CKSM of the whole file is answered at once.
        checksum_algorithm: Option<ChecksumAlgorithm>,
        /// The file must have this checksum (SCKS, STORATTR), else
        /// [`TransferError::Checksum`].
        expected_checksum: Option<(ChecksumAlgorithm, String)>,
        /// Set the modification time afterwards.
        modified: Option<Timestamp>,
    },
    /// LIST, NLST, MLSD, MLSR over the data channel.
    List(ListRequest),
}

/// How a store opens its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreDisposition {
    /// STOR without REST: truncate or create.
    Truncate,
    /// REST n: write from `n`, keep what is before, cut nothing before; in MODE S the file is cut
    /// to the end of what was written. MODE E ranges: keep everything.
    Resume {
        /// Ranges that are there already, in file offsets (`0..n` for REST n).
        already_stored: RangeSet,
    },
    /// ESTO A: offsets on the wire count from here; keep the rest of the file.
    AtOffset(u64),
    /// APPE: at the end.
    Append,
    /// STOU: create, never overwrite.
    Unique,
}

/// Reports of the driver.
#[derive(Debug, Clone, PartialEq)]
pub enum DriverEvent {
    /// Of [`SessionAction::Secure`].
    Security(Result<SecurityResponse, SecurityFailure>),
    /// Of [`SessionAction::Authenticate`]; the text of a refusal is for the user.
    Login(Result<LoginGrant, String>),
    /// Of [`SessionAction::File`].
    File(Result<FileResponse, FileError>),
    /// Progress of a running [`FileRequest::Checksum`]; time in seconds since 1970.
    ChecksumProgress {
        /// Clock, seconds since 1970.
        now: f64,
        /// Bytes summed.
        bytes: u64,
    },
    /// Of [`SessionAction::Listen`] or of a delayed-passive transfer: the address of each stripe. A failure ends such a transfer:
    /// no [`DriverEvent::Transferred`] follows.
    Listening(Result<StripeAddresses, FileError>),
    /// The file is open and the transfer begins (150, or 125 when connections are reused).
    Opened {
        /// Cached MODE E connections are used.
        reused: bool,
        /// The unique name (STOU).
        unique_name: Option<VPath>,
    },
    /// A tick during a transfer: what has moved so far. The session turns it into 112 and 111
    /// replies if they are due (it counts the periods itself from `now`). The driver reports one
    /// at once after [`DriverEvent::Opened`], and one before a failed [`DriverEvent::Transferred`] so that
    /// the last 111 tells everything that is safe.
    Progress(TransferProgress),
    /// Of [`SessionAction::ListenDrs`].
    DrsListening(Result<DrsAddress, FileError>),
    /// This server, receiving with [`crate::sizing::BufferSizing::Drs1`], has buffers of this size now, bytes (126).
    BufferResized(u64),
    /// The transfer ended.
    Transferred(Result<CompletedTransfer, TransferError>),
}

/// Progress of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferProgress {
    /// Clock, seconds since 1970.
    pub now: f64,
    /// Bytes moved by this transfer.
    pub bytes: u64,
    /// All ranges stored since the transfer began, in wire offsets (stores; empty otherwise).
    pub stored: RangeSet,
}

/// A finished transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletedTransfer {
    /// Last state.
    pub progress: TransferProgress,
    /// For clients that read it, at the end of the 226.
    pub remarks: CompletionRemarks,
}

/// A login that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginGrant {
    /// Name shown in 230 and WHOAMI.
    pub user: String,
    /// Current directory after login.
    pub home: VPath,
    /// Rights of the session.
    pub rights: AccountRights,
    /// Extra lines of the 230 reply.
    pub welcome_lines: Vec<String>,
}

/// Rights of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountRights {
    /// Create, change and delete.
    pub write: bool,
    /// Data connections with hosts other than the control peer: one that the session names (SITE
    /// DATAPEER), or any, where [`SessionConfig::foreign_data_addresses`](super::SessionConfig) says so.
    pub third_party: bool,
}

/// Answer to a [`FileRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileResponse {
    /// It is done.
    Done,
    /// Stat.
    Entry(Box<DirectoryEntry>),
    /// List, already written as lines without ending (one element a line).
    Lines(Vec<Vec<u8>>),
    /// Checksum, lower-case hex.
    Checksum(String),
}

/// Why work on a file failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileErrorKind {
    /// ENOENT
    NotFound,
    /// EACCES, EPERM, or the session lacks the right.
    Denied,
    /// EEXIST
    Exists,
    /// ENOTDIR
    NotADirectory,
    /// EISDIR
    IsADirectory,
    /// ENOTEMPTY
    NotEmpty,
    /// ENOSPC, EDQUOT
    NoSpace,
    /// ENAMETOOLONG
    NameTooLong,
    /// The path leads out of the session's root (EXDEV from openat2, link loops).
    OutsideRoot,
    /// The server's own limits (no free data port, too many streams).
    Busy,
    /// Another upload is writing the file.
    InUse,
    /// Stopped by [`SessionAction::Abort`], or because the server ends.
    Aborted,
    /// Anything else.
    Other,
}

/// A failed file operation: kind for the reply code, text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// For the reply code.
    pub kind: FileErrorKind,
    /// errno if there was one.
    pub errno: Option<i32>,
    /// The failure in plain words with the system's text ("No such file or directory").
    pub text: String,
}

/// Why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferError {
    /// The file could not be opened, read or written.
    File(FileError),
    /// No data connection could be made or was accepted in time: 425.
    NoConnection(String),
    /// A data connection broke, stalled or sent nonsense: 426.
    Broken(String),
    /// ABOR: 426, then 226 for ABOR itself.
    Aborted,
    /// A store was stopped for a later one of the same file, whose client seems to be this one,
    /// come back: 426.
    Superseded,
    /// Checksum mismatch after a store.
    Checksum {
        /// Sum of the bytes that came.
        computed: String,
        /// Sum that SCKS or STORATTR announced.
        expected: String,
    },
}
