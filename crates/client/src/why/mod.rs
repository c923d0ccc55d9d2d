//! Why a batch was as fast as it was: what limited it, and one line of plain words.
//!
//! Whoever sends knows most: what it says of its streams counts before what this end, receiving or
//! looking on, can make of its own figures.

use std::time::Duration;

use tune::Evidence;
use tune::diagnosis::{LimiterShare, dominant_limiter};
use tune::limiter::{Limiter, Role};

use crate::transfer::HostRemark;

mod line;
mod senders;

use senders::SenderVerdicts;

/// Measurements of the transfers of a batch, summed.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchEvidence {
    /// Evidence of the paths from this end, added up; of no role when all transfers were a third party's.
    pub(crate) evidence: Evidence,
    /// Account of third-party transfers.
    between: Option<ThirdPartyStats>,
    /// Account of those that sent.
    senders: SenderVerdicts,
    /// Remarks of hosts on their limits, the last word of each.
    remarks: Vec<HostRemark>,
}

/// Transfers whose bytes did not pass this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ThirdPartyStats {
    /// Moved, by the servers' word.
    pub(crate) bytes: u64,
    /// From the transfer command to the last reply, summed.
    pub(crate) elapsed: Duration,
    /// Most streams that were asked for at once.
    pub(crate) streams: u64,
    /// Markers were to be had (MODE E).
    pub(crate) markers: bool,
}

/// Limiter of a batch, and by whose word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LimiterFinding {
    /// This end's figures.
    Seen(LimiterShare),
    /// Those that sent.
    Told(Limiter),
    /// Nobody said anything, and the bytes did not pass here.
    Elsewhere,
}

impl LimiterFinding {
    /// The short answer: a limiter's name, or where it must be.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seen(judgement) => judgement.limiter.name(),
            Self::Told(limiter) => limiter.name(),
            Self::Elsewhere => "path between the servers",
        }
    }
}

impl BatchEvidence {
    /// Adds one transfer between two servers.
    pub(crate) fn add_between(&mut self, one: &ThirdPartyStats) {
        let all = self.between.get_or_insert_default();
        all.bytes += one.bytes;
        all.elapsed += one.elapsed;
        all.streams = all.streams.max(one.streams);
        all.markers |= one.markers;
    }

    /// Takes what hosts said of a transfer that took `elapsed`: the last word of each about its limits,
    /// and every verdict.
    pub(crate) fn note(&mut self, remarks: Vec<HostRemark>, elapsed: Duration) {
        for remark in remarks {
            if let Some(verdict) = &remark.verdict {
                self.senders.add(verdict, elapsed);
            }
            if remark.text.is_some() {
                self.remarks.retain(|r| r.host != remark.host);
                self.remarks.push(remark);
            }
        }
    }

    /// Adds one transfer of this end.
    pub(crate) fn add(&mut self, one: &Evidence) {
        self.evidence.add_transfer(one);
        if let (Some(Role::Sender), Some(name)) = (one.role, &one.congestion_control) {
            self.senders.ran(name.clone());
        }
    }

    /// Limiter of the transfers. `rate` is the limit of one transfer, bytes per second.
    pub(crate) fn finding(&self, rate: Option<u64>) -> LimiterFinding {
        let told = self.senders.limiter();
        let Some(role) = self.evidence.role else {
            return match (told, self.between) {
                (Some(limiter), _) => LimiterFinding::Told(limiter),
                (None, Some(_)) => LimiterFinding::Elsewhere,
                (None, None) => LimiterFinding::Seen(UNKNOWN),
            };
        };
        let seen = dominant_limiter(&Evidence {
            rate_limit: rate,
            ..self.evidence.clone()
        });
        match told {
            Some(told) if !knows_better(role, seen.limiter, told) => LimiterFinding::Told(told),
            _ => LimiterFinding::Seen(seen),
        }
    }
}

const UNKNOWN: LimiterShare = LimiterShare {
    limiter: Limiter::Unknown,
    share: 0.0,
};

/// Whether this end's figures explain more than the sender's word: they agree, or the sender was kept
/// waiting by what only this end can see.
fn knows_better(role: Role, seen: Limiter, told: Limiter) -> bool {
    if seen == told || seen == Limiter::RateLimit {
        return true;
    }
    let here = matches!(seen, Limiter::StoreWrite | Limiter::ReceiverCpu);
    role == Role::Receiver && here && told == Limiter::ReceiveWindow
}

#[cfg(test)]
mod tests;
