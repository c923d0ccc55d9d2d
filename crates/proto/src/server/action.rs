//! Actions that a session asks of its driver, and the events that the driver reports back.

use std::net::IpAddr;

use super::{FileRequest, FileResponse, ListRequest};
use crate::address::AddressFamily;
use crate::bundle::BundleFile;
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DataType, TransferMode};
use crate::drs::DrsAddress;
use crate::path::VPath;
use crate::ranges::RangeSet;
use crate::remark::CompletionRemarks;
use crate::reply::Reply;
use crate::security::{
    DataChannelProtection, DataCredential, Secret, SecurityMechanism, SecurityToken,
};
use crate::sizing::SocketBuffers;
use crate::streams::ParallelismRange;
use crate::stripes::{StripeAddresses, StripeLayout};
use crate::timestamp::Timestamp;

/// One action for the driver to carry out.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionAction {
    /// Send this on the control channel.
    Reply(Reply),
    /// Perform a step of the security exchange; answered by [`DriverEvent::Security`]. Only for
    /// mechanisms listed in [`SessionConfig::mechanisms`](super::SessionConfig).
    Secure(SecurityRequest),
    /// Check a login; answered by [`DriverEvent::Login`].
    Authenticate {
        /// Argument of USER.
        user: String,
        /// Argument of PASS; `None` directly after USER, when the client's certificate may suffice
        /// (RFC 2228 §4: 232).
        password: Option<Secret>,
    },
    /// Use this credential for data connections (DCSC); answered by [`DriverEvent::DataCredential`]. It
    /// lasts until the next one or the end of the login.
    SetDataCredential(DataCredential),
    /// End TLS on the control connection, after all replies are sent (CCC). Lines are read in the clear
    /// from then on. No event follows.
    ClearCommands,
    /// Perform a file operation; answered by [`DriverEvent::File`].
    File(FileRequest),
    /// Close the present listener and data connections, and open a new listener; answered by
    /// [`DriverEvent::Listening`].
    Listen(ListenRequest),
    /// Close the present listener and data connections, and use these addresses for the next ones. No
    /// event follows: the driver connects when a transfer starts.
    ConnectTo {
        /// One address for each stripe.
        to: StripeAddresses,
        /// SPOR: data nodes may connect, if there are any.
        striped: bool,
    },
    /// Close the listener and all data connections.
    DropChannel,
    /// Open a listener for the DRS channel (DPSV), and close the previous one; answered by
    /// [`DriverEvent::DrsListening`].
    ListenDrs(AddressFamily),
    /// Connect the DRS channel to this address from now on (DPRT), and close its listener. No event
    /// follows.
    ConnectDrs(DrsAddress),
    /// Close the DRS listener and forget the DRS address.
    DropDrs,
    /// Set the send buffers of the running transfer to this size, bytes: the client has announced its
    /// receive buffers (SBUF during a transfer, 2003 paper §4.2).
    SetSendBuffer(u64),
    /// Run a transfer; answered by one [`DriverEvent::Opened`], unless the transfer fails before, and
    /// then by [`DriverEvent::Transferred`]. The session sends [`SessionAction::DropChannel`] when the
    /// data channel cannot be used again (MODE S; failures after `Opened`). Otherwise the driver keeps
    /// the listener and MODE E connections for the next transfer.
    Transfer(Box<TransferRequest>),
    /// Stop the running transfer ([`DriverEvent::Transferred`] with [`TransferError::Aborted`]
    /// follows) or checksum ([`DriverEvent::File`] with [`FileErrorKind::Aborted`] follows).
    Abort,
    /// Tell the administrator that data connections with this host were refused. The setting
    /// `foreign-data-addresses` would allow them.
    ReportForeignHost(IpAddr),
    /// Add a field to the session's log entries: key (`client`, `task`) and value.
    LogField(&'static str, String),
    /// Set the session's idle timeout, seconds (SITE IDLE, at most `SessionConfig::max_idle_seconds`).
    IdleTimeout(u32),
    /// Close the control connection after all replies are sent.
    Close,
}

/// Step that the driver's security mechanism performs (RFC 2228).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityRequest {
    /// Start an exchange. Fails with [`SecurityFailure::ReadAhead`] when the driver has read anything
    /// behind AUTH, even a part of a line. Until [`SecurityRequest::Handshake`] is answered, if it
    /// follows, the driver reads no commands. Answered by [`SecurityResponse::Ready`].
    Begin(SecurityMechanism),
    /// Send the pending replies in the clear, then perform the handshake on the connection. Answered by
    /// [`SecurityResponse::Secured`]. After a failure the connection is closed.
    Handshake,
    /// Pass the client's token to the mechanism. Answered by [`SecurityResponse::Continue`] or
    /// [`SecurityResponse::Secured`].
    ProcessToken(SecurityToken),
}

/// Result of a [`SecurityRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityResponse {
    /// The exchange can start; nothing was read behind AUTH.
    Ready,
    /// The exchange continues; send this token and wait for the client's next one.
    Continue(SecurityToken),
    /// The exchange is complete.
    Secured {
        /// The last token for the client, if any.
        token: Option<SecurityToken>,
        /// The client has proved an identity by a certificate.
        identified: bool,
    },
}

/// Reason why a security exchange fails. The text is sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecurityFailure {
    /// The client, or an attacker on the path, sent data behind AUTH before the reply.
    #[error("data was sent behind AUTH before its reply")]
    ReadAhead,
    /// The mechanism is offered but unavailable now.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The client's token or handshake is invalid.
    #[error("failed: {0}")]
    Failed(String),
}

/// Listener that the driver opens for data connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenRequest {
    /// Address family.
    pub family: AddressFamily,
    /// Accept data connections from any host (third-party transfers), not only from the control peer.
    pub any_host: bool,
    /// Hosts, besides the control peer, whose data connections are accepted.
    pub other_hosts: Vec<IpAddr>,
    /// SPAS: each data node that has this directory, the current one, may listen, if there are any.
    pub striped: Option<VPath>,
    /// Socket buffers of the connections. Pinned sizes are set before listen(2), since the kernel derives the
    /// window scale of accepted connections from them (tcp(7)).
    pub buffers: SocketBuffers,
}

/// All parameters of one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferRequest {
    /// Kind of the transfer, with its parameters.
    pub kind: TransferKind,
    /// MODE.
    pub mode: TransferMode,
    /// TYPE.
    pub type_: DataType,
    /// Number of data connections when the server sends in MODE E, at least 1.
    pub streams: ParallelismRange,
    /// Which stripe sends which bytes, where there are several.
    pub layout: StripeLayout,
    /// Congestion control that the client asked for; empty when it asked for none.
    pub congestion_control: String,
    /// Delayed passive mode: the driver opens this listener and reports [`DriverEvent::Listening`]
    /// before [`DriverEvent::Opened`]; the session sends the address in a preliminary reply.
    pub delayed_passive: Option<ListenRequest>,
    /// Socket buffers of the data connections.
    pub buffers: SocketBuffers,
    /// Seconds between performance markers (112); 0 for none.
    pub perf_marker_seconds: u32,
    /// Seconds between restart markers (111), stores in MODE E only; 0 for none.
    pub range_marker_seconds: u32,
    /// Protection of the data connections.
    pub protection: DataChannelProtection,
}

/// Kind of a transfer, with the parameters of that kind.
#[derive(Debug, Clone, PartialEq)]
pub enum TransferKind {
    /// RETR, ERET.
    Retrieve {
        /// The file.
        path: VPath,
        /// Offset and length of the part to send (ERET P). Block offsets in MODE E count from its start.
        partial: Option<(u64, u64)>,
        /// Ranges that the receiver has already (REST), in wire offsets.
        already_received: RangeSet,
        /// Compute this checksum while sending, so that a later CKSM of the whole file is answered at once.
        checksum_algorithm: Option<ChecksumAlgorithm>,
    },
    /// STOR, APPE, STOU, ESTO.
    Store {
        /// The file. For STOU the driver makes the name unique and reports it in
        /// [`DriverEvent::Opened`].
        path: VPath,
        /// Treatment of an existing file.
        disposition: StoreDisposition,
        /// Size announced with ALLO, bytes. Too large a size may be refused; fewer bytes in MODE S are a failure.
        announced_size: Option<u64>,
        /// Compute this checksum while storing, so that a later CKSM of the whole file is answered at once.
        checksum_algorithm: Option<ChecksumAlgorithm>,
        /// Checksum that the stored file must have (SCKS, STORATTR); otherwise the transfer fails with
        /// [`TransferError::Checksum`].
        expected_checksum: Option<(ChecksumAlgorithm, String)>,
        /// Modification time to set after the store.
        modified: Option<Timestamp>,
    },
    /// ERET BUNDLE: sends the content of these files, one after the other. A file that cannot be sent as announced is
    /// zeros, and is named in the outcome of [`FileRequest::EndBundle`].
    RetrieveBundle {
        /// Directory that the client names, for logs.
        directory: VPath,
        /// The files.
        files: Vec<BundleFile>,
    },
    /// ESTO BUNDLE: stores the bytes as these files, beside their names until [`FileRequest::EndBundle`].
    StoreBundle {
        /// Directory that the client names, for logs.
        directory: VPath,
        /// The files.
        files: Vec<BundleFile>,
    },
    /// LIST, NLST, MLSD, MLSR over the data channel.
    List(ListRequest),
}

impl TransferKind {
    /// Whether the server sends files.
    pub fn is_retrieve(&self) -> bool {
        matches!(self, Self::Retrieve { .. } | Self::RetrieveBundle { .. })
    }

    /// Whether the server receives files.
    pub fn is_store(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::StoreBundle { .. })
    }

    /// The file or directory.
    pub fn path(&self) -> &VPath {
        match self {
            Self::Retrieve { path, .. } | Self::Store { path, .. } => path,
            Self::RetrieveBundle { directory, .. } | Self::StoreBundle { directory, .. } => {
                directory
            }
            Self::List(list) => &list.path,
        }
    }
}

/// Treatment of an existing file by a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreDisposition {
    /// STOR without REST: create the file or replace its content.
    Truncate,
    /// STOR after REST. MODE S (`REST n`): write from offset `n`, keep the bytes before it, and truncate
    /// the file after the last byte received. MODE E ranges: keep all existing bytes.
    Resume {
        /// Ranges that are stored already, in file offsets (`0..n` for REST n).
        already_stored: RangeSet,
    },
    /// ESTO A: wire offset 0 is this file offset; the rest of the file is kept.
    AtOffset(u64),
    /// APPE: write at the end of the file.
    Append,
    /// STOU: create a new file, never overwrite one.
    Unique,
}

/// Event that the driver reports to the session.
#[derive(Debug, Clone, PartialEq)]
pub enum DriverEvent {
    /// Result of [`SessionAction::Secure`].
    Security(Result<SecurityResponse, SecurityFailure>),
    /// Result of [`SessionAction::Authenticate`].
    Login(Result<LoginGrant, LoginFailure>),
    /// Result of [`SessionAction::SetDataCredential`]. The text of a failure is sent to the client.
    DataCredential(Result<(), String>),
    /// Result of [`SessionAction::File`].
    File(Result<FileResponse, FileError>),
    /// Progress of a running [`FileRequest::Checksum`].
    ChecksumProgress {
        /// Time of the report, seconds since 1970.
        now: f64,
        /// Bytes processed so far.
        bytes: u64,
    },
    /// Result of [`SessionAction::Listen`], or the listener of a delayed-passive transfer: the address of
    /// each stripe. A failure ends such a transfer without [`DriverEvent::Transferred`].
    Listening(Result<StripeAddresses, FileError>),
    /// The file is open and data starts to move (reply 150, or 125 on reused connections).
    Opened {
        /// The transfer uses cached MODE E connections.
        reused: bool,
        /// The unique name (STOU).
        unique_name: Option<VPath>,
    },
    /// Progress of a running transfer. The session sends 112 and 111 markers when they are due by the
    /// clock in the event. The driver reports progress directly after [`DriverEvent::Opened`],
    /// periodically, and before a failed [`DriverEvent::Transferred`], so that the last 111 lists all
    /// ranges that are safe.
    Progress(TransferProgress),
    /// Result of [`SessionAction::ListenDrs`].
    DrsListening(Result<DrsAddress, FileError>),
    /// This server receives with [`crate::sizing::BufferSizing::Drs1`] and has resized its receive buffers
    /// to so many bytes (reply 126).
    BufferResized(u64),
    /// The transfer ended.
    Transferred(Result<CompletedTransfer, TransferError>),
}

/// Progress of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferProgress {
    /// Time of the report, seconds since 1970.
    pub now: f64,
    /// Bytes sent or received by this transfer.
    pub bytes: u64,
    /// Those of each stripe; empty: there is one.
    pub stripes: Vec<u64>,
    /// All ranges stored by this transfer, in wire offsets; empty unless it is a store.
    pub stored: RangeSet,
}

/// A transfer that has completed without error.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletedTransfer {
    /// Final progress.
    pub progress: TransferProgress,
    /// Remarks appended to the 226 for clients that read them.
    pub remarks: CompletionRemarks,
}

/// Reason why a login is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginFailure {
    /// The certificate alone does not suffice; PASS must follow. Only after USER.
    PasswordNeeded,
    /// The login is refused. The text is sent to the user.
    Refused(String),
}

/// A successful login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginGrant {
    /// Name shown in 230 and WHOAMI.
    pub user: String,
    /// Current directory after login.
    pub home: VPath,
    /// Rights of the session.
    pub rights: AccountRights,
    /// Additional lines of the 230 reply.
    pub welcome_lines: Vec<String>,
}

/// Rights of the account that is logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountRights {
    /// May create, change and delete files.
    pub write: bool,
    /// May use data connections with hosts other than the control peer: one host named with SITE
    /// DATAPEER, or any host if [`SessionConfig::foreign_data_addresses`](super::SessionConfig) is set.
    pub third_party: bool,
}

/// Kind of a file error. It decides the reply code.
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
    /// The path leads out of the session's root (EXDEV from openat2(2)), or links form a loop.
    OutsideRoot,
    /// A limit of the server is reached (no free data port, too many streams).
    Busy,
    /// Another upload is writing the file.
    InUse,
    /// The store that is served cannot be reached, or is busy: another attempt may succeed.
    Unavailable,
    /// The store that is served cannot do it at all.
    Unsupported,
    /// Stopped by [`SessionAction::Abort`] or by server shutdown.
    Aborted,
    /// Anything else.
    Other,
}

/// Error of a file operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// Kind of the error, for the reply code.
    pub kind: FileErrorKind,
    /// errno of the failed system call, if any.
    pub errno: Option<i32>,
    /// Message for people, with the system's error text ("No such file or directory").
    pub text: String,
}

impl FileError {
    /// An error that no system call reported.
    pub fn new(kind: FileErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            errno: None,
            text: text.into(),
        }
    }
}

/// Error of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferError {
    /// The file could not be opened, read or written.
    File(FileError),
    /// No data connection was made or accepted in time: 425.
    NoConnection(String),
    /// A data connection broke, stalled or violated the protocol: 426.
    Broken(String),
    /// Stopped by ABOR: 426, then 226 for ABOR itself.
    Aborted,
    /// A newer store of the same file, apparently by the same client after a reconnect, replaced this
    /// one: 426.
    Superseded,
    /// The stored file does not have the expected checksum.
    Checksum {
        /// Checksum of the received bytes.
        computed: String,
        /// Checksum announced with SCKS or STORATTR.
        expected: String,
    },
}
