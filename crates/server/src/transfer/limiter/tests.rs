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
