//! Settings that the administrator decides: the TOML file and the command line, as one value.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use data::options::{CongestionChoice, TransferOptions};
use data::store::durability::SyncPolicy;
use proto::sizing::SocketBuffers;

use crate::limits::{FREE_FAILURES, QueueBounds, SessionBounds};

mod file;

pub use file::{ConfigError, FileConfig};

/// Rights of anonymous sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// Read only.
    Ro,
    /// Read and write.
    Rw,
}

/// Who may make data connections to and from hosts other than their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThirdPartyPolicy {
    /// Nobody.
    None,
    /// Users that logged in with a password (and whose record does not forbid it).
    #[default]
    Users,
}

/// A running server's settings. Every field of the TOML file has the same name with `-`, if
/// nothing else is said.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Root of anonymous sessions and default root of users.
    pub root: PathBuf,
    /// Anonymous sessions; `None`: refused.
    pub anonymous: Option<Anonymous>,
    /// Password file.
    pub users: Option<PathBuf>,
    /// Data ports.
    pub data_ports: Option<(u16, u16)>,
    /// Address told in 227 replies instead of the local one (behind NAT).
    pub public_address: Option<IpAddr>,
    /// JSON Lines, one record per transfer.
    pub transfer_log: Option<PathBuf>,
    /// Classic `FTP_INFO` lines, one per transfer.
    pub ftp_info_log: Option<PathBuf>,
    /// Third-party data connections.
    pub third_party: ThirdPartyPolicy,
    /// Who may make them need not name the other host (SITE DATAPEER): any host may connect to their
    /// data ports, and be connected to.
    pub foreign_data_addresses: bool,
    /// Sessions in all.
    pub max_sessions: usize,
    /// Sessions per client address.
    pub max_sessions_per_address: usize,
    /// Sessions per logged-in user.
    pub max_sessions_per_user: usize,
    /// Data connections in all, at work or kept for a next transfer. One client address has at most
    /// half of what the others leave.
    pub max_streams: usize,
    /// Data connections of one transfer, whoever opens them.
    pub max_streams_per_transfer: u32,
    /// Transfers of one client address at once; `None`: half of `max_streams`, rounded up.
    pub max_transfers_per_address: Option<usize>,
    /// Checksums being computed at once; `None`: as many as there are processors.
    pub max_checksums: Option<usize>,
    /// Listings for replies and removals of trees at once; half of them may be one address's.
    pub max_listings: usize,
    /// Passwords being checked at once; `None`: as many as there are processors. Each takes 19 MiB.
    pub max_password_checks: Option<usize>,
    /// Requests of one address that may wait for a place, of each kind: transfers, checksums,
    /// listings, logins.
    pub max_waiting_per_address: usize,
    /// How long a transfer, a checksum, a listing for a reply or a removal of a tree waits for its place; then
    /// 450. What has begun is not refused its next turn.
    pub queue_timeout: Duration,
    /// No command for this long after login: 421.
    pub idle_timeout: Duration,
    /// No login for this long: 421.
    pub login_timeout: Duration,
    /// How long SIGTERM lets running transfers go on.
    pub drain: Duration,
    /// Seconds between 112 markers.
    pub perf_marker_seconds: u32,
    /// Seconds between 111 markers.
    pub range_marker_seconds: u32,
    /// Data connections. Buffers are sized by `Auto` or `Kernel` where a client does not say (`buffer` in
    /// the file); the congestion control is for what the server sends where a client does not ask for
    /// another one; a reply that does not move for the stall limit ends its session.
    /// Pinned buffers are ignored, as clients pin them (SBUF); the rate is one budget for all transfers.
    pub transfer: TransferOptions,
    /// How much of a stored file is forced to disk before the client hears that it is stored.
    pub sync_policy: SyncPolicy,
    /// Clients may ask for another congestion control than that, of those that the system permits
    /// this program.
    pub client_congestion: bool,
    /// Unprivileged account to become after binding (when started as root).
    pub run_as: Option<String>,
}

impl Default for ServerConfig {
    /// Serves the current directory on the loopback interface, to nobody: logins must be allowed
    /// by `anonymous` or `users`. Time-outs are those of other GridFTP servers; the bounds let one
    /// client host run a big batch but not take all sessions.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 2811)),
            root: PathBuf::from("."),
            anonymous: None,
            users: None,
            data_ports: None,
            public_address: None,
            transfer_log: None,
            ftp_info_log: None,
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
        }
    }
}

impl ServerConfig {
    /// Bounds on sessions.
    pub(crate) fn session_bounds(&self) -> SessionBounds {
        SessionBounds {
            sessions: self.max_sessions,
            per_address: self.max_sessions_per_address,
            per_user: self.max_sessions_per_user,
        }
    }

    /// Bounds on transfers. A transfer has a thread of its own from its first moment, streams or
    /// not, so there are as many places as streams.
    pub(crate) fn transfer_queue(&self) -> QueueBounds {
        let half = self.max_streams.div_ceil(2);
        let per_client = self.max_transfers_per_address.unwrap_or(half);
        self.queue_bounds(self.max_streams, per_client)
    }

    /// Bounds on checksums. They are computed in slices, so one client may use what is free.
    pub(crate) fn checksum_queue(&self) -> QueueBounds {
        let places = self.max_checksums.unwrap_or_else(processor_count);
        self.queue_bounds(places, places)
    }

    /// Bounds on listings for replies and removals of trees.
    pub(crate) fn listing_queue(&self) -> QueueBounds {
        self.queue_bounds(self.max_listings, self.max_listings / 2)
    }

    /// Bounds on password checks. One client has no more under way than may fail for free: many
    /// sessions that log in at once with the right password wait for no penalty.
    pub(crate) fn password_check_queue(&self) -> QueueBounds {
        let places = self.max_password_checks.unwrap_or_else(processor_count);
        self.queue_bounds(places, (places / 2).min(FREE_FAILURES as usize))
    }

    /// Bounds on listeners being made: quick, but a range of taken ports is tried through, and a
    /// burst of PASV must not become a burst of threads.
    pub(crate) fn listener_queue(&self) -> QueueBounds {
        QueueBounds {
            // A session waits for one at a time: no client is refused one for its number of sessions.
            waiting: self.max_sessions_per_address,
            ..self.queue_bounds(processor_count(), processor_count())
        }
    }

    fn queue_bounds(&self, places: usize, per_client: usize) -> QueueBounds {
        QueueBounds {
            permits: places,
            per_client,
            waiting: self.max_waiting_per_address,
        }
    }
}

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
