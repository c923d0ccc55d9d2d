//! A transfer begins with what earlier ones taught about its path.

use std::net::IpAddr;
use std::time::Duration;

use copy::{CopyOptions, CopySummary, Exit};
use data::options::CongestionChoice;
use data::rate::RateLimit;
use history::{HistoryLocation, PathHistory, PathKey};
use tune::Evidence;
use tune::limiter::{Limiter, Role};
use tune::streams::auto::LimiterVerdict;

use crate::support::{EndToEndServer, copy, options, random_bytes, rate_limited};

/// Slow enough for all streams to start before the end: a second.
const SIZE: usize = 12 << 20;
const RATE: u64 = 12_000_000;

/// A server and a client with memories of their own.
struct RememberingEnds {
    server: EndToEndServer,
    server_history: PathHistory,
    client_history: PathHistory,
    directory: tempfile::TempDir,
}

impl RememberingEnds {
    async fn start() -> Self {
        Self::with_server_rate(None).await
    }

    /// The server has this rate limit.
    async fn with_server_rate(rate: Option<RateLimit>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).join("paths.json");
        let server_history = PathHistory::at(at("server"));
        let file = server_history.file().to_owned();
        let server = EndToEndServer::with(|config| {
            config.history = HistoryLocation::File(file);
            config.transfer.rate = rate;
        })
        .await;
        server.store("f", &random_bytes(SIZE));
        Self {
            server,
            server_history,
            client_history: PathHistory::at(at("client")),
            directory,
        }
    }

    fn options(&self) -> CopyOptions {
        let mut options = options().with(|o| {
            o.history = Some(self.client_history.clone());
            o.streams.transfer = rate_limited(RATE);
        });
        options.streams.transfer.congestion = CongestionChoice::Auto;
        options
    }

    async fn get(&self, options: &CopyOptions) -> CopySummary {
        let to = self.directory.path().join("got");
        let url = self.server.url("f");
        let (summary, _) = copy(&[&url], to.to_str().unwrap(), options).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        summary
    }

    async fn put(&self, options: &CopyOptions) -> CopySummary {
        let from = self.directory.path().join("source");
        std::fs::write(&from, random_bytes(SIZE)).unwrap();
        let url = self.server.url("put");
        let (summary, _) = copy(&[from.to_str().unwrap()], &url, options).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert_eq!(self.server.read("put"), random_bytes(SIZE));
        summary
    }
}

/// The path over the loopback interface.
fn loopback(role: Role) -> PathKey {
    let here = IpAddr::from([127, 0, 0, 1]);
    PathKey::new(here, here, role)
}

/// Evidence of a transfer that ended with 5 streams, with this round trip.
fn five_streams(role: Role, min_rtt: Duration) -> Evidence {
    Evidence {
        bytes: 1 << 30,
        elapsed: Duration::from_secs(60),
        min_rtt,
        streams: 5,
        peak_streams: 5,
        final_streams: 5,
        verdict: Some(LimiterVerdict {
            limiter: Limiter::StoreRead,
            streams: 5,
            congestion_control: "cubic".to_owned(),
            remedy: None,
        }),
        ..Evidence::for_role(role)
    }
}

/// Less than any round trip with which a loopback path differs.
const SHORT: Duration = Duration::from_micros(50);

#[tokio::test]
async fn a_get_asks_for_the_streams_of_the_last_one() {
    let ends = RememberingEnds::start().await;
    let first = ends.get(&ends.options()).await;
    assert!(!first.why.contains("earlier"), "{}", first.why);
    ends.client_history.record(
        loopback(Role::Receiver),
        &five_streams(Role::Receiver, SHORT),
    );
    let second = ends.get(&ends.options()).await;
    assert_eq!(second.streams_max, 5, "{}", second.why);
    let said = "it asked for 5 streams, as an earlier transfer had ended";
    assert!(second.why.contains(said), "{}", second.why);
}

#[tokio::test]
async fn a_put_begins_with_the_streams_of_the_last_one() {
    let ends = RememberingEnds::start().await;
    ends.client_history
        .record(loopback(Role::Sender), &five_streams(Role::Sender, SHORT));
    let summary = ends.put(&ends.options()).await;
    assert!(summary.streams_max >= 5, "{}", summary.why);
    let said = "it began with 5 streams, by what was known of the path";
    assert!(summary.why.contains(said), "{}", summary.why);
}

#[tokio::test]
async fn a_server_begins_with_the_streams_of_its_last_transfer_to_the_client() {
    // The server's, because the line leaves out what a server says of a limit that this end has.
    let ends = RememberingEnds::with_server_rate(Some(RateLimit::new(RATE))).await;
    ends.server_history
        .record(loopback(Role::Sender), &five_streams(Role::Sender, SHORT));
    // The client asks for two streams at first and permits more.
    let two = Evidence {
        final_streams: 2,
        ..five_streams(Role::Receiver, SHORT)
    };
    ends.client_history.record(loopback(Role::Receiver), &two);
    let mut unlimited = ends.options();
    unlimited.streams.transfer.rate = None;
    let summary = ends.get(&unlimited).await;
    assert_eq!(summary.streams_max, 5, "{}", summary.why);
    let said = "it began with 5 streams, by what was known of the path";
    assert!(summary.why.contains(said), "{}", summary.why);
}

#[tokio::test]
async fn a_transfer_that_lasts_is_recorded_and_the_next_begins_as_it_ended() {
    let ends = RememberingEnds::start().await;
    ends.client_history.record(
        loopback(Role::Receiver),
        &five_streams(Role::Receiver, SHORT),
    );
    let text = || std::fs::read_to_string(ends.client_history.file()).unwrap();
    let recorded = format!("\"bytes\": {SIZE},");
    // A limit of the client's own shows nothing about the path.
    let limited = ends
        .options()
        .with(|o| o.streams.transfer = rate_limited(RATE / 3));
    ends.get(&limited).await;
    assert!(!text().contains(&recorded), "{}", text());
    let server = EndToEndServer::with(|config| {
        config.transfer.rate = Some(RateLimit::new(RATE / 3));
    })
    .await;
    server.store("f", &random_bytes(SIZE));
    let ends = RememberingEnds { server, ..ends };
    let mut unlimited = ends.options();
    unlimited.streams.transfer.rate = None;
    let summary = ends.get(&unlimited).await;
    assert_eq!(summary.streams_max, 5, "{}", summary.why);
    let text = std::fs::read_to_string(ends.client_history.file()).unwrap();
    assert!(text.contains(&recorded), "{text}");
    assert_eq!(ends.get(&ends.options()).await.streams_max, 5);
}

#[tokio::test]
async fn flags_win_over_memory_and_no_history_reads_and_writes_nothing() {
    let ends = RememberingEnds::start().await;
    for role in [Role::Sender, Role::Receiver] {
        let evidence = five_streams(role, SHORT);
        ends.client_history.record(loopback(role), &evidence);
    }
    let fixed = ends
        .options()
        .with(|o| o.streams.parallelism = copy::Parallelism::Fixed(2));
    assert_eq!(ends.get(&fixed).await.streams_max, 2);
    assert_eq!(ends.put(&fixed).await.streams_max, 2);
    let before = std::fs::read(ends.client_history.file()).unwrap();
    let without = ends.options().with(|o| o.history = None);
    let summary = ends.put(&without).await;
    assert!(!summary.why.contains("earlier"), "{}", summary.why);
    assert_eq!(std::fs::read(ends.client_history.file()).unwrap(), before);
}

#[tokio::test]
async fn a_path_that_has_become_another_begins_as_one_that_is_unknown() {
    let ends = RememberingEnds::start().await;
    let long = Duration::from_millis(80);
    for role in [Role::Sender, Role::Receiver] {
        let evidence = five_streams(role, long);
        ends.client_history.record(loopback(role), &evidence);
    }
    let got = ends.get(&ends.options()).await;
    let put = ends.put(&ends.options()).await;
    for summary in [got, put] {
        assert!(!summary.why.contains("earlier"), "{}", summary.why);
        assert!(summary.streams_max < 5, "{}", summary.why);
    }
}
