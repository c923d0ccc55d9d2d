//! Who sends says what limited it, and runs the congestion control that was asked for.

use std::path::PathBuf;
use std::time::Duration;

use client::{CopyOptions, CopySummary, Exit, Parallelism};
use data::options::CongestionChoice;
use serde_json::Value;
use server::config::ServerConfig;
use tune::limiter::Limiter;

use crate::faulty_server::FaultyServer;
use crate::support::{EndToEndServer, copy, limited, noise, options, streams};

/// Long enough to be looked at while it moves.
const SIZE: usize = 24 << 20;

/// A server and what its transfer log says.
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
        server.store("f", &noise(SIZE));
        Self {
            server,
            log,
            _directory: directory,
        }
    }

    /// The records of `count` transfers of files.
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
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("f");
        let (summary, seen) = copy(&[&self.server.url("f")], to.to_str().unwrap(), options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        (summary, seen.warnings())
    }
}

fn running(congestion: CongestionChoice) -> CopyOptions {
    let mut options = streams(2);
    options.transfer.congestion = congestion;
    options
}

/// One of the limiters that a sender on this machine can have.
fn is_a_senders(limiter: &str) -> bool {
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
async fn a_get_is_limited_by_what_the_server_says() {
    let logged = LimiterLoggedServer::with(|_| {}).await;
    for (n, streams) in [1, 4].into_iter().enumerate() {
        let options = CopyOptions {
            parallelism: Parallelism::Fixed(streams),
            ..options()
        };
        let (summary, _) = logged.get(&options).await;
        let record = logged.records(n + 1).await.pop().unwrap();
        let said = record["limiter"].as_str().unwrap();
        assert!(is_a_senders(said), "{record}");
        // Where the server's window was full, this end may know why.
        let here = ["store write", "receiver CPU"];
        let why_full = said == "receive window" && here.contains(&summary.limited_by.as_str());
        assert!(
            summary.limited_by == said || why_full,
            "{record}: {summary:?}"
        );
        let control = record["congestion"].as_str().unwrap();
        assert!(summary.why.contains(&format!("({control})")), "{summary:?}");
        assert_eq!(summary.streams_max, u64::from(streams));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn between_servers_the_sending_one_is_believed() {
    let (from, to) = (
        LimiterLoggedServer::with(|_| {}).await,
        LimiterLoggedServer::with(|_| {}).await,
    );
    let urls = (from.server.user_url("f"), to.server.user_url("g"));
    let (summary, _) = copy(&[&urls.0], &urls.1, &streams(2)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let record = from.records(1).await.pop().unwrap();
    assert_eq!(record["limiter"], summary.limited_by);
    assert!(is_a_senders(&summary.limited_by), "{summary:?}");
    assert!(summary.why.contains("between the servers"), "{summary:?}");
    let received = to.records(1).await.pop().unwrap();
    assert!(received["congestion"].is_null(), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_here_is_no_fault_of_the_server() {
    let logged = LimiterLoggedServer::with(|_| {}).await;
    // Far below what a disk that others use, too, can do.
    logged.server.store("f", &noise(4 << 20));
    let slow = CopyOptions {
        transfer: limited(2 << 20),
        ..streams(2)
    };
    let (summary, _) = logged.get(&slow).await;
    assert_eq!(summary.limited_by, "rate limit", "{}", summary.why);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_leaves_it_to_this_end() {
    let bytes = noise(5 << 20);
    let liar = FaultyServer {
        size: bytes.len(),
        sent: bytes,
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let url = format!("ftp://{}/f", liar.start());
    let to = here.path().join("f");
    let (summary, _) = copy(
        &[&url],
        to.to_str().unwrap(),
        &running(CongestionChoice::Auto),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(!is_a_senders(&summary.limited_by), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_sends_with_what_the_client_names() {
    let logged =
        LimiterLoggedServer::with(|config| config.transfer.congestion = CongestionChoice::System)
            .await;
    let names = data::os::congestion::settable();
    for (n, name) in names.iter().enumerate() {
        let (_, warnings) = logged
            .get(&running(CongestionChoice::Named(name.clone())))
            .await;
        assert_eq!(warnings, Vec::<String>::new());
        let record = logged.records(n + 1).await.pop().unwrap();
        assert_eq!(record["congestion"], **name, "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_keeps_the_congestion_control_to_himself() {
    let names = data::os::congestion::settable();
    let (Some(own), Some(other)) = (names.first(), names.last()) else {
        return;
    };
    let logged = LimiterLoggedServer::with(|config| {
        config.transfer.congestion = CongestionChoice::Named(own.clone());
        config.client_congestion = false;
    })
    .await;
    let (_, warnings) = logged.get(&running(CongestionChoice::Auto)).await;
    assert_eq!(warnings, Vec::<String>::new());
    let (_, warnings) = logged
        .get(&running(CongestionChoice::Named(other.clone())))
        .await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--cc"), "{warnings:?}");
    for record in logged.records(2).await {
        assert_eq!(record["congestion"], **own, "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_tells_what_it_was_sent_with() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, noise(SIZE)).unwrap();
    for name in data::os::congestion::settable() {
        let options = running(CongestionChoice::Named(name.clone()));
        let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("g"), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        let told = format!(
            " over 2 streams ({name}); limited by: {}",
            summary.limited_by
        );
        assert!(summary.why.contains(&told), "{}", summary.why);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nobody_has_is_an_error_only_for_who_sends() {
    let options = running(CongestionChoice::Named("warpdrive".to_owned()));
    let logged = LimiterLoggedServer::with(|_| {}).await;
    let (_, warnings) = logged.get(&options).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--cc"), "{warnings:?}");
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, noise(SIZE)).unwrap();
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("g"), &options).await;
    let failure = summary.first_failure.unwrap();
    assert!(failure.message.contains("this system permits"), "{failure}");
}
