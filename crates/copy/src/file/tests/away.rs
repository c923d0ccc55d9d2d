//! Servers that are away for a time: their machine restarts, say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::options::TransferOptions;
use data::rate::RateLimit;
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use super::LENGTH;
use crate::events::{CopyEvent, CopyObserver};
use crate::options::CopyOptions;
use crate::run::tests::options;
use crate::storage::conformance::content;
use crate::storage::webdav::WebDavServer;
use ftp::Exit;

/// Passes connections on to a server, as long as it is not taken down.
struct Forwarder {
    address: SocketAddr,
    server: SocketAddr,
    running: JoinHandle<()>,
}

impl Forwarder {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            server,
            running: tokio::spawn(forward(listener, server)),
        }
    }

    /// Ends all connections; nobody listens any more.
    async fn take_down(&mut self) {
        self.running.abort();
        let _ = (&mut self.running).await;
    }

    async fn bring_back(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.running = tokio::spawn(forward(listener, self.server));
    }
}

async fn forward(listener: TcpListener, server: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut server = TcpStream::connect(server).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

/// Options with which one file moves at a time, slowly enough to be interrupted.
fn slow(patience: Duration) -> CopyOptions {
    options().with(|o| {
        o.retry.patience = patience;
        o.retry.retries = 3;
        o.tree.recursive = true;
        o.concurrency = Some(1);
        o.streams.transfer = TransferOptions {
            rate: Some(RateLimit::new(LENGTH as u64)),
            ..options().streams.transfer
        };
    })
}

/// Keeps events.
#[derive(Default)]
struct EventLog {
    events: Mutex<Vec<CopyEvent>>,
    changed: Notify,
}

impl CopyObserver for EventLog {
    fn on_event(&self, event: CopyEvent) {
        self.events.lock().push(event);
        self.changed.notify_one();
    }
}

impl EventLog {
    fn count(&self, wanted: impl Fn(&CopyEvent) -> bool) -> usize {
        let events = self.events.lock();
        events.iter().filter(|event| wanted(event)).count()
    }

    async fn wait_for(&self, wanted: impl Fn(&CopyEvent) -> bool) {
        while self.count(&wanted) == 0 {
            self.changed.notified().await;
        }
    }
}

fn address_of(server: &WebDavServer) -> SocketAddr {
    let url = server.url("/");
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    address.parse().unwrap()
}

fn is_away(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Retrying { away: Some(_), .. })
}

fn is_moving(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Progress(progress) if progress.bytes > 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_gives_the_rest_of_the_file() {
    let (server, bytes) = (WebDavServer::start(), content(9, LENGTH));
    server.put("/f", &bytes);
    let mut forwarder = Forwarder::start(address_of(&server)).await;
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("f");
    let events = Arc::new(EventLog::default());
    let options = slow(Duration::from_secs(600));
    let sources = [format!("http://{}/f", forwarder.address)];
    let copying = crate::copy(&sources, to.to_str().unwrap(), &options, events.clone());
    let restarting = async {
        events.wait_for(is_moving).await;
        forwarder.take_down().await;
        events.wait_for(is_away).await;
        forwarder.bring_back().await;
    };
    let (summary, ()) = tokio::join!(copying, restarting);
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_given_up_once_for_all_files() {
    let server = WebDavServer::start();
    for n in 0..20 {
        server.put(&format!("/f{n}"), &content(n, LENGTH));
    }
    let mut forwarder = Forwarder::start(address_of(&server)).await;
    let dir = tempfile::tempdir().unwrap();
    let events = Arc::new(EventLog::default());
    let patience = Duration::from_secs(2);
    let options = slow(patience);
    let sources = (0..20).map(|n| format!("http://{}/f{n}", forwarder.address));
    let sources: Vec<String> = sources.collect();
    let to = dir.path();
    let copying = crate::copy(&sources, to.to_str().unwrap(), &options, events.clone());
    let ending = async {
        events.wait_for(is_moving).await;
        forwarder.take_down().await;
        let taken_down = Instant::now();
        events.wait_for(is_away).await;
        taken_down
    };
    let (summary, taken_down) = tokio::join!(copying, ending);
    assert!(taken_down.elapsed() >= patience);
    assert_eq!(summary.exit, Exit::Unreachable, "{summary:?}");
    assert_eq!(summary.failed, 20);
    let (_, alike) = summary.most_failed_for.unwrap();
    assert!(alike >= 19, "{alike}");
    // Each of the others would have waited as long.
    let waits = events.count(is_away);
    assert!(waits < 10, "{waits}");
    assert!(summary.safe.is_some_and(|safe| safe.bytes > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_never_reached_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    for scheme in ["ftp", "http"] {
        let events = Arc::new(EventLog::default());
        let to = dir.path().join("f");
        let sources = [format!("{scheme}://{address}/f")];
        let options = slow(Duration::from_secs(600));
        let summary = crate::copy(&sources, to.to_str().unwrap(), &options, events.clone()).await;
        assert_eq!(summary.exit, Exit::Unreachable, "{summary:?}");
        let retries = events.count(|event| matches!(event, CopyEvent::Retrying { .. }));
        assert_eq!(retries, 0, "{scheme}");
    }
}
