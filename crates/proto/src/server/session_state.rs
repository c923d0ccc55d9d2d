//! State of a session, by how long it is valid: a connection, a login, one transfer.

use std::net::IpAddr;

use super::file_task::FileTask;
use super::passive_reply::PassiveReplyForm;
use super::running_transfer::RunningTransfer;
use super::{AccountRights, LoginGrant, SessionConfig};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DataType, RestartMarker, TransferMode};
use crate::listing::FactSet;
use crate::path::VPath;
use crate::sizing::SocketBuffers;
use crate::streams::ParallelismRange;
use crate::stripes::StripeAddresses;
use crate::timestamp::Timestamp;

/// Where a control connection stands.
#[derive(Debug)]
pub(super) enum LoginState {
    /// Nobody is logged in; USER is expected.
    Connected,
    /// USER was given; PASS is expected.
    UserGiven(String),
    /// The driver checks the password.
    Authenticating,
    /// Everything is open that the rights allow.
    LoggedIn(Box<LoggedInSession>),
    /// [`super::SessionAction::Close`] was sent; nothing is answered any more.
    Closed,
}

/// The next thing that the session waits for in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeWait {
    /// The driver is to say whether the exchange can begin.
    ExchangeReady,
    /// The client is to send ADAT.
    Adat,
    /// The driver is to say what its mechanism makes of a token.
    MechanismResult,
    /// The driver is to shake hands on the connection.
    Handshake,
}

/// A login and all that belongs to it.
#[derive(Debug)]
pub(super) struct LoggedInSession {
    /// Name shown by SITE WHOAMI and STAT.
    pub(super) user: String,
    /// The directory that `~` stands for.
    pub(super) home: VPath,
    /// Rights of the account.
    pub(super) rights: AccountRights,
    /// The control connection's peer, IPv4-mapped addresses as IPv4.
    pub(super) peer: IpAddr,
    /// The one other host that data connections may be with (SITE DATAPEER), likewise.
    pub(super) data_peer: Option<IpAddr>,
    /// They may be with any host.
    pub(super) any_host: bool,
    /// Current directory.
    pub(super) cwd: VPath,
    /// Parameters that live as long as the login.
    pub(super) parameters: SessionParameters,
    /// Parameters that the next transfer takes.
    pub(super) next_transfer: NextTransferParameters,
    /// How the next data connection is made.
    pub(super) data_channel: DataChannel,
    /// The driver holds an address of the DRS channel (DPSV, DPRT).
    pub(super) has_drs_address: bool,
    /// RNFR was accepted for this path; lives until RNTO.
    pub(super) rename_from: Option<VPath>,
    /// SITE SYMLINKFROM was accepted for this path; lives until SITE SYMLINKTO.
    pub(super) link_from: Option<VPath>,
    /// Work of the driver for this session.
    pub(super) pending: PendingTask,
}

impl LoggedInSession {
    /// A fresh login with every parameter at its default.
    pub(super) fn new(config: &SessionConfig, grant: LoginGrant) -> Self {
        Self {
            user: grant.user,
            cwd: grant.home.clone(),
            home: grant.home,
            any_host: grant.rights.third_party && config.foreign_data_addresses,
            rights: grant.rights,
            data_peer: None,
            peer: config.peer.to_canonical(),
            parameters: SessionParameters::new(config),
            next_transfer: NextTransferParameters::default(),
            data_channel: DataChannel::None,
            has_drs_address: false,
            rename_from: None,
            link_from: None,
            pending: PendingTask::Nothing,
        }
    }
}

/// Parameters that live as long as the login.
#[derive(Debug)]
pub(super) struct SessionParameters {
    /// TYPE; RFC 959 starts with A.
    pub(super) type_: DataType,
    /// MODE; RFC 959 starts with S.
    pub(super) mode: TransferMode,
    /// Data connections when sending in MODE E (`OPTS RETR Parallelism`).
    pub(super) parallelism: ParallelismRange,
    /// Congestion control for sending (`OPTS TUNE CongestionControl`); empty: as the server is set.
    pub(super) congestion_control: String,
    /// Socket buffers: pinned by SBUF, else sized as `OPTS DRS` said.
    pub(super) buffers: SocketBuffers,
    /// The client is known to read what is added to a 226 ([`crate::remark`]).
    pub(super) reads_remarks: bool,
    /// Seconds between 112 markers during stores, 0 none.
    pub(super) store_perf_seconds: u32,
    /// Seconds between 111 markers during stores, 0 none.
    pub(super) store_range_seconds: u32,
    /// Seconds between 112 markers during retrieves, 0 none.
    pub(super) retrieve_perf_seconds: u32,
    /// Seconds between 113 markers of CKSM, 0 none.
    pub(super) checksum_seconds: u32,
    /// `OPTS PASV AllowDelayedPassive=1`
    pub(super) allow_delayed: bool,
    /// EPSV ALL was given (RFC 2428 §4).
    pub(super) epsv_only: bool,
    /// Facts of MLSx.
    pub(super) facts: FactSet,
    /// `OPTS STOR Checksum`: sum while storing.
    pub(super) store_checksum: Option<ChecksumAlgorithm>,
    /// SITE IDLE, seconds; `None` as the server has it.
    pub(super) idle_seconds: Option<u32>,
}

impl SessionParameters {
    fn new(config: &SessionConfig) -> Self {
        Self {
            type_: DataType::Ascii,
            mode: TransferMode::Stream,
            parallelism: ParallelismRange::fixed(1),
            congestion_control: String::new(),
            buffers: SocketBuffers::sized_by(config.default_buffer_sizing()),
            reads_remarks: false,
            store_perf_seconds: config.perf_marker_seconds,
            store_range_seconds: config.range_marker_seconds,
            retrieve_perf_seconds: 0,
            checksum_seconds: 0,
            allow_delayed: false,
            epsv_only: false,
            facts: FactSet::default(),
            store_checksum: None,
            idle_seconds: None,
        }
    }
}

/// Parameters that the next transfer takes.
#[derive(Debug, Default)]
pub(super) struct NextTransferParameters {
    /// REST: any transfer takes it, also one that fails.
    pub(super) restart: Option<RestartMarker>,
    /// Settings that only a store takes; they survive other transfers.
    pub(super) store: NextStoreParameters,
}

/// Parameters that the next store takes.
#[derive(Debug, Default)]
pub(super) struct NextStoreParameters {
    /// ALLO, bytes.
    pub(super) announced_size: Option<u64>,
    /// SCKS or STORATTR checksum.
    pub(super) expected_checksum: Option<(ChecksumAlgorithm, String)>,
    /// STORATTR modify.
    pub(super) modified: Option<Timestamp>,
}

/// How the next data connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataChannel {
    /// Not known: a transfer is refused with 425. Port 20 is never used.
    None,
    /// The driver listens. `used`: MODE E connections of an earlier transfer are open.
    Passive {
        /// Connections are cached.
        used: bool,
    },
    /// The driver connects to these addresses, or has (`used`).
    Active {
        to: StripeAddresses,
        /// Connections are cached.
        used: bool,
    },
    /// The driver listens when the transfer starts and the address goes out then.
    DelayedPassive(PassiveReplyForm),
}

impl DataChannel {
    /// Whether connections of an earlier transfer are kept.
    pub(super) fn is_cached(&self) -> bool {
        matches!(
            self,
            Self::Passive { used: true } | Self::Active { used: true, .. }
        )
    }
}

/// Work of the driver for a login.
#[derive(Debug, Default)]
pub(super) enum PendingTask {
    /// Nothing; the next line is awaited.
    #[default]
    Nothing,
    /// Work on files.
    File(Box<FileTask>),
    /// Opening a listener; the form of the reply that tells its address.
    Listen(PassiveReplyForm),
    /// Opening a listener for the DRS channel.
    ListenDrs,
    /// A transfer.
    Transfer(Box<RunningTransfer>),
}
