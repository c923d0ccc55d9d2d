//! The copy engine over a WebDAV server with injected faults.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{LENGTH, copy, options_with_retries};
use crate::events::{CopyEvent, CopyObserver};
use crate::options::{CopyOptions, Parallelism, SyncOptions};
use crate::run::tests::options;
use crate::storage::conformance::content;
use crate::storage::memory::MemoryStore;
use crate::storage::webdav::WebDavServer;
use ftp::Exit;

/// Waits before retries.
#[derive(Default)]
pub(crate) struct RecordedWaits(Mutex<Vec<Duration>>);

impl CopyObserver for RecordedWaits {
    fn on_event(&self, event: CopyEvent) {
        if let CopyEvent::Retrying { after, .. } = event {
            self.0.lock().push(after);
        }
    }
}

/// Bytes in flight at a break, which may be sent again.
const LOST: u64 = 1 << 20;

/// A server with the file `/f`.
pub(crate) fn server() -> (WebDavServer, Vec<u8>) {
    let (server, bytes) = (WebDavServer::start(), content(9, LENGTH));
    server.put("/f", &bytes);
    (server, bytes)
}

fn with_streams(streams: u32, options: CopyOptions) -> CopyOptions {
    options.with(|o| o.streams.parallelism = Parallelism::Fixed(streams))
}

/// Names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn several_connections_fetch_one_file_and_its_digest_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    let local_path = dir.path().join("f");
    let to = local_path.display().to_string();
    let (summary, warnings) = copy(&server.url("/f"), &to, &with_streams(4, options())).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!((summary.verified.as_str(), warnings.len()), ("sha256", 0));
    assert!(std::fs::read(&local_path).unwrap() == bytes);
    assert_eq!(server.sent(), LENGTH as u64);
    // One of them was opened before, for HEAD.
    assert!(
        (4..=6).contains(&server.connections()),
        "{}",
        server.connections()
    );
    server.send_wrong_digests();
    let other = dir.path().join("g").display().to_string();
    let (summary, _) = copy(&server.url("/f"), &other, &options()).await;
    assert_eq!(summary.exit, Exit::Integrity);
    assert!(!dir.path().join("g").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_get_continues_without_moving_bytes_twice() {
    for streams in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        let (server, bytes) = server();
        server.break_after(&[900_000, 700_000]);
        let local_path = dir.path().join("f");
        let to = local_path.display().to_string();
        let options = with_streams(streams, options_with_retries());
        let (summary, _) = copy(&server.url("/f"), &to, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{streams}: {summary:?}");
        assert_eq!(summary.verified, "sha256");
        assert!(std::fs::read(&local_path).unwrap() == bytes);
        assert_eq!(names(dir.path()), ["f"]);
        // With several streams, each break loses the rest of the ranges that were requested.
        let most = LENGTH as u64 + LOST + if streams > 1 { 6 << 20 } else { 0 };
        assert!(server.sent() < most, "{streams}: {}", server.sent());
        assert!(summary.bytes < LENGTH as u64 + LOST, "{}", summary.bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_resumes_from_the_partial_file() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    server.break_after(&[5 << 20]);
    let local_path = dir.path().join("f");
    let to = local_path.display().to_string();
    let resuming = with_streams(1, options()).with(|o| o.file.resume = true);
    let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert!(!local_path.exists());
    let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&local_path).unwrap() == bytes);
    assert!(server.sent() < LENGTH as u64 + LOST, "{}", server.sent());
    let before = server.sent();
    let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Done, 0));
    assert_eq!(server.sent(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_during_the_copy_fails() {
    for (plain, streams) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let (server, _) = server();
        if plain {
            server.omit_digests_and_etags();
        }
        server.break_after(&[900_000]);
        server.change_after(1 << 20);
        let to = dir.path().join("f").display().to_string();
        let options = with_streams(streams, options_with_retries());
        let (summary, _) = copy(&server.url("/f"), &to, &options).await;
        assert_eq!(
            summary.exit,
            Exit::Integrity,
            "{plain} {streams}: {summary:?}"
        );
        assert!(!dir.path().join("f").exists(), "{plain} {streams}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_ranges_sends_the_whole_file_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    server.ignore_ranges();
    server.break_after(&[6 << 20]);
    let local_path = dir.path().join("f");
    let to = local_path.display().to_string();
    let (summary, _) = copy(
        &server.url("/f"),
        &to,
        &with_streams(4, options_with_retries()),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(summary.verified, "sha256");
    assert!(std::fs::read(&local_path).unwrap() == bytes);
    assert!(summary.bytes < LENGTH as u64 + LOST, "{}", summary.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn relayed_copies_from_and_to_a_web_server_are_verified() {
    let (server, bytes) = server();
    let store = MemoryStore::named("web");
    for streams in [1, 4] {
        let to = format!("http://web.memory.invalid/{streams}");
        let (summary, warnings) = copy(
            &server.url("/f"),
            &to,
            &with_streams(streams, options_with_retries()),
        )
        .await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert_eq!((summary.verified.as_str(), warnings.len()), ("sha256", 0));
        assert!(store.get(&format!("/{streams}")).as_ref() == Some(&bytes));
    }
    assert_eq!(server.sent(), 2 * LENGTH as u64);
    let (summary, _) = copy("http://web.memory.invalid/1", &server.url("/g"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(server.get("/g") == Some(bytes));
    assert_eq!(server.paths(), ["/f", "/g"], "no partial file is left");
    assert_eq!(summary.verified, "sha256");
    server.omit_digests_and_etags();
    for (from, to, verified) in [
        (
            server.url("/f"),
            "http://web.memory.invalid/plain".to_owned(),
            "crc32c",
        ),
        (
            "http://web.memory.invalid/1".to_owned(),
            server.url("/plain"),
            "size",
        ),
    ] {
        let (summary, _) = copy(&from, &to, &options()).await;
        assert_eq!(
            (summary.exit, summary.verified.as_str()),
            (Exit::Done, verified)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_at_either_end_fails() {
    let (server, bytes) = server();
    server.send_wrong_digests();
    let store = MemoryStore::named("web.lies");
    store.put("/f", &bytes, 1_000_000_000);
    let dir = tempfile::tempdir().unwrap();
    let local_path = dir.path().join("f");
    std::fs::write(&local_path, &bytes).unwrap();
    for (from, to) in [
        (
            server.url("/f"),
            "http://web.lies.memory.invalid/g".to_owned(),
        ),
        (
            "http://web.lies.memory.invalid/f".to_owned(),
            server.url("/g"),
        ),
        (local_path.display().to_string(), server.url("/g")),
    ] {
        let (summary, _) = copy(&from, &to, &options()).await;
        assert_eq!(summary.exit, Exit::Integrity, "{from}: {summary:?}");
    }
    assert_eq!((store.get("/g"), server.get("/g")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_relay_starts_over_and_stores_no_incomplete_file() {
    let (server, bytes) = server();
    let store = MemoryStore::named("web.breaks");
    server.break_after(&[3 << 20]);
    let (summary, _) = copy(
        &server.url("/f"),
        "http://web.breaks.memory.invalid/f",
        &options_with_retries(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(store.get("/f").as_ref() == Some(&bytes));
    store.break_after(&[3 << 20]);
    let (summary, _) = copy(
        "http://web.breaks.memory.invalid/f",
        &server.url("/up"),
        &options_with_retries(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(server.get("/up") == Some(bytes));
    assert_eq!(server.paths(), ["/f", "/up"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_uploaded_and_downloaded() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("t/a b")).unwrap();
    for name in ["t/one", "t/two%41.nc", "t/a b/three?.nc"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let recursive = options().with(|o| o.tree.recursive = true);
    let server = WebDavServer::start();
    let from = dir.path().join("t").display().to_string();
    let (summary, _) = copy(&from, &server.url("/up/"), &recursive).await;
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Done, 3),
        "{summary:?}"
    );
    assert_eq!(
        server.paths(),
        ["/up/a b/three?.nc", "/up/one", "/up/two%41.nc"]
    );
    let back = dir.path().join("back");
    let (summary, _) = copy(&server.url("/up"), &back.display().to_string(), &recursive).await;
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Done, 3),
        "{summary:?}"
    );
    let three = std::fs::read(back.join("a b/three?.nc")).unwrap();
    assert_eq!(three, b"t/a b/three?.nc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_is_asked_again_after_the_time_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    let local_path = dir.path().join("f");
    let to = local_path.display().to_string();
    let copying = async |from: String, to: String| {
        let waits = Arc::new(RecordedWaits::default());
        let observer = Arc::clone(&waits) as Arc<dyn CopyObserver>;
        // With several connections, the others would fetch what the refused one asked for.
        let options = with_streams(1, options_with_retries());
        let summary = crate::copy(&[from], &to, &options, observer).await;
        let waits = waits.0.lock().clone();
        (summary.exit, waits)
    };
    for method in ["PROPFIND", "HEAD", "GET"] {
        server.refuse_once(method, 2);
        let (exit, waits) = copying(server.url("/f"), to.clone()).await;
        assert_eq!(exit, Exit::Done, "{method}");
        assert!(std::fs::read(&local_path).unwrap() == bytes);
        let asked = waits
            .first()
            .is_some_and(|wait| *wait > Duration::from_millis(1500));
        assert!(asked, "{method} {waits:?}");
    }
    server.refuse_once("PUT", 0);
    let (exit, waits) = copying(to.clone(), server.url("/g")).await;
    assert_eq!((exit, waits.len()), (Exit::Done, 1));
    assert!(server.get("/g") == Some(bytes));
    server.refuse_once("PROPFIND", 3600);
    let (exit, waits) = copying(server.url("/f"), to).await;
    assert_eq!((exit, waits.len()), (Exit::Unreachable, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_is_asked_again_to_make_directories_and_to_delete() {
    let (server, bytes) = server();
    server.make_collection("/d");
    server.put("/d/extra", &bytes);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("new")).unwrap();
    std::fs::write(dir.path().join("new/x"), b"x").unwrap();
    // A directory that tells both trees apart is made and removed first.
    for method in ["MKCOL", "MKCOL", "DELETE", "DELETE"] {
        server.refuse_once(method, 0);
    }
    let options = SyncOptions {
        copy: options_with_retries(),
        delete: true,
        checksum: false,
    };
    let waits = Arc::new(RecordedWaits::default());
    let from = dir.path().display().to_string();
    let summary = crate::sync(&from, &server.url("/d"), &options, waits.clone()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(server.paths(), ["/d/new/x", "/f"]);
    assert_eq!(waits.0.lock().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_an_earlier_run_are_kept_only_if_the_tag_is_still_theirs() {
    let other: Vec<u8> = content(10, LENGTH);
    for is_tagged in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (server, bytes) = server();
        if !is_tagged {
            server.omit_digests_and_etags();
        }
        let local_path = dir.path().join("f");
        let to = local_path.display().to_string();
        let resuming = with_streams(1, options()).with(|o| {
            o.file.resume = true;
            o.file.verify = crate::options::VerifyMode::None;
        });
        let mut sent = 0;
        for expected in [&bytes, &other] {
            server.put("/f", &bytes);
            server.break_after(&[5 << 20]);
            let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
            assert_eq!(summary.exit, Exit::Unreachable);
            let before = server.sent();
            server.put("/f", expected);
            let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
            assert_eq!(summary.exit, Exit::Done, "{summary:?}");
            assert!(std::fs::read(&local_path).unwrap() == *expected);
            std::fs::remove_file(&local_path).unwrap();
            sent = server.sent() - before;
            assert_eq!(sent, LENGTH as u64, "each put is another version");
        }
        assert!(sent > 0);
    }
}
