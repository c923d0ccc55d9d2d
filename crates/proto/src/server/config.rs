//! Configuration of a session.

use std::net::IpAddr;
use std::sync::Arc;

use super::AnnouncementMemory;
use crate::path::VPath;
use crate::security::SecurityMechanism;
use crate::sizing::BufferSizing;

/// Finds the home directory of a user; `None`: there is no such user.
pub type FindHome = fn(&[u8]) -> Option<VPath>;

/// Rules of a session that a program carries (ssh).
#[derive(Debug, Clone, Copy, Default)]
pub struct CarriedRules {
    /// For the path `/~user/`; `None`: such a path is like any other.
    pub home_of: Option<FindHome>,
    /// Data connections are clear without a word of the client, and may be opened to every host that it names: what clients of
    /// sshftp expect.
    pub clear_data: bool,
}

/// Configuration of a session.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Lines of the greeting before the banner. Shared by all sessions.
    pub greeting_lines: Arc<[String]>,
    /// Text after 220 (one line).
    pub banner: String,
    /// `longhaul 0.1.0`, for SITE VERSION and STAT.
    pub version: String,
    /// The control connection's peer.
    pub peer: IpAddr,
    /// Seconds between 112 markers during MODE E stores.
    pub perf_marker_seconds: u32,
    /// Seconds between 111 markers during MODE E stores.
    pub range_marker_seconds: u32,
    /// Most data connections per transfer; a larger `OPTS RETR Parallelism` is reduced to it.
    pub max_streams: u32,
    /// Congestion controls that a client may select with OPTS TUNE, lower case; may include `auto` and
    /// `system`. If empty, none is announced. Shared by all sessions.
    pub congestion_controls: Arc<[String]>,
    /// Failed logins after which the session closes with 421; 0 for no limit.
    pub max_login_failures: u32,
    /// Consecutive unrecognized lines after which the session closes with 421; 0 for no limit.
    pub max_bad_lines: u32,
    /// Buffer sizing until OPTS DRS selects another one than `auto`: [`BufferSizing::Auto`] or
    /// [`BufferSizing::Kernel`]. The others need the client's request and count as `Auto` here.
    pub buffer_sizing: BufferSizing,
    /// Accounts with the third-party right may use data connections with any host, without naming it
    /// by SITE DATAPEER.
    pub foreign_data_addresses: bool,
    /// Longest idle timeout that SITE IDLE can set, seconds.
    pub max_idle_seconds: u32,
    /// Security mechanisms that the driver supports ([`super::SessionAction::Secure`]). If empty, AUTH is
    /// refused. Shared by all sessions.
    pub mechanisms: Arc<[SecurityMechanism]>,
    /// Passwords are accepted from a connection without security.
    pub clear_passwords: bool,
    /// USER is refused before a security exchange, also for anonymous users.
    pub tls_required: bool,
    /// Transfers are refused until PROT P.
    pub require_data_protection: bool,
    /// FEAT announces logins with bearer tokens ([`crate::security::BEARER_USER`]).
    pub bearer_tokens: bool,
    /// CCC is accepted from a user who has logged in over TLS.
    pub allow_ccc: bool,
    /// Files are objects, which are stored as a whole and have no times that can be set: FEAT announces neither bundles nor
    /// MFMT and ESTO, and that a stored file is seen when all of it is there.
    pub stores_objects: bool,
    /// Not all data nodes have all files, which FEAT announces: the reply to SPAS is about the current directory.
    pub nodes_by_directory: bool,
    /// Port of this host where the network-advice service answers, which FEAT announces.
    pub enable_port: Option<u16>,
    /// Memory for announced bundles. Shared by all sessions.
    pub announcement_memory: AnnouncementMemory,
    /// Rules of carried sessions.
    pub carried: CarriedRules,
}

impl SessionConfig {
    /// The configuration of a server that offers no security and accepts no password in the clear, with the
    /// usual times and no limit of failures. A caller replaces what it wants otherwise.
    pub fn new(peer: IpAddr) -> Self {
        Self {
            greeting_lines: Arc::default(),
            banner: "ready.".to_owned(),
            version: "longhaul".to_owned(),
            peer,
            perf_marker_seconds: 5,
            range_marker_seconds: 5,
            max_streams: 16,
            congestion_controls: Arc::default(),
            max_login_failures: 0,
            max_bad_lines: 0,
            buffer_sizing: BufferSizing::Auto,
            foreign_data_addresses: false,
            max_idle_seconds: 7200,
            mechanisms: Arc::default(),
            clear_passwords: false,
            tls_required: false,
            require_data_protection: false,
            bearer_tokens: false,
            allow_ccc: false,
            stores_objects: false,
            nodes_by_directory: false,
            enable_port: None,
            announcement_memory: AnnouncementMemory::default(),
            carried: CarriedRules::default(),
        }
    }

    /// Buffer sizing for a client that has not sent OPTS DRS. Such a client may not support DRS, so
    /// schemes that need the peer are replaced by `Auto`.
    pub(super) fn default_buffer_sizing(&self) -> BufferSizing {
        match self.buffer_sizing {
            configured if configured.needs_peer_support() => BufferSizing::Auto,
            configured => configured,
        }
    }
}
