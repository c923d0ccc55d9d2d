//! Files of archives, of which copies may be restored or not.

use super::*;
use crate::events::{CopyEvent, CopyObserver, CopySummary};
use crate::options::{BatchJournalLocation, SyncOptions};
use crate::storage::memory::MemoryStore;
use ftp::Exit;

/// Failures, beginnings and the end of the listing, in order.
#[derive(Default)]
struct EventOrder(Mutex<Vec<String>>);

impl CopyObserver for EventOrder {
    fn on_event(&self, event: CopyEvent) {
        let (kind, source) = match event {
            CopyEvent::Failed { source, .. } => ("failed", source),
            CopyEvent::Started { source, .. } => ("started", source),
            CopyEvent::Listed => ("listed", String::new()),
            _ => return,
        };
        let name = source.rsplit('/').next().unwrap_or_default();
        self.0.lock().push(format!("{kind} {name}"));
    }
}

/// A bucket with a file in no archive, one of which a copy is restored, and one of which none is.
fn bucket(name: &str) -> (Arc<MemoryStore>, String) {
    let store = MemoryStore::named(name);
    for path in ["/plain", "/restored", "/frozen"] {
        store.put(path, path.as_bytes(), 1_000_000_000);
    }
    store.archive("/restored", true);
    store.archive("/frozen", false);
    (store, format!("s3://{name}.memory.invalid/"))
}

fn recursive() -> CopyOptions {
    options().with(|o| o.tree.recursive = true)
}

async fn copy(from: &str, to: &Path, options: &CopyOptions) -> (CopySummary, Vec<String>) {
    let order = Arc::new(EventOrder::default());
    let observer = Arc::clone(&order) as Arc<dyn CopyObserver>;
    let to = to.display().to_string();
    let summary = crate::copy(&[from.to_owned()], &to, options, observer).await;
    let order = order.0.lock().clone();
    (summary, order)
}

#[tokio::test]
async fn files_that_are_not_restored_are_told_before_any_other_moves() {
    let (dir, (_, url)) = (tempfile::tempdir().unwrap(), bucket("archive.told"));
    let (summary, order) = copy(&url, dir.path(), &recursive()).await;
    assert_eq!((summary.files, summary.failed), (2, 1), "{summary:?}");
    assert_eq!(summary.exit, Exit::Partial);
    let failure = summary.first_failure.unwrap();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(failure.to_string().contains("--exclude"), "{failure}");
    assert_eq!(&order[..2], ["failed frozen", "listed "]);
    assert_eq!(order.len(), 4, "{order:?}");
    assert!(!dir.path().join("frozen").exists());
}

#[tokio::test]
async fn files_of_archives_that_are_left_out_or_left_alone_need_not_be_restored() {
    let (dir, (_, url)) = (tempfile::tempdir().unwrap(), bucket("archive.left"));
    let mut without = recursive();
    without.tree.selection.exclude("frozen").unwrap();
    let (summary, _) = copy(&url, dir.path(), &without).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
    fs::write(dir.path().join("frozen"), "/frozen").unwrap();
    let keeping = recursive().with(|o| o.file.keep_existing = true);
    let (summary, _) = copy(&url, dir.path(), &keeping).await;
    assert_eq!((summary.exit, summary.kept), (Exit::Done, 3));
}

#[tokio::test]
async fn a_later_run_copies_what_was_restored_since_and_needs_no_archive_for_what_is_done() {
    let (dir, (store, url)) = (tempfile::tempdir().unwrap(), bucket("archive.later"));
    let to = dir.path().join("to");
    fs::create_dir(&to).unwrap();
    let journals = BatchJournalLocation::Directory(dir.path().join("journals"));
    let options = recursive().with(|o| o.journal = journals);
    let (summary, _) = copy(&url, &to, &options).await;
    assert_eq!((summary.files, summary.failed), (2, 1), "{summary:?}");
    store.archive("/restored", false);
    store.archive("/plain", false);
    store.archive("/frozen", true);
    let (summary, _) = copy(&url, &to, &options).await;
    assert_eq!((summary.files, summary.failed), (1, 0), "{summary:?}");
    assert_eq!(fs::read(to.join("frozen")).unwrap(), b"/frozen");
}

#[tokio::test]
async fn sync_deletes_nothing_while_a_file_is_not_restored() {
    let (dir, (_, url)) = (tempfile::tempdir().unwrap(), bucket("archive.synced"));
    let old = ["frozen", "extra"].map(|name| dir.path().join(name));
    for path in &old {
        fs::write(path, "another").unwrap();
    }
    let options = SyncOptions {
        copy: recursive(),
        delete: true,
        checksum: false,
    };
    let to = dir.path().display().to_string();
    let order = Arc::new(EventOrder::default());
    let observer = Arc::clone(&order) as Arc<dyn CopyObserver>;
    let summary = crate::sync(&url, &to, &options, observer).await;
    assert_eq!((summary.files, summary.deleted), (2, 0), "{summary:?}");
    assert_ne!(summary.exit, Exit::Done);
    assert_eq!(&order.0.lock()[..2], ["failed frozen", "listed "]);
    for path in &old {
        assert_eq!(fs::read(path).unwrap(), b"another");
    }
}
