//! A server on a port of its own, an event recorder, options.

use data::options::TransferOptions;
use data::rate::RateLimit;
use proto::sizing::SocketBuffers;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use copy::{CopyEvent, CopyObserver, CopyOptions, CopySummary, Parallelism};
use proto::server::AccountRights;
use server::config::{Anonymous, ServerConfig};
use server::users::UserAccount;
use server::{Shutdown, ShutdownHandle};
use tokio::sync::Notify;
use units::splitmix;

/// Longer than anything in these tests takes, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A running server over a directory of its own; it ends with the test's runtime.
pub(crate) struct EndToEndServer {
    directory: tempfile::TempDir,
    address: SocketAddr,
    _shutdown: ShutdownHandle,
}

impl EndToEndServer {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let users = directory.path().join("users");
        let account = UserAccount {
            name: "alice".to_owned(),
            root: None,
            home: proto::path::VPath::root(),
            rights: AccountRights {
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
        let (ready_sender, ready_receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let ready = |address| {
                let _ = ready_sender.send(address);
            };
            server::serve(config, ready, shutdown).await.unwrap();
        });
        Self {
            directory,
            address: ready_receiver.await.unwrap(),
            _shutdown: handle,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL for the anonymous user.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.address)
    }

    /// URL for a user with the right to third-party transfers.
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

/// Writes a file that only its owner may read, as a copy leaves one that is not complete.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Records events.
#[derive(Default)]
pub(crate) struct EventRecorder {
    events: Mutex<Vec<CopyEvent>>,
    changed: Notify,
}

impl EventRecorder {
    pub(crate) fn warnings(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let texts = events.iter().filter_map(|event| match event {
            CopyEvent::Warning(text) => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn failures(&self) -> Vec<copy::Failure> {
        let events = self.events.lock().unwrap();
        let failures = events.iter().filter_map(|event| match event {
            CopyEvent::Failed { failure, .. } => Some(failure.clone()),
            _ => None,
        });
        failures.collect()
    }

    /// Waits for an event.
    pub(crate) async fn wait_until(&self, wanted: impl Fn(&CopyEvent) -> bool) {
        loop {
            let changed = self.changed.notified();
            if self.count(&wanted) > 0 {
                return;
            }
            changed.await;
        }
    }

    /// Waits until an event may have come since the last look.
    pub(crate) async fn wait_until_changed(&self) {
        let changed = self.changed.notified();
        let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
    }

    pub(crate) fn count(&self, wanted: impl Fn(&CopyEvent) -> bool) -> usize {
        self.events
            .lock()
            .unwrap()
            .iter()
            .filter(|e| wanted(e))
            .count()
    }
}

impl CopyObserver for EventRecorder {
    fn on_event(&self, event: CopyEvent) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_waiters();
    }
}

/// Does something once, when the first bytes of a copy are on their way. With one file at a time, all of a small tree is
/// listed then, and the large file of it is moved.
pub(crate) struct Intruder {
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) events: EventRecorder,
}

impl Intruder {
    pub(crate) fn new(act: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            act: Mutex::new(Some(Box::new(act))),
            events: EventRecorder::default(),
        })
    }

    pub(crate) fn has_acted(&self) -> bool {
        self.act.lock().unwrap().is_none()
    }
}

impl CopyObserver for Intruder {
    fn on_event(&self, event: CopyEvent) {
        let is_moving = matches!(&event, CopyEvent::Progress(progress) if progress.bytes > 0);
        if is_moving && let Some(act) = self.act.lock().unwrap().take() {
            act();
        }
        self.events.on_event(event);
    }
}

/// Copies with an intruder, who must have acted.
pub(crate) async fn copy_with(
    intruder: &Arc<Intruder>,
    from: &str,
    to: &str,
    options: &CopyOptions,
) -> CopySummary {
    let observer = Arc::clone(intruder) as Arc<dyn CopyObserver>;
    let summary = copy::copy(&[from.to_owned()], to, options, observer).await;
    assert!(intruder.has_acted(), "the copy was over too soon");
    summary
}

fn transfer() -> TransferOptions {
    TransferOptions {
        buffers: SocketBuffers::default(),
        block: 1 << 18,
        ..TransferOptions::default()
    }
}

/// Options with a rate limit in bytes per second.
pub(crate) fn rate_limited(rate: u64) -> TransferOptions {
    TransferOptions {
        rate: Some(RateLimit::new(rate)),
        ..transfer()
    }
}

pub(crate) fn options() -> CopyOptions {
    CopyOptions {
        streams: copy::StreamOptions {
            transfer: transfer(),
            ..copy::StreamOptions::default()
        },
        retry: copy::RetryOptions {
            retries: 2,
            patience: Duration::ZERO,
        },
        concurrency: Some(4),
        ..CopyOptions::default()
    }
}

pub(crate) fn streams(n: u32) -> CopyOptions {
    options().with(|o| o.streams.parallelism = Parallelism::Fixed(n))
}

/// Copies, and returns the summary and the events.
pub(crate) async fn copy(
    sources: &[&str],
    destination: &str,
    options: &CopyOptions,
) -> (CopySummary, Arc<EventRecorder>) {
    let recorder = Arc::new(EventRecorder::default());
    let sources: Vec<String> = sources.iter().map(|s| (*s).to_owned()).collect();
    let copying = copy::copy(&sources, destination, options, recorder.clone());
    let summary = tokio::time::timeout(TIMEOUT, copying)
        .await
        .expect("a copy that hangs");
    (summary, recorder)
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < TIMEOUT,
            "timed out waiting until {condition}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until this many bytes are safe.
struct SafeBytesObserver {
    safe: u64,
    reached: Notify,
}

impl CopyObserver for SafeBytesObserver {
    fn on_event(&self, event: CopyEvent) {
        if matches!(event, CopyEvent::Progress(progress) if progress.safe >= self.safe) {
            self.reached.notify_one();
        }
    }
}

/// Starts a copy and drops it once this many bytes are safe, as an interrupted program would. Waits
/// until nobody in this process, which includes the server, has `partial` open.
pub(crate) async fn copy_and_interrupt(
    source: &str,
    destination: &str,
    options: &CopyOptions,
    (safe, partial): (u64, &Path),
) {
    let sources = [source.to_owned()];
    let observer = Arc::new(SafeBytesObserver {
        safe,
        reached: Notify::new(),
    });
    let copying = copy::copy(&sources, destination, options, observer.clone());
    tokio::select! {
        biased;
        () = observer.reached.notified() => {}
        ended = copying => panic!("ended before it was interrupted: {ended:?}"),
    }
    let is_partial =
        |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).is_ok_and(|p| p == partial);
    wait_until("the partial file is closed", || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        !open.flatten().any(is_partial)
    })
    .await;
}

/// Bytes without a pattern that repeats at block sizes.
pub(crate) fn random_bytes(length: usize) -> Vec<u8> {
    splitmix::bytes(1, length)
}

/// Names in a directory, sorted.
pub(crate) fn file_names(directory: &Path) -> Vec<String> {
    let mut file_names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    file_names.sort();
    file_names
}

/// Files and directories below a directory, sorted.
pub(crate) fn paths(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(top).unwrap().display().to_string());
            if path.is_dir() {
                pending.push(path);
            }
        }
    }
    found.sort();
    found
}
