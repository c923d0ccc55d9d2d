//! A service with an HTTP server, and requests byte by byte.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use advisor::config::{AdvisorConfig, StoreUrl};
use advisor::hosts::HostSource;
use advisor::http::{HttpServer, ServerLimits, serve_on};
use advisor::measurement::{Measurement, Quantity};
use advisor::path_test::{
    HeldBackBy, PathTest, Target, TestFailure, TestProfile, Unavailable, Weight,
};
use advisor::service::Advisor;
use async_trait::async_trait;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The token of the server.
pub(crate) const TOKEN: &str = "a-token-of-this-test";

/// Longest wait for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A test that counts its runs and never has a result.
struct SilentTest(Arc<AtomicUsize>);

#[async_trait]
impl PathTest for SilentTest {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: "ping",
            weight: Weight::Light,
            concurrency: 10,
            fills_path: false,
            interval: Duration::from_secs(3600),
            held_back_by: HeldBackBy::Nothing,
            measures: &[],
        }
    }

    fn most_bytes(&self, _: &Target) -> u64 {
        1000
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        Ok(())
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(TestFailure::NoAnswer {
            test: "ping".to_owned(),
            client: target.client,
            waited: Duration::ZERO,
        })
    }
}

/// A running service. It ends when this is dropped.
pub(crate) struct TestService {
    pub(crate) advisor: Advisor,
    pub(crate) address: SocketAddr,
    /// Runs of the only test.
    pub(crate) runs: Arc<AtomicUsize>,
    /// Time of the next measurement: no two have the same one.
    next: AtomicI64,
    server: Option<HttpServer>,
    runtime: Runtime,
    _directory: tempfile::TempDir,
}

impl TestService {
    pub(crate) fn start() -> Self {
        Self::with(ServerLimits::default(), |_| {})
    }

    pub(crate) fn with(limits: ServerLimits, settings: impl FnOnce(&mut AdvisorConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = AdvisorConfig {
            store: StoreUrl::Sqlite(directory.path().join("paths.sqlite")),
            token_file: Some(token_file(directory.path())),
            ..AdvisorConfig::default()
        };
        settings(&mut config);
        let runs = Arc::new(AtomicUsize::new(0));
        let test = Box::new(SilentTest(Arc::clone(&runs)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (advisor, server) = runtime.block_on(async {
            let advisor = Advisor::start_with_tests(config, vec![test]).await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = serve_on(&advisor, listener, limits).unwrap();
            (advisor, server)
        });
        Self {
            advisor,
            address: server.address(),
            runs,
            next: AtomicI64::new(Timestamp::now().as_millisecond() - 10_000),
            server: Some(server),
            runtime,
            _directory: directory,
        }
    }

    /// Reports a path of so many milliseconds and Mbit/s.
    pub(crate) fn measured(&self, client: &str, milliseconds: f64, megabits: f64) {
        let measurement = Measurement {
            client: client.parse::<IpAddr>().unwrap(),
            test: "ping".to_owned(),
            at: Timestamp::from_millisecond(self.next.fetch_add(1, Ordering::SeqCst)).unwrap(),
            values: vec![
                (Quantity::Rtt, milliseconds / 1000.0),
                (Quantity::Bandwidth, megabits * 1e6),
            ],
            detail: None,
            cost_bytes: 0,
        };
        self.advisor.report(HostSource::Log, measurement).unwrap();
    }

    /// Stops the HTTP server; returns the time that it took.
    pub(crate) fn stop_http(&mut self) -> Duration {
        let started = Instant::now();
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
        started.elapsed()
    }

    /// Starts the HTTP server again, at the same address.
    pub(crate) fn start_http(&mut self) {
        let server = self.runtime.block_on(async {
            let listener = TcpListener::bind(self.address).await.unwrap();
            serve_on(&self.advisor, listener, ServerLimits::default()).unwrap()
        });
        self.server = Some(server);
    }

    /// One request on a connection of its own.
    pub(crate) fn request(&self, head: &str, body: &[u8]) -> HttpAnswer {
        let mut bytes = head.replace('\n', "\r\n").into_bytes();
        if !body.is_empty() {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        bytes.extend(b"Host: test\r\nConnection: close\r\n\r\n");
        bytes.extend(body);
        self.bytes(&bytes)
    }

    /// Sends bytes and reads the answer until the end.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> HttpAnswer {
        let mut stream = self.connect();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        HttpAnswer::read(stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> HttpAnswer {
        self.request(&format!("GET {path} HTTP/1.1\n"), b"")
    }

    /// A request with the token.
    pub(crate) fn change(&self, method: &str, path: &str, body: &str) -> HttpAnswer {
        let head = format!("{method} {path} HTTP/1.1\nAuthorization: Bearer {TOKEN}\n");
        self.request(&head, body.as_bytes())
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        self.stop_http();
        self.runtime.block_on(self.advisor.shutdown());
    }
}

fn token_file(directory: &std::path::Path) -> PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = directory.join("token");
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).mode(0o600).open(&path);
    file.unwrap().write_all(TOKEN.as_bytes()).unwrap();
    path
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpAnswer {
    /// Reads until the server closes. No answer at all is status 0.
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A refused body resets the connection, perhaps after the answer.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Self {
            status: status.unwrap_or(0),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Waits for a state that must come.
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The path of a program; `None`, after a message, if the test is skipped.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        let required = std::env::var_os("LONGHAUL_REQUIRE_PEERS").is_some_and(|v| v == "1");
        let why = format!("none of {names:?} is on PATH (tests/install-peers)");
        assert!(!required, "{why}, and nothing may be missing");
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test");
        // A direct write is not captured by the test runner, which hides the output of passing tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
    }
    found
}
