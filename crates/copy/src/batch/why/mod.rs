//! The limiter of a batch, and one line that explains it in plain words.
//!
//! The sender of the data knows most: its report counts before the figures of a receiver or of an
//! observer.

use std::time::Duration;

use tune::Evidence;
use tune::diagnosis::{LimiterShare, dominant_limiter};
use tune::limiter::{Limiter, Role};

use ftp::transfer::HostRemark;

mod line;
mod senders;

use senders::SenderVerdicts;

/// Measurements of the transfers of a batch, added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchEvidence {
    /// Evidence from this end, added up. It has no role if all transfers were third-party
    /// transfers.
    pub(crate) own_evidence: Evidence,
    /// Third-party transfers, added up.
    third_party: Option<ThirdPartyStats>,
    /// Reports of the sending ends.
    senders: SenderVerdicts,
    /// Remarks of hosts on their limits, the last one of each.
    remarks: Vec<HostRemark>,
}

/// Statistics of transfers whose bytes did not pass through this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ThirdPartyStats {
    /// Bytes moved according to the servers.
    pub(crate) bytes: u64,
    /// Time from the transfer command to the last reply, added up.
    pub(crate) elapsed: Duration,
    /// Most streams requested at once.
    pub(crate) streams: u64,
    /// Markers were available (MODE E).
    pub(crate) markers: bool,
}

/// Limiter of a batch, with the origin of the information.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LimiterFinding {
    /// Derived from this end's measurements.
    Measured(LimiterShare),
    /// Reported by the sending ends.
    Reported(Limiter),
    /// Nothing was reported, and the bytes did not pass through this machine.
    BetweenServers,
}

impl LimiterFinding {
    /// Name of the limiter, or all places where the limit may be.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Measured(share) => share.limiter.name(),
            Self::Reported(limiter) => limiter.name(),
            Self::BetweenServers => "servers or path between them",
        }
    }
}

impl BatchEvidence {
    /// Adds one transfer between two servers.
    pub(crate) fn add_third_party(&mut self, transfer: &ThirdPartyStats) {
        let total = self.third_party.get_or_insert_default();
        total.bytes += transfer.bytes;
        total.elapsed += transfer.elapsed;
        total.streams = total.streams.max(transfer.streams);
        total.markers |= transfer.markers;
    }

    /// Adds the remarks of hosts on a transfer that took `elapsed`: the last text of each host, and
    /// every limiter report.
    pub(crate) fn add_remarks(&mut self, remarks: Vec<HostRemark>, elapsed: Duration) {
        for remark in remarks {
            if let Some(verdict) = &remark.verdict {
                self.senders.add(verdict, elapsed);
            }
            if remark.text.is_some() {
                // A host repeats its remark after every transfer; the last one is current.
                self.remarks.retain(|r| r.host != remark.host);
                self.remarks.push(remark);
            }
        }
    }

    /// Adds one transfer of this end.
    pub(crate) fn add_transfer(&mut self, transfer: &Evidence) {
        self.own_evidence.add_transfer(transfer);
        if let (Some(Role::Sender), Some(name)) = (transfer.role, &transfer.congestion_control) {
            self.senders.set_congestion(name.clone());
        }
    }

    /// Limiter of the transfers.
    pub(crate) fn limiter_finding(&self) -> LimiterFinding {
        let reported = self.senders.limiter();
        // No role: this end moved no bytes itself.
        let Some(role) = self.own_evidence.role else {
            return match (reported, self.third_party) {
                (Some(limiter), _) => LimiterFinding::Reported(limiter),
                (None, Some(_)) => LimiterFinding::BetweenServers,
                (None, None) => LimiterFinding::Measured(UNKNOWN),
            };
        };
        let own = dominant_limiter(&self.own_evidence);
        match reported {
            Some(reported) if !own_figures_explain_more(role, own.limiter, reported) => {
                LimiterFinding::Reported(reported)
            }
            _ => LimiterFinding::Measured(own),
        }
    }
}

const UNKNOWN: LimiterShare = LimiterShare {
    limiter: Limiter::Unknown,
    share: 0.0,
};

/// Whether this end's figures explain more than the sender's report: both agree, or the sender
/// waited for something that only this end can observe.
fn own_figures_explain_more(role: Role, own: Limiter, reported: Limiter) -> bool {
    // The rate limiter of this end explains any waiting of the sender.
    if own == reported || own == Limiter::RateLimit {
        return true;
    }
    // A slow receiver fills its window, so the sender sees only the receive window.
    let local_limiter = matches!(own, Limiter::StoreWrite | Limiter::ReceiverCpu);
    role == Role::Receiver && local_limiter && reported == Limiter::ReceiveWindow
}

#[cfg(test)]
mod tests;
