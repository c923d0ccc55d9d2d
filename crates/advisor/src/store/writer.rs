//! The task that writes to the database. A database that is locked, full or gone costs no answer: entries
//! wait in a bounded queue, the trouble is told once, and so is its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::mpsc;

use super::{DatabaseError, Store, StoreEntry};
use crate::config::{HistoryConfig, StoreUrl};

/// Most entries that wait.
pub const QUEUE_LENGTH: usize = 20_000;
/// Most entries of one transaction.
const BATCH: usize = 500;
/// Shortest and longest time between two attempts while the database is unavailable.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// Time between two thinnings of the history.
const THIN_EVERY: Duration = Duration::from_secs(3600);

/// Asked when the database is reached: the history goes into memory, and time is told.
#[async_trait]
pub trait StoreOwner: Send + Sync + 'static {
    /// The database is open, for the first time or again.
    async fn opened(&self, store: &Store) -> Result<(), DatabaseError>;
    /// Time for deletions by age: never later than it is.
    fn cautious_now(&self) -> Timestamp;
}

/// The queue before the database, and its state.
#[derive(Debug)]
pub struct StoreQueue {
    entries: RwLock<Option<mpsc::Sender<StoreEntry>>>,
    shared: Arc<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    store: RwLock<Option<Store>>,
    is_available: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
    /// Why the last use of the database failed.
    failure: RwLock<Option<String>>,
}

impl StoreQueue {
    /// Starts the task. It ends when the queue is closed or dropped and everything in it is written, or the database
    /// is unavailable then.
    pub fn start(
        url: StoreUrl,
        server: String,
        ages: HistoryConfig,
        owner: Arc<dyn StoreOwner>,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (entries, queue) = mpsc::channel(QUEUE_LENGTH);
        let shared = Arc::new(SharedState::default());
        let task = WriterTask {
            url,
            server,
            ages,
            owner,
            queue,
            shared: Arc::clone(&shared),
            waiting: Vec::new(),
            told: false,
        };
        let entries = RwLock::new(Some(entries));
        (Self { entries, shared }, tokio::spawn(task.run()))
    }

    /// Hands over an entry without waiting. A full queue drops and counts it.
    pub fn push(&self, entry: StoreEntry) {
        let entries = self.entries.read();
        let taken = entries
            .as_ref()
            .is_some_and(|entries| entries.try_send(entry).is_ok());
        if !taken {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Entries for which there is room.
    pub fn room(&self) -> usize {
        let entries = self.entries.read();
        entries.as_ref().map_or(0, mpsc::Sender::capacity)
    }

    /// Takes no more entries; the task ends when those that wait are written.
    pub fn close(&self) {
        let mut entries = self.entries.write();
        *entries = None;
    }

    /// The database, if it is open.
    pub fn store(&self) -> Option<Store> {
        self.shared.store.read().clone()
    }

    /// Whether the last use of the database succeeded.
    pub fn is_available(&self) -> bool {
        self.shared.is_available.load(Ordering::Relaxed)
    }

    /// Why the last use of the database failed; `None`: it succeeded, or there was none yet.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.read().clone()
    }

    /// Entries written.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Entries dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

struct WriterTask {
    url: StoreUrl,
    server: String,
    ages: HistoryConfig,
    owner: Arc<dyn StoreOwner>,
    queue: mpsc::Receiver<StoreEntry>,
    shared: Arc<SharedState>,
    /// Taken from the queue, not yet written.
    waiting: Vec<StoreEntry>,
    /// The trouble was told.
    told: bool,
}

impl WriterTask {
    async fn run(mut self) {
        let mut pause = RETRY.0;
        let mut thin_at = tokio::time::Instant::now();
        loop {
            match self.serve(&mut thin_at).await {
                Ok(true) => pause = RETRY.0,
                Ok(false) => return self.close().await,
                Err(error) => {
                    self.unavailable(&error).await;
                    if self.queue.is_closed() {
                        tracing::warn!(
                            entries = self.waiting.len() + self.queue.len(),
                            "the database is unavailable at the end: entries are lost"
                        );
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }

    /// One step: opens, thins, or writes a batch. `false` at the end of the queue.
    async fn serve(&mut self, thin_at: &mut tokio::time::Instant) -> Result<bool, DatabaseError> {
        let open = self.current();
        let Some(store) = open else {
            let now = Timestamp::now();
            let store = Store::open(&self.url, &self.server, now).await?;
            self.owner.opened(&store).await?;
            self.set_current(Some(store));
            self.available();
            return Ok(true);
        };
        if !self.waiting.is_empty() {
            store.write(&self.waiting).await?;
            let written = self.waiting.len() as u64;
            self.shared.written.fetch_add(written, Ordering::Relaxed);
            self.waiting.clear();
            self.available();
        }
        if tokio::time::Instant::now() >= *thin_at {
            *thin_at = tokio::time::Instant::now() + THIN_EVERY;
            store.thin(self.owner.cautious_now(), &self.ages).await?;
        }
        tokio::select! {
            taken = self.queue.recv_many(&mut self.waiting, BATCH) => Ok(taken > 0),
            () = tokio::time::sleep_until(*thin_at) => Ok(true),
        }
    }

    fn current(&self) -> Option<Store> {
        self.shared.store.read().clone()
    }

    fn set_current(&self, store: Option<Store>) {
        let mut current = self.shared.store.write();
        *current = store;
    }

    fn available(&mut self) {
        self.shared.is_available.store(true, Ordering::Relaxed);
        *self.shared.failure.write() = None;
        if std::mem::take(&mut self.told) {
            tracing::info!(database = %self.url, "the database is available again");
        }
    }

    async fn unavailable(&mut self, error: &DatabaseError) {
        self.shared.is_available.store(false, Ordering::Relaxed);
        *self.shared.failure.write() = Some(error.to_string());
        if !std::mem::replace(&mut self.told, true) {
            tracing::error!(
                %error,
                "the database is unavailable: answers come from memory, entries wait"
            );
        }
        // A deleted file is opened anew.
        if matches!(error, DatabaseError::Gone { .. })
            && let Some(store) = self.current()
        {
            self.set_current(None);
            store.close().await;
        }
    }

    async fn close(&self) {
        if let Some(store) = self.current() {
            store.close().await;
        }
    }
}
