//! The limiter of a transfer: as the policy that watched the streams reports it, or else derived from
//! TCP_INFO and the times that threads spent waiting.

use data::job::TransferReport;
use proto::remark::{self, CompletionRemarks};
use tune::Evidence;
use tune::diagnosis::dominant_limiter;
use tune::limiter::{Limiter, Role};

/// The limiter of a transfer, known at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LimiterSummary {
    /// The limiter; `None`: unknown.
    pub(crate) limiter: Option<Limiter>,
    /// Congestion control at the end; `None`: unknown, or this end received.
    pub(crate) congestion: Option<String>,
    /// The remark that the 226 reply carries to clients that read it.
    pub(crate) client_remark: CompletionRemarks,
}

impl LimiterSummary {
    /// Name of the limiter in the server's log and metrics; `None`: unknown. "Server cap" is a client's word: for a
    /// server the other end is the client or the path.
    pub(crate) fn name(&self) -> Option<&'static str> {
        self.limiter.map(|limiter| match limiter {
            Limiter::ServerCap => "client or path",
            other => other.name(),
        })
    }

    /// The limiter of a successful transfer. After a failed one the times of streams that were waiting
    /// are incomplete, and would name the wrong limiter.
    pub(crate) fn of(report: &TransferReport) -> Self {
        let evidence = &report.evidence;
        let sends = evidence.role == Some(Role::Sender);
        let from_evidence = unless_unknown(dominant_limiter(evidence).limiter);
        let (limiter, streams) = match &evidence.verdict {
            Some(verdict) => (
                unless_unknown(verdict.limiter).or(from_evidence),
                verdict.streams,
            ),
            None => (from_evidence, streams_at_the_end(evidence)),
        };
        // The congestion control of a receiver has no effect on the transfer.
        let congestion = congestion(evidence).filter(|_| sends);
        // When this server receives, its limiter is only logged: the sender knows better what limits it. But of a rate limit
        // here it sees only a full window.
        let is_told = |limiter: &Limiter| sends || *limiter == Limiter::RateLimit;
        let verdict = limiter.filter(is_told).and_then(|limiter| {
            let congestion = congestion.as_deref().unwrap_or_default();
            remark::LimiterReport::new(limiter.name(), streams, congestion)
        });
        Self {
            limiter,
            congestion,
            client_remark: CompletionRemarks {
                limiter: verdict,
                remark: advice(report),
                ..CompletionRemarks::default()
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

/// Advice to the client: how to make the transfer faster, which settings of this host limit it, and with which known settings
/// it began.
fn advice(report: &TransferReport) -> Option<String> {
    let remedy = report
        .evidence
        .verdict
        .as_ref()
        .and_then(|v| v.remedy.as_deref());
    let remedy = remedy.map(|remedy| format!("To change that: {remedy}"));
    let parts = [remedy, report.remark.clone(), report.prior_use.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests;
