//! The sender reports what limited it, and runs the requested congestion control.

use std::path::PathBuf;
use std::time::Duration;

use copy::{CopyOptions, CopySummary, Exit, Parallelism};
use data::options::CongestionChoice;
use serde_json::Value;
use server::config::ServerConfig;
use tune::limiter::Limiter;

use crate::faulty_server::FaultyServer;
use crate::support::{EndToEndServer, copy, options, random_bytes, rate_limited, streams};

/// Enough to be sampled while it moves.
const SIZE: usize = 24 << 20;

/// A server with a transfer log.
struct LimiterLoggedServer {
    server: EndToEndServer,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl LimiterLoggedServer {
    async fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let to = log.clone();
        let server = EndToEndServer::with(|config| {
            config.transfer_log = Some(to);
            change(config);
        })
        .await;
        server.store("f", &random_bytes(SIZE));
        Self {
            server,
            log,
            _directory: directory,
        }
    }

    /// The records of `count` file transfers.
    async fn records(&self, count: usize) -> Vec<Value> {
        for _ in 0..3_000 {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let files = lines.filter(|line: &Value| line["direction"] != "list");
            let records: Vec<Value> = files.collect();
            if records.len() >= count {
                return records;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the log has fewer than {count} records");
    }

    async fn get(&self, options: &CopyOptions) -> (CopySummary, Vec<String>) {
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("f");
        let (summary, events) = copy(&[&self.server.url("f")], to.to_str().unwrap(), options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        (summary, events.warnings())
    }
}

fn options_with_congestion_control(congestion: CongestionChoice) -> CopyOptions {
    let mut options = streams(2);
    options.streams.transfer.congestion = congestion;
    options
}

/// Whether a sender on this machine can have this limiter.
fn is_sender_limiter(limiter: &str) -> bool {
    matches!(
        Limiter::parse(limiter),
        Some(
            Limiter::StoreRead
                | Limiter::SenderCpu
                | Limiter::SendBuffer
                | Limiter::CongestionWindow
                | Limiter::Loss
                | Limiter::ReceiveWindow
        )
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_reports_the_limiter_of_the_server() {
    let logged = LimiterLoggedServer::with(|_| {}).await;
    for (n, streams) in [1, 4].into_iter().enumerate() {
        let options = options().with(|o| o.streams.parallelism = Parallelism::Fixed(streams));
        let (summary, _) = logged.get(&options).await;
        let record = logged.records(n + 1).await.pop().unwrap();
        let reported = record["limiter"].as_str().unwrap();
        assert!(is_sender_limiter(reported), "{record}");
        // When the server's receive window was full, this end may know the reason.
        let workdir = ["store write", "receiver CPU"];
        let why_full =
            reported == "receive window" && workdir.contains(&summary.limited_by.as_str());
        assert!(
            summary.limited_by == reported || why_full,
            "{record}: {summary:?}"
        );
        let control = record["congestion"].as_str().unwrap();
        assert!(summary.why.contains(&format!("({control})")), "{summary:?}");
        assert_eq!(summary.streams_max, u64::from(streams));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn between_servers_the_senders_limiter_is_reported() {
    let (from, to) = (
        LimiterLoggedServer::with(|_| {}).await,
        LimiterLoggedServer::with(|_| {}).await,
    );
    let urls = (from.server.user_url("f"), to.server.user_url("g"));
    let (summary, _) = copy(&[&urls.0], &urls.1, &streams(2)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let record = from.records(1).await.pop().unwrap();
    assert_eq!(record["limiter"], summary.limited_by);
    assert!(is_sender_limiter(&summary.limited_by), "{summary:?}");
    assert!(summary.why.contains("between the servers"), "{summary:?}");
    let received = to.records(1).await.pop().unwrap();
    assert!(received["congestion"].is_null(), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_rate_limit_is_reported_as_the_limiter() {
    let logged = LimiterLoggedServer::with(|_| {}).await;
    // Far below what a shared disk can do.
    logged.server.store("f", &random_bytes(4 << 20));
    let slow = streams(2).with(|o| o.streams.transfer = rate_limited(2 << 20));
    let (summary, _) = logged.get(&slow).await;
    assert_eq!(summary.limited_by, "rate limit", "{}", summary.why);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_servers_limiter_the_receiver_reports_its_own() {
    let bytes = random_bytes(5 << 20);
    let faulty = FaultyServer {
        size: bytes.len(),
        sent: bytes,
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let url = format!("ftp://{}/f", faulty.start());
    let to = workdir.path().join("f");
    let (summary, _) = copy(
        &[&url],
        to.to_str().unwrap(),
        &options_with_congestion_control(CongestionChoice::Auto),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(!is_sender_limiter(&summary.limited_by), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_uses_the_requested_congestion_control() {
    let logged =
        LimiterLoggedServer::with(|config| config.transfer.congestion = CongestionChoice::System)
            .await;
    let names = data::os::congestion::settable();
    for (n, name) in names.iter().enumerate() {
        let (_, warnings) = logged
            .get(&options_with_congestion_control(CongestionChoice::Named(
                name.clone(),
            )))
            .await;
        assert_eq!(warnings, Vec::<String>::new());
        let record = logged.records(n + 1).await.pop().unwrap();
        assert_eq!(record["congestion"], **name, "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_can_fix_the_congestion_control() {
    let names = data::os::congestion::settable();
    let (Some(own), Some(other)) = (names.first(), names.last()) else {
        return;
    };
    let logged = LimiterLoggedServer::with(|config| {
        config.transfer.congestion = CongestionChoice::Named(own.clone());
        config.client_congestion = false;
    })
    .await;
    let (_, warnings) = logged
        .get(&options_with_congestion_control(CongestionChoice::Auto))
        .await;
    assert_eq!(warnings, Vec::<String>::new());
    let (_, warnings) = logged
        .get(&options_with_congestion_control(CongestionChoice::Named(
            other.clone(),
        )))
        .await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--cc"), "{warnings:?}");
    for record in logged.records(2).await {
        assert_eq!(record["congestion"], **own, "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_reports_its_congestion_control() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(SIZE)).unwrap();
    for name in data::os::congestion::settable() {
        let options = options_with_congestion_control(CongestionChoice::Named(name.clone()));
        let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("g"), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        let expected = format!(
            " over 2 streams ({name}); limited by: {}",
            summary.limited_by
        );
        assert!(summary.why.contains(&expected), "{}", summary.why);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_congestion_control_fails_only_the_sender() {
    let options = options_with_congestion_control(CongestionChoice::Named("warpdrive".to_owned()));
    let logged = LimiterLoggedServer::with(|_| {}).await;
    let (_, warnings) = logged.get(&options).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--cc"), "{warnings:?}");
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(SIZE)).unwrap();
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("g"), &options).await;
    let failure = summary.first_failure.unwrap();
    assert!(
        failure.to_string().contains("this system permits"),
        "{failure}"
    );
}
