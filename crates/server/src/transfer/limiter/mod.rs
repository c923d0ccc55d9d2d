//! Limiter of a transfer: by the policy that watched the streams, or else by the kernel's and the
//! threads' own accounts.

use data::job::TransferReport;
use proto::remark::{self, CompletionRemarks};
use tune::Evidence;
use tune::diagnosis::dominant_limiter;
use tune::limiter::{Limiter, Role};

/// Limits of a transfer, known at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LimiterSummary {
    /// The limiter; `None`: the figures do not tell.
    pub(crate) limiter: Option<Limiter>,
    /// Congestion control at the end; `None`: nobody looked, or the transfer was received.
    pub(crate) congestion: Option<String>,
    /// For clients that read it.
    pub(crate) client_remark: CompletionRemarks,
}

impl LimiterSummary {
    /// Those of a transfer that ended well. (Of one that broke, the accounts of streams that were
    /// waiting then are not whole, and would name whoever computed.)
    pub(crate) fn of(report: &TransferReport) -> Self {
        let evidence = &report.evidence;
        let sends = evidence.role == Some(Role::Sender);
        let judged = unless_unknown(dominant_limiter(evidence).limiter);
        let (limiter, streams) = match &evidence.verdict {
            Some(verdict) => (unless_unknown(verdict.limiter).or(judged), verdict.streams),
            None => (judged, streams_at_the_end(evidence)),
        };
        let congestion = congestion(evidence).filter(|_| sends);
        let verdict = limiter.filter(|_| sends).and_then(|limiter| {
            let congestion = congestion.as_deref().unwrap_or_default();
            remark::LimiterReport::new(limiter.name(), streams, congestion)
        });
        Self {
            limiter,
            congestion,
            client_remark: CompletionRemarks {
                limiter: verdict,
                remark: advice(report),
            },
        }
    }
}

fn unless_unknown(limiter: Limiter) -> Option<Limiter> {
    (limiter != Limiter::Unknown).then_some(limiter)
}

fn streams_at_the_end(evidence: &Evidence) -> u32 {
    u32::try_from(evidence.final_streams).unwrap_or(u32::MAX)
}

fn congestion(evidence: &Evidence) -> Option<String> {
    let watched = evidence
        .verdict
        .as_ref()
        .map(|v| v.congestion_control.clone());
    let known = watched.filter(|name| !name.is_empty());
    known.or_else(|| evidence.congestion_control.clone())
}

/// Advice on making it faster, and the part of this host's settings in it.
fn advice(report: &TransferReport) -> Option<String> {
    let remedy = report
        .evidence
        .verdict
        .as_ref()
        .and_then(|v| v.remedy.as_deref());
    let remedy = remedy.map(|remedy| format!("To change that: {remedy}"));
    match (remedy, &report.remark) {
        (Some(remedy), Some(remark)) => Some(format!("{remedy}; {remark}")),
        (remedy, remark) => remedy.or_else(|| remark.clone()),
    }
}

#[cfg(test)]
mod tests;
