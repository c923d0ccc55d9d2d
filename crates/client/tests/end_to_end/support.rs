//! A server on a port of its own, a recorder of events, options.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{CopyOptions, Event, ModeChoice, Observer, Parallelism, Summary, Verify};
use data::store::claim::{Claim, Claimed, claim};
use proto::server::Rights;
use server::config::{Anonymous, ServerConfig};
use server::users::Account;
use server::{Shutdown, ShutdownHandle};

/// A running server over a directory of its own; it ends with the test's runtime.
pub(crate) struct Server {
    directory: tempfile::TempDir,
    address: SocketAddr,
    _shutdown: ShutdownHandle,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let users = directory.path().join("users");
        let account = Account {
            name: "alice".to_owned(),
            root: None,
            home: proto::path::VPath::root(),
            rights: Rights {
                write: true,
                third_party: true,
            },
        };
        server::users::add(&users, &account, b"secret").unwrap();
        let mut config = ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            root,
            users: Some(users),
            anonymous: Some(Anonymous::Rw),
            range_marker_seconds: 1,
            perf_marker_seconds: 1,
            ..ServerConfig::default()
        };
        change(&mut config);
        let (handle, shutdown) = Shutdown::manual();
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let ready = |address| {
                let _ = tell.send(address);
            };
            server::serve(config, ready, shutdown).await.unwrap();
        });
        Self {
            directory,
            address: told.await.unwrap(),
            _shutdown: handle,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL for anonymous.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.address)
    }

    /// URL for a user who may do third-party transfers.
    pub(crate) fn user_url(&self, path: &str) -> String {
        format!("ftp://alice:secret@{}/{path}", self.address)
    }

    pub(crate) fn store(&self, path: &str, bytes: &[u8]) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.root().join(path)).unwrap()
    }
}

/// Keeps what happened.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    news: tokio::sync::Notify,
}

impl Recorder {
    pub(crate) fn warnings(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let texts = events.iter().filter_map(|event| match event {
            Event::Warning(text) => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }

    /// Waits for an event.
    pub(crate) async fn until(&self, wanted: impl Fn(&Event) -> bool) {
        loop {
            let news = self.news.notified();
            if self.count(&wanted) > 0 {
                return;
            }
            news.await;
        }
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events
            .lock()
            .unwrap()
            .iter()
            .filter(|e| wanted(e))
            .count()
    }
}

impl Observer for Recorder {
    fn event(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.news.notify_waiters();
    }
}

pub(crate) fn options() -> CopyOptions {
    CopyOptions {
        recursive: false,
        parallelism: Parallelism::Auto,
        buffer: client::Buffers::default(),
        drs_interval: tune::sizing::drs::Interval::default(),
        congestion: data::job::Congestion::System,
        max_streams: 64,
        autopar: tune::streams::chunked::Parameters::default(),
        mode: ModeChoice::Auto,
        offset: None,
        length: None,
        resume: false,
        verify: Verify::Auto,
        limit_rate: None,
        timeout: Duration::from_secs(20),
        retries: 2,
        trace: None,
        io: data::job::IoMethod::Auto,
        block: 1 << 18,
        sync_policy: data::store::durability::SyncPolicy::default(),
        links: client::Links::default(),
        keep_existing: false,
        wait: false,
        concurrency: 4,
        foreign_data: false,
        data_ports: None,
    }
}

pub(crate) fn streams(n: u32) -> CopyOptions {
    CopyOptions {
        parallelism: Parallelism::Fixed(n),
        ..options()
    }
}

/// Copies and gives what happened.
pub(crate) async fn copy(
    sources: &[&str],
    destination: &str,
    options: &CopyOptions,
) -> (Summary, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let sources: Vec<String> = sources.iter().map(|s| (*s).to_owned()).collect();
    let copying = client::copy(&sources, destination, options, recorder.clone());
    let summary = tokio::time::timeout(Duration::from_secs(60), copying)
        .await
        .expect("a copy that hangs");
    (summary, recorder)
}

/// Starts a copy and drops it after a while, as an interrupted program would.
pub(crate) async fn copy_cut(
    source: &str,
    destination: &str,
    options: &CopyOptions,
    after: Duration,
) {
    let sources = [source.to_owned()];
    let recorder = Arc::new(Recorder::default());
    let copying = client::copy(&sources, destination, options, recorder);
    let cut = tokio::time::timeout(after, copying).await;
    assert!(cut.is_err(), "ended before it was cut: {cut:?}");
    // The transfer's threads notice the cut a moment later.
    tokio::time::sleep(Duration::from_millis(100)).await;
    // They have let go of the file when its lock is free.
    let partial = PathBuf::from(format!("{destination}.longhaul-partial"));
    while let Ok(file) = std::fs::File::open(&partial)
        && claim(&file, Claim::Sole).unwrap() == Claimed::Busy
    {
        tokio::task::yield_now().await;
    }
}

/// Bytes without pattern that repeats at block sizes.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
