//! Questions and their answers.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use advisor::chosen_tests::ChosenTests;
use advisor::config::{AggregationConfig, AggregationName};
use advisor::hosts::HostSource;
use advisor::measurement::{Measurement, Quantity};
use advisor::service::{AdvisorEvent, RequestRefused};
use enable::advice::Question;
use jiff::Timestamp;

use crate::scripted::{ScriptedTest, config, event, start, until};

/// The paper's path from LBL to CERN: 180 ms and 45 Mbit/s.
const CERN: [(Quantity, f64); 2] = [(Quantity::Rtt, 0.18), (Quantity::Bandwidth, 45e6)];

fn client(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn reported(last: u8, values: &[(Quantity, f64)]) -> Measurement {
    Measurement {
        client: client(last),
        test: "transfer".to_owned(),
        at: Timestamp::now(),
        values: values.to_vec(),
        detail: None,
        cost_bytes: 0,
    }
}

#[tokio::test]
async fn an_unknown_host_gets_an_answer_that_says_so_and_is_tested_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let ping = ScriptedTest::new("ping");
    ping.answer(client(1), &CERN);
    let advisor = start(config(dir.path()), &[&ping]).await;
    let question = Question::default();
    let first = advisor.advise(client(1), &question);
    assert!(first.confidence == 0.0 && first.bdp_bytes.is_none());
    assert!(
        first.why.contains("test of it is scheduled"),
        "{}",
        first.why
    );
    until("measured", || advisor.facts(client(1)).is_some()).await;
    let advice = advisor.advise("::ffff:192.0.2.1".parse().unwrap(), &question);
    assert_eq!(advice.client, "192.0.2.1");
    assert_eq!(advice.bdp_bytes, Some(1_012_500), "round trip × bandwidth");
    assert!(advice.confidence > 0.0 && advice.age_seconds.is_some());
    assert!(advisor.buffer_size(client(1)).is_some());
    assert_eq!(advisor.net_info(client(1)).len(), 2);
    let counters = advisor.counters();
    assert_eq!(
        (counters.clients, counters.unknown, counters.questions),
        (1, 1, 4)
    );
    let none = advisor.advise("0.0.0.0".parse().unwrap(), &question);
    assert!(none.why.contains("no address of a host"), "{}", none.why);
    advisor.shutdown().await;
}

#[tokio::test]
async fn the_history_outlives_the_service_and_is_not_measured_again() {
    let dir = tempfile::tempdir().unwrap();
    let ping = ScriptedTest::new("ping");
    ping.route(client(1), &CERN, "10.0.0.9");
    let advisor = start(config(dir.path()), &[&ping]).await;
    advisor.add_host(client(1), HostSource::Api).unwrap();
    until("measured", || advisor.facts(client(1)).is_some()).await;
    let often = Some(Duration::from_secs(3600));
    let chosen: ChosenTests = [("ping", often)].into_iter().collect();
    advisor.set_tests(client(1), Some(chosen.clone())).unwrap();
    advisor.shutdown().await;
    let runs = ping.runs.load(Ordering::SeqCst);
    let advisor = start(config(dir.path()), &[&ping]).await;
    let advice = advisor.advise(client(1), &Question::default());
    assert_eq!(advice.bdp_bytes, Some(1_012_500));
    assert_eq!(ping.runs.load(Ordering::SeqCst), runs);
    let hosts = advisor.hosts();
    assert_eq!(hosts[0].1.source, HostSource::Api);
    assert_eq!(hosts[0].1.tests.as_deref(), Some(&chosen));
    let span = (Timestamp::MIN, Timestamp::MAX);
    let history = advisor
        .history(client(1), Quantity::Rtt, span, 100)
        .await
        .unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(advisor.details(client(1)).await.unwrap().len(), 1);
    assert!(advisor.remove_host(client(1)) && !advisor.remove_host(client(1)));
    advisor.shutdown().await;
    let advisor = start(config(dir.path()), &[&ping]).await;
    assert!(advisor.hosts().is_empty());
    advisor.shutdown().await;
}

#[tokio::test]
async fn a_quantity_that_was_never_measured_is_tested_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let ping = ScriptedTest {
        measures: &[Quantity::Rtt],
        ..ScriptedTest::new("ping")
    };
    let bottleneck = ScriptedTest {
        measures: &[Quantity::Bandwidth],
        ..ScriptedTest::new("bottleneck")
    };
    ping.answer(client(1), &CERN[..1]);
    bottleneck.answer(client(1), &CERN[1..]);
    let advisor = start(config(dir.path()), &[&ping]).await;
    advisor.add_host(client(1), HostSource::Api).unwrap();
    until("measured", || advisor.facts(client(1)).is_some()).await;
    advisor.shutdown().await;
    // The round trip is known from the run before, the bandwidth is not.
    let advisor = start(config(dir.path()), &[&ping, &bottleneck]).await;
    let bandwidth = || {
        advisor
            .facts(client(1))
            .and_then(|facts| facts.bandwidth_bps)
    };
    until("its bandwidth", || bandwidth() == Some(45_000_000)).await;
    assert_eq!(ping.runs.load(Ordering::SeqCst), 1);
    advisor.shutdown().await;
}

#[tokio::test]
async fn a_path_that_becomes_another_is_advised_after_three_tests_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let bottleneck = ScriptedTest::new("bottleneck");
    let advisor = start(config(dir.path()), &[&bottleneck]).await;
    let mut events = advisor.subscribe();
    let measure = async |bps: f64| {
        let values = [(Quantity::Rtt, 0.1), (Quantity::Bandwidth, bps)];
        bottleneck.answer(client(1), &values);
        let before = advisor.counters().schedule.succeeded;
        advisor.request_test(client(1), "bottleneck").unwrap();
        until("tested", || advisor.counters().schedule.succeeded > before).await;
        advisor.facts(client(1)).unwrap().bandwidth_bps.unwrap()
    };
    bottleneck.answer(
        client(1),
        &[(Quantity::Rtt, 0.1), (Quantity::Bandwidth, 1e8)],
    );
    advisor.add_host(client(1), HostSource::Api).unwrap();
    until("tested first", || {
        advisor.counters().schedule.succeeded == 1
    })
    .await;
    for n in 1..10 {
        measure(1e8 + f64::from(n) * 1e5).await;
    }
    // One outlier of either kind changes nothing.
    for outlier in [4e8, 25e6] {
        let known = measure(outlier).await;
        assert!((95_000_000..105_000_000).contains(&known), "{known}");
        for n in 0..10 {
            measure(1e8 + f64::from(n) * 1e5).await;
        }
    }
    for rate in [4e8, 1e8] {
        for test in 1..=3 {
            let known = measure(rate).await as f64;
            assert_eq!(known == rate, test == 3, "{known} after {test} tests");
        }
        for _ in 0..10 {
            measure(rate).await;
        }
    }
    advisor.shutdown().await;
    let mut shifts = 0;
    while let Ok(event) = events.try_recv() {
        if let AdvisorEvent::Anomaly(anomaly, _) = event
            && let tune::path::SeriesEvent::Shift { .. } = anomaly.event
        {
            shifts += 1;
        }
    }
    assert_eq!(shifts, 2, "one for each change");
}

#[tokio::test]
async fn a_shift_is_told_and_advised_after_three_reports() {
    let dir = tempfile::tempdir().unwrap();
    let advisor = start(config(dir.path()), &[]).await;
    let mut events = advisor.subscribe();
    let report = |rate: f64| {
        let values = [(Quantity::Rtt, 0.1), (Quantity::Bandwidth, rate)];
        advisor
            .report(HostSource::Log, reported(1, &values))
            .unwrap();
    };
    for n in 0..10 {
        report(100e6 + f64::from(n) * 1e5);
    }
    report(25e6);
    let before = advisor.facts(client(1)).unwrap().bandwidth_bps.unwrap();
    assert!(before > 95_000_000, "one outlier changes nothing: {before}");
    report(25e6);
    report(25e6);
    assert_eq!(
        advisor.facts(client(1)).unwrap().bandwidth_bps,
        Some(25_000_000)
    );
    let is_shift = |event: &AdvisorEvent| {
        matches!(event, AdvisorEvent::Anomaly(anomaly, _)
            if matches!(anomaly.event, tune::path::SeriesEvent::Shift { .. }))
    };
    event(&mut events, is_shift).await;
    let wrong = reported(1, &[(Quantity::Rtt, f64::NAN)]);
    assert!(advisor.report(HostSource::Api, wrong).is_err());
    advisor.shutdown().await;
}

#[tokio::test]
async fn clients_behind_one_bottleneck_share_and_the_answer_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let route = ScriptedTest::new("route");
    for last in [1, 2] {
        route.route(client(last), &CERN, "10.0.0.9");
    }
    let config = advisor::config::AdvisorConfig {
        aggregation: AggregationConfig {
            policy: AggregationName::Bottleneck,
            ..AggregationConfig::default()
        },
        ..config(dir.path())
    };
    let advisor = start(config, &[&route]).await;
    for last in [1, 2] {
        advisor.add_host(client(last), HostSource::Api).unwrap();
        until("measured", || advisor.facts(client(last)).is_some()).await;
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    advisor.request_test(client(2), "route").unwrap();
    until("both and again", || advisor.counters().measurements == 3).await;
    let advice = advisor.advise(client(1), &Question::default());
    assert_eq!(advice.measured_by.as_deref(), Some("192.0.2.2"));
    assert!(
        advice.why.contains("bottleneck router 10.0.0.9"),
        "{}",
        advice.why
    );
    assert_eq!(
        advisor.advise(client(2), &Question::default()).measured_by,
        None
    );
    advisor.shutdown().await;
}

#[tokio::test]
async fn requests_name_what_is_unknown_and_a_transfer_holds_tests_back() {
    let dir = tempfile::tempdir().unwrap();
    let (ping, missing) = (ScriptedTest::new("ping"), ScriptedTest::new("missing"));
    let advisor = start(config(dir.path()), &[&ping, &missing]).await;
    assert_eq!(
        advisor.tests(),
        ["ping"],
        "one that cannot run here is left out"
    );
    let refused = advisor.request_test(client(1), "ping");
    assert_eq!(refused, Err(RequestRefused::Unknown(client(1))));
    advisor.transfer_started(client(1));
    advisor.add_host(client(1), HostSource::Api).unwrap();
    let refused = advisor.request_test(client(1), "missing");
    assert_eq!(refused, Err(RequestRefused::Test("missing".to_owned())));
    let unknown = advisor.set_tests(client(1), Some([("missing", None)].into_iter().collect()));
    assert!(unknown.is_err());
    // The second client's test runs, the first one's waits for the transfer.
    advisor.add_host(client(2), HostSource::Api).unwrap();
    until("one ran", || ping.runs.load(Ordering::SeqCst) == 1).await;
    assert_eq!(advisor.counters().transfers, 1);
    advisor.transfer_ended(client(1));
    advisor.request_test(client(1), "ping").unwrap();
    until("both ran", || ping.runs.load(Ordering::SeqCst) == 2).await;
    advisor.shutdown().await;
}

#[tokio::test]
async fn the_shipped_tests_measure_a_real_path() {
    let dir = tempfile::tempdir().unwrap();
    let advisor = advisor::service::Advisor::start(config(dir.path()))
        .await
        .unwrap();
    if !advisor.tests().contains(&"ping".to_owned()) {
        eprintln!("SKIPPED: the_shipped_tests_measure_a_real_path: ping cannot run here");
        return;
    }
    let here = IpAddr::from([127, 0, 0, 1]);
    advisor.add_host(here, HostSource::Api).unwrap();
    let rtt = || advisor.facts(here).and_then(|facts| facts.rtt);
    until("measured", || rtt().is_some()).await;
    advisor.shutdown().await;
}
