//! The memory of the path to a peer: earlier transfers give a new one its start. Only a sender chooses settings, so
//! only transfers to clients count.

use std::net::IpAddr;
use std::time::Duration;

use data::job::TransferSettings;
use data::options::CongestionChoice;
use history::{PathHistory, PathKey};
use proto::command::TransferMode;
use tune::Evidence;
use tune::limiter::Role;

/// The memory of the path of one transfer.
#[derive(Debug, Clone)]
pub(crate) struct TransferMemory {
    history: PathHistory,
    local: IpAddr,
    peer: IpAddr,
    /// The control connection takes the same path, so that its round trip is this path's.
    is_path_of_control: bool,
}

impl TransferMemory {
    /// The memory of the path from `local` to `peer`, the host of the data connections as far as it is known.
    /// `control_peer`: the other end of the control connection; `None` if that is a proxy.
    pub(crate) fn new(
        history: PathHistory,
        local: IpAddr,
        peer: IpAddr,
        control_peer: Option<IpAddr>,
    ) -> Self {
        Self {
            history,
            local,
            peer,
            is_path_of_control: control_peer == Some(peer),
        }
    }

    /// Adds what is known of the path to the settings of a transfer that sends. `control_rtt`: the smallest round trip of
    /// the control connection, zero if unknown. Reads a file, which takes less than a millisecond.
    pub(super) fn apply(&self, settings: &mut TransferSettings, control_rtt: Duration) {
        if !settings.adapt && settings.options.congestion != CongestionChoice::Auto {
            return;
        }
        let rtt = match self.is_path_of_control {
            true => control_rtt,
            false => Duration::ZERO,
        };
        settings.prior = self.history.prior(&self.key(self.peer), rtt);
    }

    /// Records a successful transfer to these peers. One whose streams or congestion control the client chose
    /// shows that choice, and one under a rate limit that limit: nothing follows from it. Waits a fifth of a second at most, for
    /// another process.
    pub(super) fn record(
        &self,
        settings: &TransferSettings,
        peers: &[IpAddr],
        evidence: &Evidence,
    ) {
        let is_tuned = settings.adapt
            // With the one stream of MODE S a client has shown nothing about several.
            && settings.mode == TransferMode::Extended
            && settings.options.congestion == CongestionChoice::Auto
            && settings.options.buffers.pinned_bytes().is_none()
            && settings.options.rate.is_none();
        let key = self.key(peers.first().copied().unwrap_or(self.peer));
        let one_path = peers.iter().all(|peer| self.key(*peer) == key);
        if is_tuned && one_path && evidence.role == Some(Role::Sender) {
            self.history.record(key, evidence);
        }
    }

    fn key(&self, peer: IpAddr) -> PathKey {
        PathKey::new(self.local, peer, Role::Sender)
    }
}

#[cfg(test)]
mod tests;
