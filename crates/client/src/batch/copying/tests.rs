//! The one way for a copy, over storages in memory that do as they are told.

use std::sync::Arc;
use std::sync::Mutex;

use crate::batch::tests::options;
use crate::storage::conformance::content;
use crate::storage::memory::MemoryStore;
use crate::{CopyEvent, CopyObserver, CopyOptions, CopySummary, Exit, VerifyMode};

/// Length of a file that takes many steps.
pub(super) const LENGTH: usize = 8 << 20;

#[derive(Default)]
struct RecordedWarnings(Mutex<Vec<String>>);

/// The sizes of the files that began to move.
#[derive(Default)]
struct StartedSizes(Mutex<Vec<Option<u64>>>);

impl CopyObserver for StartedSizes {
    fn on_event(&self, event: CopyEvent) {
        if let CopyEvent::Started { bytes, .. } = event {
            self.0.lock().unwrap().push(bytes);
        }
    }
}

impl CopyObserver for RecordedWarnings {
    fn on_event(&self, event: CopyEvent) {
        if let CopyEvent::Warning(text) = event {
            self.0.lock().unwrap().push(text);
        }
    }
}

pub(super) async fn copy(
    from: &str,
    to: &str,
    options: &CopyOptions,
) -> (CopySummary, Vec<String>) {
    let heard = Arc::new(RecordedWarnings::default());
    let observer = Arc::clone(&heard) as Arc<dyn CopyObserver>;
    let summary = crate::copy(&[from.to_owned()], to, options, observer).await;
    let warnings = heard.0.lock().unwrap().clone();
    (summary, warnings)
}

pub(super) fn retrying() -> CopyOptions {
    CopyOptions {
        retries: 3,
        ..options()
    }
}

/// Shelves of this test alone: full of one file, and empty.
fn shelves(test: &str) -> (Arc<MemoryStore>, Arc<MemoryStore>, Vec<u8>) {
    let (from, to) = (format!("{test}.from"), format!("{test}.to"));
    let (from, to) = (MemoryStore::named(&from), MemoryStore::named(&to));
    let bytes = content(9, LENGTH);
    from.put("/f", &bytes, 1_000_000_000);
    (from, to, bytes)
}

#[tokio::test]
async fn between_two_places_that_know_nothing_of_each_other_the_bytes_pass_here() {
    let (_, to, bytes) = shelves("relayed");
    let (summary, warnings) = copy(
        "memory://relayed.from/f",
        "memory://relayed.to/g",
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!((summary.verified.as_str(), warnings.len()), ("crc32c", 0));
    assert!(to.get("/g") == Some(bytes));
    assert_eq!(to.paths(), ["/g"], "nothing is left beside it");
}

#[tokio::test]
async fn a_relay_that_breaks_at_either_end_starts_over_and_never_stores_a_part() {
    for (broken, end) in [("relay.breaks.at.source", 0), ("relay.breaks.at.store", 1)] {
        let (from, to, bytes) = shelves(broken);
        [&from, &to][end].break_after(&[3 << 20]);
        let source = format!("memory://{broken}.from/f");
        let destination = format!("memory://{broken}.to/f");
        let (summary, _) = copy(&source, &destination, &retrying()).await;
        assert_eq!(summary.exit, Exit::Done, "{broken}: {summary:?}");
        assert!(to.get("/f") == Some(bytes));
        assert_eq!(to.paths(), ["/f"]);
        let (_, to, _) = shelves(&format!("{broken}.once"));
        to.break_after(&[3 << 20]);
        let source = format!("memory://{broken}.once.from/f");
        let destination = format!("memory://{broken}.once.to/f");
        let (summary, _) = copy(&source, &destination, &options()).await;
        assert_eq!(summary.exit, Exit::Unreachable);
        assert_eq!(to.get("/f"), None, "only whole files have their names");
    }
}

#[tokio::test]
async fn an_end_of_a_relay_that_waits_for_its_storage_hears_of_the_other_ones_end() {
    let (from, to, _) = shelves("silent");
    from.stall_at(2 << 20);
    to.break_after(&[1 << 20]);
    let begun = std::time::Instant::now();
    let (summary, _) = copy("memory://silent.from/f", "memory://silent.to/f", &options()).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    let told = summary.first_failure.unwrap().message;
    assert!(told.contains("silent.to"), "{told}");
    assert!(begun.elapsed() < options().transfer.stall);
}

#[tokio::test]
async fn a_relay_that_breaks_each_time_is_given_up() {
    let (from, to) = (
        MemoryStore::named("vain.from"),
        MemoryStore::named("vain.to"),
    );
    from.put("/f", &content(9, 20 << 20), 1_000_000_000);
    to.break_after(&[18 << 20; 8]);
    let once_more = CopyOptions {
        retries: 1,
        ..options()
    };
    let (summary, _) = copy("memory://vain.from/f", "memory://vain.to/f", &once_more).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert!(to.moved() <= 2 * (18 << 20), "{}", to.moved());
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_from_what_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let (from, _, bytes) = shelves("down");
    from.break_after(&[3 << 20, 2 << 20]);
    let here = dir.path().join("f");
    let to = here.display().to_string();
    let (summary, _) = copy("memory://down.from/f", &to, &retrying()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&here).unwrap() == bytes);
    let moved = from.moved();
    assert!(
        moved < LENGTH as u64 + (1 << 20),
        "{moved}: nothing is sent twice"
    );
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
}

#[tokio::test]
async fn an_upload_that_breaks_goes_on_in_a_later_run() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = shelves("up");
    let here = dir.path().join("f");
    std::fs::write(&here, &bytes).unwrap();
    let from = here.display().to_string();
    to.break_after(&[5 << 20]);
    let (summary, _) = copy(&from, "memory://up.to/f", &options()).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(to.paths(), ["/f.longhaul-partial"]);
    let resuming = CopyOptions {
        resume: true,
        ..options()
    };
    let (summary, _) = copy(&from, "memory://up.to/f", &resuming).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(to.get("/f") == Some(bytes));
    assert!(to.moved() < LENGTH as u64 + (2 << 20), "{}", to.moved());
    // Once more: it is there.
    let before = to.moved();
    let (summary, _) = copy(&from, "memory://up.to/f", &resuming).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Done, 0));
    assert_eq!(to.moved(), before);
}

#[tokio::test]
async fn a_wrong_byte_is_found_wherever_it_was_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = shelves("wrong");
    let here = dir.path().join("f");
    std::fs::write(&here, &bytes).unwrap();
    for from in [
        "memory://wrong.from/f".to_owned(),
        here.display().to_string(),
    ] {
        to.corrupt_at(4_000_000);
        let (summary, _) = copy(&from, "memory://wrong.to/f", &options()).await;
        assert_eq!(summary.exit, Exit::Integrity, "{from}");
        assert_eq!(to.get("/f"), None);
    }
}

#[tokio::test]
async fn a_byte_that_changes_on_the_way_here_is_found_wherever_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, bytes) = shelves("garbled");
    let here = dir.path().join("f").display().to_string();
    for destination in ["memory://garbled.to/f", &here] {
        from.garble_at(4_000_000);
        let (summary, _) = copy("memory://garbled.from/f", destination, &options()).await;
        assert_eq!(summary.exit, Exit::Integrity, "{destination}");
        assert_eq!(to.get("/f"), None);
    }
    assert!(!dir.path().join("f").exists());
    // One that sums nothing is believed.
    from.make_plain();
    let (summary, _) = copy(
        "memory://garbled.from/f",
        "memory://garbled.to/f",
        &options(),
    )
    .await;
    assert_eq!(
        (summary.exit, summary.verified.as_str()),
        (Exit::Done, "crc32c")
    );
    assert!(to.get("/f") == Some(bytes));
}

#[tokio::test]
async fn a_place_that_can_do_little_is_told_of_and_gets_its_files_all_the_same() {
    let (_, to, bytes) = shelves("little");
    to.make_plain();
    let (summary, warnings) =
        copy("memory://little.from/f", "memory://little.to/f", &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(summary.verified, "size");
    assert!(to.get("/f") == Some(bytes));
    let told = warnings
        .iter()
        .any(|text| text.contains("refuses to rename"));
    assert!(told, "{warnings:?}");
    let named = CopyOptions {
        verify: VerifyMode::With(proto::checksum::ChecksumAlgorithm::Md5),
        ..options()
    };
    let (summary, _) = copy("memory://little.from/f", "memory://little.to/g", &named).await;
    assert_eq!(summary.exit, Exit::Protocol);
    assert_eq!(to.get("/g"), None);
}

#[tokio::test]
async fn trees_and_patterns_are_the_same_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("t/a b")).unwrap();
    for name in ["t/one", "t/two.nc", "t/a b/three.nc"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let recursive = CopyOptions {
        recursive: true,
        ..options()
    };
    let from = dir.path().join("t").display().to_string();
    let shelf = MemoryStore::named("trees");
    let (summary, _) = copy(&from, "memory://trees/up/", &recursive).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    let stored = ["/up/a b/three.nc", "/up/one", "/up/two.nc"];
    assert_eq!(shelf.paths(), stored);
    let back = dir.path().join("back");
    let (summary, _) = copy("memory://trees/up", &back.display().to_string(), &recursive).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    assert_eq!(
        std::fs::read(back.join("a b/three.nc")).unwrap(),
        b"t/a b/three.nc"
    );
    let (summary, _) = copy("memory://trees/up/*.nc", "memory://trees/nc/", &options()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
    assert_eq!(shelf.get("/nc/two.nc").as_deref(), Some(&b"t/two.nc"[..]));
}

#[tokio::test]
async fn a_part_is_as_long_as_it_was_asked_for_wherever_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (from, _, _) = shelves("begun");
    let here = dir.path().join("here");
    std::fs::write(&here, from.get("/f").unwrap()).unwrap();
    let here = here.display().to_string();
    let there = dir.path().join("there").display().to_string();
    let part = CopyOptions {
        offset: Some(1000),
        length: Some(50_000),
        ..options()
    };
    let begun = Arc::new(StartedSizes::default());
    for from in ["memory://begun.from/f", &here] {
        for to in ["memory://begun.to/part", &there] {
            let observer = Arc::clone(&begun) as Arc<dyn CopyObserver>;
            crate::copy(&[from.to_owned()], to, &part, observer).await;
        }
    }
    assert_eq!(*begun.0.lock().unwrap(), [Some(50_000); 4]);
}

#[tokio::test]
async fn parts_and_pipes_go_the_same_way() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = shelves("parts");
    let part = CopyOptions {
        offset: Some(1000),
        length: Some(50_000),
        ..options()
    };
    let here = dir.path().join("part");
    for to in [
        "memory://parts.to/part".to_owned(),
        here.display().to_string(),
    ] {
        let (summary, _) = copy("memory://parts.from/f", &to, &part).await;
        assert_eq!(summary.exit, Exit::Done, "{to}: {summary:?}");
    }
    assert!(to.get("/part").as_deref() == Some(&bytes[1000..51_000]));
    assert!(std::fs::read(&here).unwrap() == bytes[1000..51_000]);
}

#[tokio::test]
async fn a_copy_within_this_machine_is_verified_resumed_and_keeps_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(3, LENGTH);
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, &bytes).unwrap();
    // What a run that was killed has left: a good beginning, and something else.
    let mut left = bytes[..6 << 20].to_vec();
    left[5 << 20..].fill(0);
    std::fs::write(dir.path().join("to.longhaul-partial"), &left).unwrap();
    let resuming = CopyOptions {
        resume: true,
        ..options()
    };
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
