//! The copy engine over in-memory storages with injected faults.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::events::{CopyEvent, CopyObserver, CopySummary};
use crate::options::{CopyOptions, VerifyMode};
use crate::run::tests::options;
use crate::storage::conformance::content;
use crate::storage::memory::MemoryStore;
use ftp::{Exit, Failure};

mod away;
mod later_run;
mod repair;
mod web;
mod web_names;
mod web_third_party;

/// Length of a file that takes many write steps.
const LENGTH: usize = 8 << 20;

#[derive(Default)]
struct RecordedWarnings(Mutex<Vec<String>>);

/// Sizes of the files whose transfer began.
#[derive(Default)]
struct StartedSizes(Mutex<Vec<Option<u64>>>);

impl CopyObserver for StartedSizes {
    fn on_event(&self, event: CopyEvent) {
        if let CopyEvent::Started { bytes, .. } = event {
            self.0.lock().push(bytes);
        }
    }
}

impl CopyObserver for RecordedWarnings {
    fn on_event(&self, event: CopyEvent) {
        if let CopyEvent::Warning(text) = event {
            self.0.lock().push(text);
        }
    }
}

async fn copy(from: &str, to: &str, options: &CopyOptions) -> (CopySummary, Vec<String>) {
    let warnings_seen = Arc::new(RecordedWarnings::default());
    let observer = Arc::clone(&warnings_seen) as Arc<dyn CopyObserver>;
    let summary = crate::copy(&[from.to_owned()], to, options, observer).await;
    let warnings = warnings_seen.0.lock().clone();
    (summary, warnings)
}

fn options_with_retries() -> CopyOptions {
    options().with(|o| o.retry.retries = 3)
}

/// Stores that only this test uses: one with the file `/f`, one empty.
fn memory_stores(test: &str) -> (Arc<MemoryStore>, Arc<MemoryStore>, Vec<u8>) {
    let (from, to) = (format!("{test}.from"), format!("{test}.to"));
    let (from, to) = (MemoryStore::named(&from), MemoryStore::named(&to));
    let bytes = content(9, LENGTH);
    from.put("/f", &bytes, 1_000_000_000);
    (from, to, bytes)
}

#[tokio::test]
async fn storages_without_third_party_transfers_are_relayed() {
    let (_, to, bytes) = memory_stores("relayed");
    let (summary, warnings) = copy(
        "http://relayed.from.memory.invalid/f",
        "http://relayed.to.memory.invalid/g",
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!((summary.verified.as_str(), warnings.len()), ("crc32c", 0));
    assert!(to.get("/g") == Some(bytes));
    assert_eq!(to.paths(), ["/g"], "no partial file is left");
}

#[tokio::test]
async fn a_relay_broken_at_either_end_starts_over_and_stores_no_incomplete_file() {
    for (broken, end) in [("relay.breaks.at.source", 0), ("relay.breaks.at.store", 1)] {
        let (from, to, bytes) = memory_stores(broken);
        [&from, &to][end].break_after(&[3 << 20]);
        let source = format!("http://{broken}.from.memory.invalid/f");
        let destination = format!("http://{broken}.to.memory.invalid/f");
        let (summary, _) = copy(&source, &destination, &options_with_retries()).await;
        assert_eq!(summary.exit, Exit::Done, "{broken}: {summary:?}");
        assert!(to.get("/f") == Some(bytes));
        assert_eq!(to.paths(), ["/f"]);
        let (_, to, _) = memory_stores(&format!("{broken}.once"));
        to.break_after(&[3 << 20]);
        let source = format!("http://{broken}.once.from.memory.invalid/f");
        let destination = format!("http://{broken}.once.to.memory.invalid/f");
        let (summary, _) = copy(&source, &destination, &options()).await;
        assert_eq!(summary.exit, Exit::Unreachable);
        assert_eq!(to.get("/f"), None, "only whole files have their names");
    }
}

#[tokio::test]
async fn a_stalled_side_of_a_relay_ends_when_the_other_side_fails() {
    let (from, to, _) = memory_stores("silent");
    from.stall_at(2 << 20);
    to.break_after(&[1 << 20]);
    let observer = std::time::Instant::now();
    let (summary, _) = copy(
        "http://silent.from.memory.invalid/f",
        "http://silent.to.memory.invalid/f",
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Unreachable);
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("silent.to"), "{message}");
    assert!(observer.elapsed() < options().streams.transfer.stall);
}

#[tokio::test]
async fn a_relay_that_breaks_each_time_fails_after_its_retries() {
    let (from, to) = (
        MemoryStore::named("vain.from"),
        MemoryStore::named("vain.to"),
    );
    from.put("/f", &content(9, 20 << 20), 1_000_000_000);
    to.break_after(&[18 << 20; 8]);
    let once_more = options().with(|o| o.retry.retries = 1);
    let (summary, _) = copy(
        "http://vain.from.memory.invalid/f",
        "http://vain.to.memory.invalid/f",
        &once_more,
    )
    .await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert!(to.moved() <= 2 * (18 << 20), "{}", to.moved());
}

#[tokio::test]
async fn an_interrupted_download_continues_from_the_partial_file() {
    let dir = tempfile::tempdir().unwrap();
    let (from, _, bytes) = memory_stores("down");
    from.break_after(&[3 << 20, 2 << 20]);
    let local_path = dir.path().join("f");
    let to = local_path.display().to_string();
    let (summary, _) = copy(
        "http://down.from.memory.invalid/f",
        &to,
        &options_with_retries(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&local_path).unwrap() == bytes);
    let moved = from.moved();
    assert!(
        moved < LENGTH as u64 + (1 << 20),
        "{moved}: nothing is sent twice"
    );
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
}

#[tokio::test]
async fn an_interrupted_upload_is_resumed_by_a_later_run() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = memory_stores("up");
    let local_path = dir.path().join("f");
    std::fs::write(&local_path, &bytes).unwrap();
    let from = local_path.display().to_string();
    to.break_after(&[5 << 20]);
    let (summary, _) = copy(&from, "http://up.to.memory.invalid/f", &options()).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(to.paths(), ["/f.longhaul-partial"]);
    let resuming = options().with(|o| o.file.resume = true);
    let (summary, _) = copy(&from, "http://up.to.memory.invalid/f", &resuming).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(to.get("/f") == Some(bytes));
    assert!(to.moved() < LENGTH as u64 + (2 << 20), "{}", to.moved());
    // A third run finds the file in place.
    let before = to.moved();
    let (summary, _) = copy(&from, "http://up.to.memory.invalid/f", &resuming).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Done, 0));
    assert_eq!(to.moved(), before);
}

#[tokio::test]
async fn a_storage_without_capabilities_gets_its_files_with_a_warning() {
    let (_, to, bytes) = memory_stores("little");
    to.remove_capabilities();
    let (summary, warnings) = copy(
        "http://little.from.memory.invalid/f",
        "http://little.to.memory.invalid/f",
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(summary.verified, "size");
    assert!(to.get("/f") == Some(bytes));
    let message = warnings
        .iter()
        .any(|text| text.contains("stored under their final names"));
    assert!(message, "{warnings:?}");
    let named = options()
        .with(|o| o.file.verify = VerifyMode::With(proto::checksum::ChecksumAlgorithm::Md5));
    let (summary, _) = copy(
        "http://little.from.memory.invalid/f",
        "http://little.to.memory.invalid/g",
        &named,
    )
    .await;
    assert_eq!(summary.exit, Exit::Protocol);
    assert_eq!(to.get("/g"), None);
}

#[tokio::test]
async fn trees_and_patterns_work_with_every_storage() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("t/a b")).unwrap();
    for name in ["t/one", "t/two.nc", "t/a b/three.nc"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let recursive = options().with(|o| o.tree.recursive = true);
    let from = dir.path().join("t").display().to_string();
    let store = MemoryStore::named("trees");
    let (summary, _) = copy(&from, "http://trees.memory.invalid/up/", &recursive).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    let stored = ["/up/a b/three.nc", "/up/one", "/up/two.nc"];
    assert_eq!(store.paths(), stored);
    let back = dir.path().join("back");
    let (summary, _) = copy(
        "http://trees.memory.invalid/up",
        &back.display().to_string(),
        &recursive,
    )
    .await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    assert_eq!(
        std::fs::read(back.join("a b/three.nc")).unwrap(),
        b"t/a b/three.nc"
    );
    let (summary, _) = copy(
        "http://trees.memory.invalid/up/*.nc",
        "http://trees.memory.invalid/nc/",
        &options(),
    )
    .await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
    assert_eq!(store.get("/nc/two.nc").as_deref(), Some(&b"t/two.nc"[..]));
}

#[tokio::test]
async fn the_started_event_has_the_length_of_the_part() {
    let dir = tempfile::tempdir().unwrap();
    let (from, _, _) = memory_stores("started");
    let local_path = dir.path().join("here");
    std::fs::write(&local_path, from.get("/f").unwrap()).unwrap();
    let local_path = local_path.display().to_string();
    let other_path = dir.path().join("there").display().to_string();
    let part = options().with(|o| {
        o.file.offset = Some(1000);
        o.file.length = Some(50_000);
    });
    let observer = Arc::new(StartedSizes::default());
    for from in ["http://started.from.memory.invalid/f", &local_path] {
        for to in ["http://started.to.memory.invalid/part", &other_path] {
            let observer = Arc::clone(&observer) as Arc<dyn CopyObserver>;
            crate::copy(&[from.to_owned()], to, &part, observer).await;
        }
    }
    assert_eq!(*observer.0.lock(), [Some(50_000); 4]);
}

#[tokio::test]
async fn parts_are_copied_to_every_kind_of_destination() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = memory_stores("parts");
    let part = options().with(|o| {
        o.file.offset = Some(1000);
        o.file.length = Some(50_000);
    });
    let local_path = dir.path().join("part");
    for to in [
        "http://parts.to.memory.invalid/part".to_owned(),
        local_path.display().to_string(),
    ] {
        let (summary, _) = copy("http://parts.from.memory.invalid/f", &to, &part).await;
        assert_eq!(summary.exit, Exit::Done, "{to}: {summary:?}");
    }
    assert!(to.get("/part").as_deref() == Some(&bytes[1000..51_000]));
    assert!(std::fs::read(&local_path).unwrap() == bytes[1000..51_000]);
}

#[tokio::test]
async fn a_local_copy_is_resumed_verified_and_keeps_the_modification_time() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(3, LENGTH);
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, &bytes).unwrap();
    // State left by a killed run: correct bytes, then wrong ones.
    let mut leftover = bytes[..6 << 20].to_vec();
    leftover[5 << 20..].fill(0);
    let partial = dir.path().join("to.longhaul-partial");
    std::fs::write(&partial, &leftover).unwrap();
    std::fs::set_permissions(&partial, PermissionsExt::from_mode(0o600)).unwrap();
    let resuming = options().with(|o| o.file.resume = true);
    let shown = |path: &std::path::Path| path.display().to_string();
    let (summary, _) = copy(&shown(&from), &shown(&to), &resuming).await;
    assert_eq!(
        (summary.exit, summary.verified.as_str()),
        (Exit::Done, "crc32c")
    );
    assert!(summary.bytes <= 3 << 20, "{}", summary.bytes);
    assert!(std::fs::read(&to).unwrap() == bytes);
    let time = |path| std::fs::metadata(path).unwrap().modified().unwrap();
    let apart = time(&from).duration_since(time(&to)).unwrap_or_default();
    assert!(apart.as_secs() <= 1, "{apart:?}");
    let (summary, _) = copy(&shown(&from), &shown(&to), &resuming).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Done, 0));
}

#[tokio::test]
async fn the_side_task_is_dropped_when_the_main_task_fails() {
    let failed = async { Err::<(), _>(Failure::local("x")) };
    let endless = std::future::pending::<()>();
    assert!(
        super::moving::run_with_side_task(failed, endless)
            .await
            .is_err()
    );
    let late = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        2
    };
    assert_eq!(
        super::moving::run_with_side_task(async { Ok(1) }, late).await,
        Ok((1, 2))
    );
}
