//! A database that is locked, full, gone or was never there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use advisor::config::{HistoryConfig, StoreUrl};
use advisor::measurement::{Measurement, Quantity};
use advisor::store::writer::{QUEUE_LENGTH, StoreOwner, StoreQueue};
use advisor::store::{DatabaseError, Store, StoreEntry};
use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Connection;

#[derive(Default)]
struct CountingOwner {
    opened: AtomicUsize,
}

#[async_trait]
impl StoreOwner for CountingOwner {
    async fn opened(&self, _: &Store) -> Result<(), DatabaseError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn cautious_now(&self) -> Timestamp {
        Timestamp::now()
    }
}

fn start(path: &Path) -> (StoreQueue, tokio::task::JoinHandle<()>, Arc<CountingOwner>) {
    let url = StoreUrl::Sqlite(path.to_owned());
    let owner = Arc::<CountingOwner>::default();
    let ages = HistoryConfig::default();
    let (queue, task) = StoreQueue::start(url, "data1".to_owned(), ages, owner.clone());
    (queue, task, owner)
}

fn entry(n: i64) -> StoreEntry {
    StoreEntry::Measured(Measurement {
        client: [192, 0, 2, 1].into(),
        test: "ping".to_owned(),
        at: Timestamp::from_millisecond(Timestamp::now().as_millisecond() - n).unwrap(),
        values: vec![(Quantity::Rtt, 0.1)],
        detail: None,
        cost_bytes: 0,
    })
}

/// Waits for a state that must come.
async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(waited.is_ok(), "never: {what}");
}

#[tokio::test]
async fn entries_wait_while_the_database_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("paths.sqlite");
    let (queue, task, owner) = start(&path);
    until("open", || queue.is_available()).await;
    let url = format!("sqlite://{}", path.display());
    let mut other = sqlx::AnyConnection::connect(&url).await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE")
        .execute(&mut other)
        .await
        .unwrap();
    queue.push(entry(1));
    until("told", || !queue.is_available()).await;
    assert_eq!(queue.written(), 0);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    until("written", || queue.written() == 1).await;
    assert!(queue.is_available());
    assert_eq!(
        (queue.dropped(), owner.opened.load(Ordering::Relaxed)),
        (0, 1)
    );
    drop(queue);
    task.await.unwrap();
}

#[tokio::test]
async fn a_deleted_database_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/paths.sqlite");
    let (queue, task, owner) = start(&path);
    queue.push(entry(1));
    until("written", || queue.written() == 1).await;
    std::fs::remove_dir_all(dir.path().join("state")).unwrap();
    queue.push(entry(2));
    until("written again", || queue.written() == 2).await;
    assert_eq!(owner.opened.load(Ordering::Relaxed), 2);
    assert!(path.exists());
    drop(queue);
    task.await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_missing_at_the_start_is_used_when_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("state");
    std::fs::write(&blocked, "a file where the directory belongs").unwrap();
    let (queue, task, _) = start(&blocked.join("paths.sqlite"));
    for n in 0..10 {
        queue.push(entry(n));
    }
    assert!(!queue.is_available() && queue.store().is_none());
    std::fs::remove_file(&blocked).unwrap();
    until("written", || queue.written() == 10).await;
    drop(queue);
    task.await.unwrap();
}

#[tokio::test]
async fn the_queue_is_bounded_and_what_it_drops_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("state");
    std::fs::write(&blocked, "").unwrap();
    let (queue, task, _) = start(&blocked.join("paths.sqlite"));
    let more = 100;
    for n in 0..i64::try_from(QUEUE_LENGTH + more).unwrap() {
        queue.push(entry(n));
    }
    assert_eq!(queue.dropped(), more as u64);
    drop(queue);
    // The end does not wait for a database that is not there.
    task.await.unwrap();
}

/// Root mounts a small file system; others skip.
#[tokio::test]
async fn entries_wait_while_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    if !nix::unistd::geteuid().is_root() || !mount(dir.path()) {
        eprintln!(
            "SKIPPED: entries_wait_while_the_disk_is_full: no small file system without root"
        );
        return;
    }
    let (queue, task, _) = start(&dir.path().join("paths.sqlite"));
    until("open", || queue.is_available()).await;
    let ballast = dir.path().join("ballast");
    let mut filled = std::fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut filled, &[0; 4096]).is_ok() {}
    for n in 0..2000 {
        queue.push(entry(n));
    }
    until("told", || !queue.is_available()).await;
    drop(filled);
    std::fs::remove_file(&ballast).unwrap();
    until("written", || queue.written() == 2000).await;
    assert_eq!(queue.dropped(), 0);
    drop(queue);
    task.await.unwrap();
    nix::mount::umount(dir.path()).unwrap();
}

fn mount(place: &Path) -> bool {
    let none: Option<&str> = None;
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(none, place, Some("tmpfs"), flags, Some("size=3m")).is_ok()
}
