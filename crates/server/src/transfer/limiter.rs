//! Limiter of a transfer: by the policy that watched the streams, or else by the kernel's and the
//! threads' own accounts.

use data::job::Report;
use proto::remark::{self, Said};
use tune::Evidence;
use tune::judge::judge;
use tune::limiter::{Limiter, Role};

/// Limits of a transfer, known at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Limits {
    /// The limiter; `None`: the figures do not tell.
    pub(crate) limiter: Option<Limiter>,
    /// Congestion control at the end; `None`: nobody looked, or the transfer was received.
    pub(crate) congestion: Option<String>,
    /// For clients that read it.
    pub(crate) said: Said,
}

impl Limits {
    /// Those of a transfer that ended well. (Of one that broke, the accounts of streams that were
    /// waiting then are not whole, and would name whoever computed.)
    pub(crate) fn of(report: &Report) -> Self {
        let evidence = &report.evidence;
        let sends = evidence.role == Some(Role::Sender);
        let judged = known(judge(evidence).limiter);
        let (limiter, streams) = match &evidence.verdict {
            Some(verdict) => (known(verdict.limiter).or(judged), verdict.streams),
            None => (judged, streams_at_the_end(evidence)),
        };
        let congestion = congestion(evidence).filter(|_| sends);
        let verdict = limiter.filter(|_| sends).and_then(|limiter| {
            let congestion = congestion.as_deref().unwrap_or_default();
            remark::Verdict::new(limiter.name(), streams, congestion)
        });
        Self {
            limiter,
            congestion,
            said: Said {
                verdict,
                remark: words(report),
            },
        }
    }
}

fn known(limiter: Limiter) -> Option<Limiter> {
    (limiter != Limiter::Unknown).then_some(limiter)
}

fn streams_at_the_end(evidence: &Evidence) -> u32 {
    u32::try_from(evidence.streams_last).unwrap_or(u32::MAX)
}

fn congestion(evidence: &Evidence) -> Option<String> {
    let watched = evidence.verdict.as_ref().map(|v| v.congestion.clone());
    let known = watched.filter(|name| !name.is_empty());
    known.or_else(|| evidence.congestion.clone())
}

/// Advice on making it faster, and the part of this host's settings in it.
fn words(report: &Report) -> Option<String> {
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
mod tests {
    use std::time::Duration;

    use tune::streams::auto::Verdict;

    use super::*;

    fn report(evidence: Evidence) -> Report {
        Report {
            evidence: Evidence {
                bytes: 1_000_000_000,
                elapsed: seconds(10),
                streams: 2,
                streams_most: 2,
                streams_last: 2,
                congestion: Some("cubic".to_owned()),
                ..evidence
            },
            remark: Some("Raise x.".to_owned()),
            ..Report::default()
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn verdict(limiter: Limiter) -> Verdict {
        Verdict {
            limiter,
            streams: 4,
            congestion: "bbr".to_owned(),
            remedy: Some("more streams".to_owned()),
        }
    }

    /// Most of the time the peer's window was full.
    fn window() -> Evidence {
        Evidence {
            busy: seconds(10),
            rwnd_limited: seconds(6),
            ..Evidence::of(Role::Sender)
        }
    }

    #[test]
    fn the_policys_verdict_counts_and_its_remedy_is_told_before_the_remark() {
        let report = report(Evidence {
            verdict: Some(verdict(Limiter::Loss)),
            ..window()
        });
        let limits = Limits::of(&report);
        assert_eq!(limits.limiter, Some(Limiter::Loss));
        assert_eq!(limits.congestion.as_deref(), Some("bbr"));
        let told = limits.said.verdict.unwrap();
        assert_eq!(
            told.to_string(),
            "Limited by congestion window (loss), 4 streams, bbr."
        );
        assert_eq!(
            limits.said.remark.as_deref(),
            Some("To change that: more streams; Raise x.")
        );
    }

    #[test]
    fn where_the_policy_does_not_know_the_kernels_accounts_tell() {
        let report = report(Evidence {
            verdict: Some(verdict(Limiter::Unknown)),
            ..window()
        });
        let limits = Limits::of(&report);
        assert_eq!(limits.limiter, Some(Limiter::ReceiveWindow));
        assert_eq!(limits.said.verdict.unwrap().limiter(), "receive window");
    }

    #[test]
    fn without_a_policy_a_sender_judges_and_a_receiver_keeps_it_for_the_log() {
        let sent = Limits::of(&report(window()));
        assert_eq!(
            sent.said.verdict.unwrap().to_string(),
            "Limited by receive window, 2 streams, cubic."
        );
        let slow = Evidence {
            store: seconds(18),
            wire: seconds(1),
            ..Evidence::of(Role::Receiver)
        };
        let received = Limits::of(&report(slow));
        assert_eq!(received.limiter, Some(Limiter::StoreWrite));
        assert_eq!((received.said.verdict, received.congestion), (None, None));
        assert_eq!(received.said.remark.as_deref(), Some("Raise x."));
    }

    #[test]
    fn nothing_moved_is_not_told() {
        let limits = Limits::of(&Report::default());
        assert_eq!(limits, Limits::default());
    }
}
