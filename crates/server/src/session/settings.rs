//! The settings of the state machine of a session.

use std::path::Path;
use std::sync::Arc;

use proto::server::{CarriedRules, SessionConfig};

use crate::config::{RequiredProtection, TlsPolicy};
use crate::state::ServerState;
use crate::transfer::ControlAddresses;

/// Number of failed logins after which a session ends.
const MAX_LOGIN_FAILURES: u32 = 5;
/// Number of lines in a row that are not commands, after which a session ends.
const MAX_BAD_LINES: u32 = 100;

/// The settings of a session between these addresses.
pub(super) fn session_config(shared: &ServerState, ends: &ControlAddresses) -> SessionConfig {
    let config = &shared.config;
    let security = shared.material.settings();
    let version = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
    SessionConfig {
        carried: CarriedRules::default(),
        congestion_controls: Arc::clone(&shared.congestion),
        announcement_memory: shared.announcement_memory.clone(),
        greeting_lines: Arc::clone(&shared.site.banner),
        banner: match &config.messages.banner {
            Some(banner) => banner.clone(),
            None => format!("{version} GridFTP server ready."),
        },
        version: version.to_owned(),
        peer: ends.peer.ip(),
        perf_marker_seconds: config.perf_marker_seconds,
        // The bytes of an object that have arrived are worth nothing before its end: no restart goes on from there.
        range_marker_seconds: match config.served_store {
            Some(_) => 0,
            None => config.range_marker_seconds,
        },
        max_streams: config.max_streams_per_transfer,
        max_login_failures: MAX_LOGIN_FAILURES,
        max_bad_lines: MAX_BAD_LINES,
        buffer_sizing: config.transfer.buffers.sizing,
        foreign_data_addresses: config.foreign_data_addresses,
        mechanisms: shared.material.mechanisms(),
        // Bytes on the loopback interface are seen by root only, who reads passwords anyway.
        clear_passwords: security.clear_passwords || ends.are_loopback(),
        tls_required: security.tls_policy() == TlsPolicy::Required,
        require_data_protection: security.require_protection == RequiredProtection::Data,
        bearer_tokens: !security.token_issuers.is_empty(),
        allow_ccc: security.clear_commands,
        stores_objects: config.served_store.is_some(),
        nodes_by_directory: !config.data_nodes.iter().all(|node| node.has(Path::new(""))),
        enable_port: config.advisor_port,
        max_idle_seconds: u32::try_from(config.idle_timeout.as_secs()).unwrap_or(u32::MAX),
    }
}
