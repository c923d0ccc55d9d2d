use super::*;
use crate::limiter::{LimiterVerdict, Role};
use proptest::prelude::*;

const NOW: Duration = Duration::ZERO;

/// 1 GB over 1 Gbit/s, 100 ms and 1 % loss.
fn lossy() -> Evidence {
    Evidence {
        bytes: 1_000_000_000,
        elapsed: Duration::from_secs(10),
        streams: 8,
        peak_streams: 8,
        final_streams: 6,
        retransmits: 7_000,
        min_rtt: Duration::from_millis(100),
        congestion_control: Some("bbr".to_owned()),
        verdict: Some(LimiterVerdict {
            limiter: Limiter::Loss,
            streams: 6,
            congestion_control: "bbr".to_owned(),
            remedy: None,
        }),
        ..Evidence::for_role(Role::Sender)
    }
}

fn rate(bytes_per_second: u64, is_full: bool) -> PathRate {
    PathRate {
        bytes_per_second,
        is_full,
    }
}

#[test]
fn the_next_transfer_begins_with_what_the_last_one_ended_with() {
    let prior = prior_from_evidence(&lossy(), NOW);
    let expected = Prior {
        streams: Some(6),
        congestion_control: Some("bbr".to_owned()),
        path_rate: Some(rate(100_000_000, true)),
        min_rtt: Some(Duration::from_millis(100)),
        ..Prior::default()
    };
    assert_eq!(prior, expected);
    let many = Evidence {
        final_streams: 32,
        congestion_control: Some("cubic".to_owned()),
        verdict: lossy().verdict.map(|verdict| LimiterVerdict {
            congestion_control: "cubic".to_owned(),
            ..verdict
        }),
        ..lossy()
    };
    let prior = prior_from_evidence(&many, NOW);
    assert_eq!((prior.streams, prior.congestion_control), (Some(32), None));
}

#[test]
fn a_short_or_old_transfer_teaches_little() {
    let short = Evidence {
        elapsed: Duration::from_millis(1900),
        ..lossy()
    };
    let path_only = Prior {
        path_rate: Some(rate(526_315_789, false)),
        min_rtt: Some(Duration::from_millis(100)),
        ..Prior::default()
    };
    assert_eq!(prior_from_evidence(&short, NOW), path_only);
    let old = prior_from_evidence(&lossy(), EVIDENCE_EXPIRES_AFTER + Duration::from_secs(1));
    assert_eq!(old, Prior::default());
    assert_eq!(
        prior_from_evidence(&Evidence::default(), NOW),
        Prior::default()
    );
}

#[test]
fn a_pacing_rate_is_kept_for_an_hour() {
    let paced = Evidence {
        pacing_rate: Some(1000),
        ..lossy()
    };
    let pace = |age| prior_from_evidence(&paced, age).pacing_rate;
    assert_eq!(pace(PACE_EXPIRES_AFTER), Some(1000));
    assert_eq!(pace(PACE_EXPIRES_AFTER * 2), None);
}

#[test]
fn the_rate_of_a_disk_or_of_a_limit_is_not_that_of_the_path() {
    for limiter in Limiter::ALL {
        let mut evidence = lossy();
        evidence.verdict.as_mut().unwrap().limiter = limiter;
        let is_path = matches!(
            limiter,
            Limiter::SendBuffer
                | Limiter::Link
                | Limiter::CongestionWindow
                | Limiter::Loss
                | Limiter::ReceiveWindow
                | Limiter::ServerCap
        );
        let prior = prior_from_evidence(&evidence, NOW);
        assert_eq!(prior.path_rate.is_some(), is_path, "{limiter}");
    }
}

proptest! {
    #[test]
    fn any_evidence_gives_a_bounded_prior(
        numbers in any::<[u64; 5]>(),
        times in any::<[u64; 2]>(),
        pacing_rate in any::<Option<u64>>(),
        age in any::<u64>(),
    ) {
        let [bytes, streams, peak_streams, final_streams, retransmits] = numbers;
        let evidence = Evidence {
            bytes,
            streams,
            peak_streams,
            final_streams,
            retransmits,
            elapsed: Duration::from_nanos(times[0]),
            min_rtt: Duration::from_secs(times[1]),
            pacing_rate,
            congestion_control: Some("bbr".to_owned()),
            ..lossy()
        };
        let prior = prior_from_evidence(&evidence, Duration::from_secs(age % 1_000_000));
        prop_assert!(prior.streams.is_none_or(|streams| (1..=MAX_STREAMS).contains(&streams)));
        for rate in [prior.pacing_rate, prior.path_rate.map(|rate| rate.bytes_per_second)]
            .into_iter()
            .flatten() {
            prop_assert!((1..=LARGEST_RATE).contains(&rate));
        }
    }
}
