//! Which hosts of ssh: URLs have no open ports, as the memory of paths knows.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ftp::PortMemory;
use ftp::protection::ConnectionSecurity;
use history::{HistoryLocation, PathHistory, PathKey};
use tune::limiter::Role;

#[derive(Debug)]
struct KnownPorts(PathHistory);

/// The user's memory of paths; `None`: there is no place for it, or it is not wanted.
pub(super) fn user_history() -> Option<PathHistory> {
    HistoryLocation::of_user().file().map(PathHistory::at)
}

/// Lets sessions by ssh use and extend the memory, if there is one.
pub(super) fn remember_ports(security: &ConnectionSecurity, history: Option<&PathHistory>) {
    if let Some(history) = history {
        security.remember_ports(Arc::new(KnownPorts(history.clone())));
    }
}

impl PortMemory for KnownPorts {
    fn were_closed(&self, local: IpAddr, host: SocketAddr) -> bool {
        self.0.were_ports_closed(&key_of(local, host), host.port())
    }

    fn note(&self, local: IpAddr, host: SocketAddr, are_closed: bool) {
        self.0
            .record_ports(key_of(local, host), host.port(), are_closed);
    }
}

/// Ports are the same for both directions of data.
fn key_of(local: IpAddr, host: SocketAddr) -> PathKey {
    PathKey::new(local, host.ip(), Role::Receiver)
}
