//! The administrator's settings: the TOML file and the command line as one value.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data::options::{CongestionChoice, TransferOptions};
use data::served::ServedStore;
use data::store::durability::SyncPolicy;
use history::HistoryLocation;
use proto::sizing::SocketBuffers;

use crate::key_holder::KeyHolder;
use crate::limits::{FREE_FAILURES, QueueBounds, SessionBounds};
use crate::pam::{MAX_ATTEMPTS, PamChecker};
use crate::service_manager::{PassedListeners, PassedListenersError, ServiceManager};

mod access;
mod creation;
mod data_node;
mod file;
mod file_access;
mod import;
mod messages;
mod pam;
mod security;
mod shares;
mod site;
mod token;
mod unusable;

pub use access::{AccessLists, ClientNetwork, ClientNetworkError};
pub use creation::{
    CreationConfig, DirectoryBits, FileBits, ModeError, PermissionBits, UploadOwnerError,
};
pub use data_node::DataNode;
pub use file::FileConfig;
pub use import::{ForeignServer, SettingsImportError, import_settings};
pub use messages::{MessageConfig, MessageFileError};
pub use pam::PamConfig;
pub use security::{
    ClientCertificatesName, RequiredProtection, SecurityConfig, SecurityConfigError, SessionReuse,
    TlsPolicy, TokenIssuerConfig, UnlistedRights,
};
pub use shares::{QuotaBounds, RateText, ShareConfig, SizeText, UserShares};
pub use site::SiteError;
pub(crate) use site::SiteTerms;
pub use token::TokenIssuerError;
pub(crate) use token::{KeySource, TrustedIssuer, trusted_issuers};
pub use unusable::UnusableSetting;

pub use crate::sandbox::SandboxMode;

/// Access rights of anonymous sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// Read only.
    Ro,
    /// Read and write.
    Rw,
}

/// Form of the program's messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Which sessions may have data connections with hosts other than their client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThirdPartyPolicy {
    /// None.
    None,
    /// Sessions of users with a password, unless the user's record forbids it.
    #[default]
    Users,
}

/// The settings of a server. The keys of the TOML file are the field names with `-` instead of `_`,
/// unless a field says otherwise.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address of the control port.
    pub listen: SocketAddr,
    /// Root directory of anonymous sessions, and of users without a root of their own.
    pub root: PathBuf,
    /// The store that is served in place of `root`, which is then its URL; `None`: `root` is a directory. Not in the settings file.
    pub served_store: Option<Arc<dyn ServedStore>>,
    /// Anonymous sessions; `None` refuses them.
    pub anonymous: Option<Anonymous>,
    /// The users file; `None`: no password users.
    pub users: Option<PathBuf>,
    /// Range of data ports (first, last); `None`: any free port.
    pub data_ports: Option<(u16, u16)>,
    /// Address that 227 replies name instead of the local one, for a server behind NAT.
    pub public_address: Option<IpAddr>,
    /// File of the transfer log: JSON Lines, one record per transfer.
    pub transfer_log: Option<PathBuf>,
    /// File of the classic log: one `FTP_INFO` line per transfer.
    pub ftp_info_log: Option<PathBuf>,
    /// The memory of the paths to clients, from which later ones begin. In the file: `off` or a path. Its
    /// directory must be writable for the server; otherwise nothing is kept.
    pub history: HistoryLocation,
    /// Who may have data connections with third hosts.
    pub third_party: ThirdPartyPolicy,
    /// Sessions with that right need not name the other host (SITE DATAPEER): any host may connect to
    /// their data ports, and they may connect to any host.
    pub foreign_data_addresses: bool,
    /// All sessions.
    pub max_sessions: usize,
    /// Sessions of one client address.
    pub max_sessions_per_address: usize,
    /// Sessions of one user.
    pub max_sessions_per_user: usize,
    /// All data connections, whether in use or kept for the next transfer. One client address gets at
    /// most half of those that the others leave free.
    pub max_streams: usize,
    /// Data connections of one transfer, whichever end opens them.
    pub max_streams_per_transfer: u32,
    /// Concurrent transfers of one client address; `None`: half of `max_streams`, rounded up.
    pub max_transfers_per_address: Option<usize>,
    /// Checksums computed at the same time; `None`: the number of processors.
    pub max_checksums: Option<usize>,
    /// Concurrent listings in replies and removals of trees; one address may have half of them.
    pub max_listings: usize,
    /// Passwords checked at the same time; `None`: the number of processors. Each check takes 19 MiB.
    pub max_password_checks: Option<usize>,
    /// Waiting requests of one address, of each kind (transfers, checksums, listings, logins).
    pub max_waiting_per_address: usize,
    /// Longest wait of a transfer, a checksum, a listing in a reply or a removal of a tree for its
    /// permit; after that the reply is 450. Work that has begun is not refused.
    pub queue_timeout: Duration,
    /// Longest time without a command after the login; then 421.
    pub idle_timeout: Duration,
    /// Longest time from connection to login; then 421.
    pub login_timeout: Duration,
    /// Longest time for which running transfers go on after SIGTERM.
    pub drain: Duration,
    /// Interval of 112 performance markers, seconds.
    pub perf_marker_seconds: u32,
    /// Interval of 111 range markers, seconds.
    pub range_marker_seconds: u32,
    /// Options of data connections. The buffer sizing (`buffer` in the file, `Auto` or `Kernel`) and the
    /// congestion control of sent data apply where the client asks for no other. A session whose reply
    /// is not read within the stall limit ends. Pinned buffers are ignored, because clients pin them
    /// (SBUF). The rate is one budget for all transfers together.
    pub transfer: TransferOptions,
    /// Durability of a stored file when the server replies that it is stored.
    pub sync_policy: SyncPolicy,
    /// Clients may ask for another congestion control, among those that the system permits this
    /// process.
    pub client_congestion: bool,
    /// Unprivileged account that a server started as root becomes after binding its port.
    pub run_as: Option<String>,
    /// Data nodes that carry out striped transfers (the tables `[[data-node]]`).
    pub data_nodes: Vec<DataNode>,
    /// Subjects of the certificates of the front ends whose data node this server is (`front-end` in the file); empty: it has sessions of its own.
    pub front_ends: Vec<String>,
    /// TLS, GSI, client certificates and bearer tokens.
    pub security: SecurityConfig,
    /// The process that holds the private key of `security.certificate`; `None`: this process reads the
    /// key. Not in the settings file.
    pub key_holder: Option<Arc<KeyHolder>>,
    /// Logins that PAM checks.
    pub pam: PamConfig,
    /// The process that asks PAM, which the program starts with [`PamChecker::start`]; without it nobody logs in by PAM.
    /// Not in the settings file.
    pub pam_checker: Option<Arc<PamChecker>>,
    /// Settings file of the network-advice service that the program runs beside the server (`config` in the
    /// table `[advisor]`); `None`: no service.
    pub advisor: Option<PathBuf>,
    /// Port where that service answers, which FEAT announces. Not in the settings file.
    pub advisor_port: Option<u16>,
    /// Address of the HTTP port with `/metrics` for Prometheus and `/health`; `None`: no such port. It needs no login.
    pub metrics: Option<SocketAddr>,
    /// Networks of proxies whose connections begin with a PROXY header.
    pub proxy_protocol_from: Vec<ClientNetwork>,
    /// Clients and users that are served.
    pub access: AccessLists,
    /// Modes and owner of new files.
    pub creation: CreationConfig,
    /// Bandwidth and space of users and addresses.
    pub shares: ShareConfig,
    /// Greeting and messages.
    pub messages: MessageConfig,
    /// Form of the program's messages.
    pub log: MessageFormat,
    /// Sockets of the service manager, which replace those of `listen`, `security.implicit_tls` and `metrics`. Not in the
    /// settings file.
    pub passed: PassedListeners,
    /// The service manager that started this process. Not in the settings file.
    pub service_manager: Option<Arc<ServiceManager>>,
    /// Whether the program confines itself; [`crate::sandbox::enter`] must be called with it.
    pub sandbox: SandboxMode,
}

impl Default for ServerConfig {
    /// Serves the current directory on the loopback interface. Nobody can log in until `anonymous` or
    /// `users` is set. The timeouts are those of other GridFTP servers; the limits let one client host
    /// run a big batch without taking all sessions.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 2811)),
            root: PathBuf::from("."),
            served_store: None,
            anonymous: None,
            users: None,
            data_ports: None,
            public_address: None,
            transfer_log: None,
            ftp_info_log: None,
            history: HistoryLocation::Off,
            third_party: ThirdPartyPolicy::default(),
            foreign_data_addresses: false,
            max_sessions: 20_000,
            max_sessions_per_address: 1000,
            max_sessions_per_user: 1000,
            max_streams: 1024,
            max_streams_per_transfer: 128,
            max_transfers_per_address: None,
            max_checksums: None,
            max_listings: 16,
            max_password_checks: None,
            max_waiting_per_address: 256,
            queue_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(600),
            login_timeout: Duration::from_secs(120),
            drain: Duration::from_secs(60),
            perf_marker_seconds: 5,
            range_marker_seconds: 5,
            transfer: TransferOptions {
                buffers: SocketBuffers::default(),
                congestion: CongestionChoice::Auto,
                ..TransferOptions::default()
            },
            sync_policy: SyncPolicy::default(),
            client_congestion: true,
            run_as: None,
            data_nodes: Vec::new(),
            front_ends: Vec::new(),
            security: SecurityConfig::default(),
            key_holder: None,
            pam: PamConfig::default(),
            pam_checker: None,
            advisor: None,
            advisor_port: None,
            metrics: None,
            proxy_protocol_from: Vec::new(),
            access: AccessLists::default(),
            creation: CreationConfig::default(),
            shares: ShareConfig::default(),
            messages: MessageConfig::default(),
            log: MessageFormat::default(),
            passed: PassedListeners::default(),
            service_manager: None,
            sandbox: SandboxMode::default(),
        }
    }
}

impl ServerConfig {
    /// Host and port of some of the data nodes.
    pub(crate) fn node_addresses(&self, which: impl Fn(&DataNode) -> bool) -> Vec<String> {
        let nodes = self.data_nodes.iter().filter(|node| which(node));
        nodes.map(|node| node.address.clone()).collect()
    }

    /// Uses the sockets of the service manager instead of the addresses of the settings.
    ///
    /// # Errors
    /// [`PassedListenersError::NoSetting`]
    pub fn use_passed(&mut self, passed: &PassedListeners) -> Result<(), PassedListenersError> {
        let implicit_tls = &mut self.security.implicit_tls;
        passed.replace(&mut self.listen, implicit_tls, &mut self.metrics)?;
        self.passed = passed.clone();
        Ok(())
    }

    /// Bounds on sessions.
    pub(crate) fn session_bounds(&self) -> SessionBounds {
        SessionBounds {
            sessions: self.max_sessions,
            per_address: self.max_sessions_per_address,
            per_user: self.max_sessions_per_user,
        }
    }

    /// Bounds on transfers. A transfer has a thread of its own even before its first stream, so there
    /// are as many permits as streams.
    pub(crate) fn transfer_queue(&self) -> QueueBounds {
        let half = self.max_streams.div_ceil(2);
        let per_client = self.max_transfers_per_address.unwrap_or(half);
        self.queue_bounds(self.max_streams, per_client)
    }

    /// Bounds on checksums. One client may hold all permits, because a checksum returns its permit
    /// after each time slice.
    pub(crate) fn checksum_queue(&self) -> QueueBounds {
        let permits = self.max_checksums.unwrap_or_else(processor_count);
        self.queue_bounds(permits, permits)
    }

    /// Bounds on listings in replies and removals of trees.
    pub(crate) fn listing_queue(&self) -> QueueBounds {
        self.queue_bounds(self.max_listings, self.max_listings / 2)
    }

    /// Bounds on password checks. One client has at most as many in progress as may fail without a
    /// delay. So many sessions that log in at once with the right password are not delayed.
    pub(crate) fn password_check_queue(&self) -> QueueBounds {
        let permits = self.max_password_checks.unwrap_or_else(processor_count);
        self.queue_bounds(permits, (permits / 2).min(FREE_FAILURES as usize))
    }

    /// Bounds on questions to PAM, each of which waits for a process of its own.
    pub(crate) fn pam_queue(&self) -> QueueBounds {
        self.queue_bounds(MAX_ATTEMPTS, FREE_FAILURES as usize)
    }

    /// Whether anybody can be served: logins are configured, or front ends whose data node this is.
    pub fn has_clients(&self) -> bool {
        self.anonymous.is_some()
            || self.has_passwords()
            || self.security.has_other_logins()
            || !self.front_ends.is_empty()
    }

    /// Whether logins with a password are configured.
    pub fn has_passwords(&self) -> bool {
        self.users.is_some() || self.pam.service.is_some()
    }

    /// Bounds on steps of GSI exchanges. One client has at most half of the processors, rounded up.
    pub(crate) fn exchange_queue(&self) -> QueueBounds {
        let permits = processor_count();
        self.queue_bounds(permits, permits.div_ceil(2))
    }

    /// Bounds on listeners being opened. Opening is quick, but it may try a whole range of busy ports,
    /// and a burst of PASV must not start a burst of threads.
    pub(crate) fn listener_queue(&self) -> QueueBounds {
        QueueBounds {
            // A session waits for one listener at a time, so this bound never refuses a client that is
            // within its number of sessions.
            waiting: self.max_sessions_per_address,
            ..self.queue_bounds(processor_count(), processor_count())
        }
    }

    fn queue_bounds(&self, permits: usize, per_client: usize) -> QueueBounds {
        QueueBounds {
            permits,
            per_client,
            waiting: self.max_waiting_per_address,
        }
    }
}

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
