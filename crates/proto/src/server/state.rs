//! State of a session, by how long it is valid: a connection, a login, one transfer.

use std::net::IpAddr;

use super::file_task::FileTask;
use super::passive_form::PassiveForm;
use super::running::Running;
use super::{Grant, Rights, SessionConfig};
use crate::checksum::Algorithm;
use crate::command::{Mode, Restart, Type};
use crate::listing::FactSet;
use crate::path::VPath;
use crate::sizing::Buffers;
use crate::streams::StreamRange;
use crate::stripes::StripeAddresses;
use crate::timestamp::Timestamp;

/// Where a control connection stands.
#[derive(Debug)]
pub(super) enum State {
    /// Nobody is logged in; USER is expected.
    Connected,
    /// USER was given; PASS is expected.
    UserGiven(String),
    /// The driver checks the password.
    Authenticating,
    /// Everything is open that the rights allow.
    LoggedIn(Box<LoggedIn>),
    /// [`super::Action::Close`] was sent; nothing is answered any more.
    Closed,
}

/// A login and all that belongs to it.
#[derive(Debug)]
pub(super) struct LoggedIn {
    /// Name shown by SITE WHOAMI and STAT.
    pub(super) user: String,
    /// The directory that `~` stands for.
    pub(super) home: VPath,
    /// Rights of the account.
    pub(super) rights: Rights,
    /// The control connection's peer, IPv4-mapped addresses as IPv4.
    pub(super) peer: IpAddr,
    /// The one other host that data connections may be with (SITE DATAPEER), likewise.
    pub(super) data_peer: Option<IpAddr>,
    /// They may be with any host.
    pub(super) any_host: bool,
    /// Current directory.
    pub(super) cwd: VPath,
    /// Parameters that live as long as the login.
    pub(super) settings: Settings,
    /// Parameters that the next transfer takes.
    pub(super) next: NextTransfer,
    /// How the next data connection is made.
    pub(super) channel: Channel,
    /// The driver holds an address of the DRS channel (DPSV, DPRT).
    pub(super) has_drs: bool,
    /// RNFR was accepted for this path; lives until RNTO.
    pub(super) rename_from: Option<VPath>,
    /// SITE SYMLINKFROM was accepted for this path; lives until SITE SYMLINKTO.
    pub(super) link_from: Option<VPath>,
    /// Work of the driver for this session.
    pub(super) pending: Pending,
}

impl LoggedIn {
    /// A fresh login with every parameter at its default.
    pub(super) fn new(config: &SessionConfig, grant: Grant) -> Self {
        Self {
            user: grant.user,
            cwd: grant.home.clone(),
            home: grant.home,
            any_host: grant.rights.third_party && config.foreign_data_addresses,
            rights: grant.rights,
            data_peer: None,
            peer: config.peer.to_canonical(),
            settings: Settings::new(config),
            next: NextTransfer::default(),
            channel: Channel::None,
            has_drs: false,
            rename_from: None,
            link_from: None,
            pending: Pending::Nothing,
        }
    }
}

/// Parameters that live as long as the login.
#[derive(Debug)]
pub(super) struct Settings {
    /// TYPE; RFC 959 starts with A.
    pub(super) type_: Type,
    /// MODE; RFC 959 starts with S.
    pub(super) mode: Mode,
    /// Data connections when sending in MODE E (`OPTS RETR Parallelism`).
    pub(super) parallelism: StreamRange,
    /// Congestion control for sending (`OPTS TUNE Congestion`); empty: as the server is set.
    pub(super) congestion: String,
    /// Socket buffers: pinned by SBUF, else sized as `OPTS DRS` said.
    pub(super) buffers: Buffers,
    /// The client is known to read what is added to a 226 ([`crate::remark`]).
    pub(super) takes_remarks: bool,
    /// Seconds between 112 markers during stores, 0 none.
    pub(super) perf_seconds: u32,
    /// Seconds between 111 markers during stores, 0 none.
    pub(super) range_seconds: u32,
    /// Seconds between 112 markers during retrieves, 0 none.
    pub(super) retrieve_perf_seconds: u32,
    /// Seconds between 113 markers of CKSM, 0 none.
    pub(super) checksum_seconds: u32,
    /// `OPTS PASV AllowDelayed=1`
    pub(super) allow_delayed: bool,
    /// EPSV ALL was given (RFC 2428 §4).
    pub(super) epsv_only: bool,
    /// Facts of MLSx.
    pub(super) facts: FactSet,
    /// `OPTS STOR Checksum`: sum while storing.
    pub(super) store_sum: Option<Algorithm>,
    /// SITE IDLE, seconds; `None` as the server has it.
    pub(super) idle_seconds: Option<u32>,
}

impl Settings {
    fn new(config: &SessionConfig) -> Self {
        Self {
            type_: Type::Ascii,
            mode: Mode::Stream,
            parallelism: StreamRange::fixed(1),
            congestion: String::new(),
            buffers: Buffers::sized(config.own_sizing()),
            takes_remarks: false,
            perf_seconds: config.perf_marker_seconds,
            range_seconds: config.range_marker_seconds,
            retrieve_perf_seconds: 0,
            checksum_seconds: 0,
            allow_delayed: false,
            epsv_only: false,
            facts: FactSet::default(),
            store_sum: None,
            idle_seconds: None,
        }
    }
}

/// Parameters that the next transfer takes.
#[derive(Debug, Default)]
pub(super) struct NextTransfer {
    /// REST: any transfer takes it, also one that fails.
    pub(super) restart: Option<Restart>,
    /// Settings that only a store takes; they survive other transfers.
    pub(super) store: NextStore,
}

/// Parameters that the next store takes.
#[derive(Debug, Default)]
pub(super) struct NextStore {
    /// ALLO, bytes.
    pub(super) allocate: Option<u64>,
    /// SCKS or STORATTR checksum.
    pub(super) expect: Option<(Algorithm, String)>,
    /// STORATTR modify.
    pub(super) modify: Option<Timestamp>,
}

/// How the next data connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Channel {
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
    Delayed(PassiveForm),
}

impl Channel {
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
pub(super) enum Pending {
    /// Nothing; the next line is awaited.
    #[default]
    Nothing,
    /// Work on files.
    File(Box<FileTask>),
    /// Opening a listener; the form of the reply that tells its address.
    Listen(PassiveForm),
    /// Opening a listener for the DRS channel.
    ListenDrs,
    /// A transfer.
    Transfer(Box<Running>),
}
