use std::time::Duration;

use tune::streams::auto::LimiterVerdict;

use super::*;

fn report(evidence: Evidence) -> TransferReport {
    TransferReport {
        evidence: Evidence {
            bytes: 1_000_000_000,
            elapsed: seconds(10),
            streams: 2,
            peak_streams: 2,
            final_streams: 2,
            congestion_control: Some("cubic".to_owned()),
            ..evidence
        },
        remark: Some("Raise x.".to_owned()),
        ..TransferReport::default()
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn verdict(limiter: Limiter) -> LimiterVerdict {
    LimiterVerdict {
        limiter,
        streams: 4,
        congestion_control: "bbr".to_owned(),
        remedy: Some("more streams".to_owned()),
    }
}

/// Evidence of a sender that was limited by the peer's window most of the time.
fn window() -> Evidence {
    Evidence {
        busy_time: seconds(10),
        rwnd_limited: seconds(6),
        ..Evidence::for_role(Role::Sender)
    }
}

#[test]
fn the_policys_verdict_takes_precedence_and_its_remedy_comes_before_the_remark() {
    let report = report(Evidence {
        verdict: Some(verdict(Limiter::Loss)),
        ..window()
    });
    let limits = LimiterSummary::of(&report);
    assert_eq!(limits.limiter, Some(Limiter::Loss));
    assert_eq!(limits.congestion.as_deref(), Some("bbr"));
    let report = limits.client_remark.limiter.unwrap();
    assert_eq!(
        report.to_string(),
        "Limited by congestion window (loss), 4 streams, bbr."
    );
    assert_eq!(
        limits.client_remark.remark.as_deref(),
        Some("To change that: more streams; Raise x.")
    );
}

#[test]
fn without_a_verdict_the_limiter_is_derived_from_tcp_info() {
    let report = report(Evidence {
        verdict: Some(verdict(Limiter::Unknown)),
        ..window()
    });
    let limits = LimiterSummary::of(&report);
    assert_eq!(limits.limiter, Some(Limiter::ReceiveWindow));
    assert_eq!(
        limits.client_remark.limiter.unwrap().limiter(),
        "receive window"
    );
}

#[test]
fn without_a_policy_only_a_sender_reports_the_limiter_to_the_client() {
    let sent = LimiterSummary::of(&report(window()));
    assert_eq!(
        sent.client_remark.limiter.unwrap().to_string(),
        "Limited by receive window, 2 streams, cubic."
    );
    let slow = Evidence {
        store_time: seconds(18),
        wire_time: seconds(1),
        ..Evidence::for_role(Role::Receiver)
    };
    let received = LimiterSummary::of(&report(slow));
    assert_eq!(received.limiter, Some(Limiter::StoreWrite));
    assert_eq!(
        (received.client_remark.limiter, received.congestion),
        (None, None)
    );
    assert_eq!(received.client_remark.remark.as_deref(), Some("Raise x."));
}

#[test]
fn a_receiver_reports_its_rate_limit_which_the_sender_cannot_see() {
    let held = Evidence {
        throttle_time: seconds(18),
        wire_time: seconds(1),
        ..Evidence::for_role(Role::Receiver)
    };
    let received = LimiterSummary::of(&report(held));
    assert_eq!(received.limiter, Some(Limiter::RateLimit));
    let told = received.client_remark.limiter.unwrap();
    assert_eq!(told.limiter(), "rate limit");
}

#[test]
fn an_empty_transfer_has_no_limiter() {
    let limits = LimiterSummary::of(&TransferReport::default());
    assert_eq!(limits, LimiterSummary::default());
}

#[test]
fn a_servers_log_does_not_name_the_server_cap() {
    let name = |limiter| {
        let summary = LimiterSummary {
            limiter,
            ..LimiterSummary::default()
        };
        summary.name()
    };
    assert_eq!(name(Some(Limiter::ServerCap)), Some("client or path"));
    assert_eq!(name(Some(Limiter::StoreWrite)), Some("store write"));
    assert_eq!(name(None), None);
}
