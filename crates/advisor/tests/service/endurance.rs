//! Trouble: clocks that jump, tests that panic, a database that is missing, servers that share one.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use advisor::clock::Clock;
use advisor::config::AdvisorConfig;
use advisor::hosts::HostSource;
use advisor::measurement::{Measurement, Quantity};
use advisor::service::Advisor;
use enable::advice::Question;

use crate::scripted::{ScriptedTest, SetClock, config, start, until};

fn client(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[tokio::test]
async fn a_wall_clock_that_jumps_back_hides_and_expires_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SetClock::new();
    let begin = async || {
        Advisor::start_with_clock(config(dir.path()), Vec::new(), clock.clone())
            .await
            .unwrap()
    };
    let report = |advisor: &Advisor, rtt: f64| {
        let measurement = Measurement {
            client: client(1),
            test: "ping".to_owned(),
            at: clock.wall(),
            values: vec![(Quantity::Rtt, rtt), (Quantity::Bandwidth, 1e9)],
            detail: None,
            cost_bytes: 0,
        };
        advisor.report(HostSource::Api, measurement).unwrap();
    };
    let advisor = begin().await;
    for _ in 0..10 {
        clock.pass(Duration::from_secs(1));
        report(&advisor, 0.1);
    }
    clock.step_wall(-365 * 86_400);
    clock.pass(Duration::from_secs(60));
    let advice = advisor.advise(client(1), &Question::default());
    assert_eq!(advice.age_seconds, Some(60.0), "ages are monotonic");
    for _ in 0..10 {
        clock.pass(Duration::from_secs(1));
        report(&advisor, 0.2);
    }
    let rtt = advisor.facts(client(1)).unwrap().rtt.unwrap();
    assert_eq!(rtt, Duration::from_millis(200));
    advisor.shutdown().await;
    let advisor = begin().await;
    let facts = advisor.facts(client(1)).unwrap();
    assert_eq!(
        facts.rtt,
        Some(rtt),
        "values of the later time do not hide the new ones"
    );
    assert_eq!(advisor.hosts().len(), 1);
    advisor.shutdown().await;
}

#[tokio::test]
async fn clients_are_purged_by_monotonic_time_alone() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SetClock::new();
    let advisor = Advisor::start_with_clock(config(dir.path()), Vec::new(), clock.clone())
        .await
        .unwrap();
    advisor.add_host(client(1), HostSource::Log).unwrap();
    clock.step_wall(10 * 365 * 86_400);
    advisor.shutdown().await;
    assert_eq!(advisor.hosts().len(), 1);
    let advisor = Advisor::start_with_clock(config(dir.path()), Vec::new(), clock.clone())
        .await
        .unwrap();
    advisor.add_host(client(2), HostSource::Log).unwrap();
    clock.pass(Duration::from_secs(31 * 86_400));
    until("purged", || advisor.hosts().is_empty()).await;
    advisor.shutdown().await;
}

#[tokio::test]
async fn a_test_that_panics_gives_its_worker_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut bad = ScriptedTest::new("ping");
    bad.panics = true;
    let good = ScriptedTest::new("bottleneck");
    good.answer(client(1), &[(Quantity::Bandwidth, 1e8)]);
    let config = AdvisorConfig {
        workers: 1,
        ..config(dir.path())
    };
    let advisor = start(config, &[&bad, &good]).await;
    advisor.add_host(client(1), HostSource::Api).unwrap();
    until("the other test ran", || advisor.facts(client(1)).is_some()).await;
    until("both ended", || advisor.counters().schedule.running == 0).await;
    assert_eq!(advisor.counters().schedule.failed, 1);
    advisor.shutdown().await;
}

#[tokio::test]
async fn without_a_database_answers_come_from_memory_and_it_is_used_when_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("state");
    std::fs::write(&blocked, "a file where the directory belongs").unwrap();
    let ping = ScriptedTest::new("ping");
    ping.answer(
        client(1),
        &[(Quantity::Rtt, 0.1), (Quantity::Bandwidth, 1e8)],
    );
    let advisor = start(config(&blocked), &[&ping]).await;
    advisor.advise(client(1), &Question::default());
    until("measured", || advisor.facts(client(1)).is_some()).await;
    assert!(!advisor.counters().store_available);
    assert!(advisor.advise(client(1), &Question::default()).confidence > 0.0);
    std::fs::remove_file(&blocked).unwrap();
    until("written", || advisor.counters().store_written >= 2).await;
    assert_eq!(advisor.counters().store_dropped, 0);
    advisor.shutdown().await;
}

#[tokio::test]
async fn servers_with_one_database_do_not_test_one_bottleneck_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = ScriptedTest::new("bottleneck");
    test.concurrency = 1;
    test.takes = Duration::from_millis(50);
    test.answer(client(1), &[(Quantity::Bandwidth, 1e8)]);
    let mut servers = Vec::new();
    for n in 1..=2 {
        let config = AdvisorConfig {
            server_name: format!("data{n}"),
            ..config(dir.path())
        };
        servers.push(start(config, &[&test]).await);
    }
    for server in &servers {
        server.add_host(client(1), HostSource::Api).unwrap();
    }
    let done = |server: &Advisor| {
        let schedule = server.counters().schedule;
        schedule.succeeded + schedule.put_off > 0
    };
    until("both tried", || servers.iter().all(done)).await;
    until("both measured", || {
        servers.iter().all(|s| s.facts(client(1)).is_some())
    })
    .await;
    assert_eq!(test.most_at_once.load(Ordering::SeqCst), 1);
    for server in servers {
        server.shutdown().await;
    }
}
