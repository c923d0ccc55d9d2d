//! The one way for a copy, over a web server that does as it is told.

use std::path::Path;

use super::tests::{LENGTH, copy, retrying};
use crate::batch::tests::options;
use crate::storage::conformance::content;
use crate::storage::memory::MemoryStore;
use crate::storage::webdav::WebDavServer;
use crate::{CopyOptions, Exit, Parallelism};

/// Bytes that may be sent again after a break: those that were on their way.
const LOST: u64 = 1 << 20;

/// A server with the file `/f`.
fn server() -> (WebDavServer, Vec<u8>) {
    let (server, bytes) = (WebDavServer::start(), content(9, LENGTH));
    server.put("/f", &bytes);
    (server, bytes)
}

fn with_streams(streams: u32, options: CopyOptions) -> CopyOptions {
    CopyOptions {
        parallelism: Parallelism::Fixed(streams),
        ..options
    }
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
async fn several_connections_bring_one_file_and_its_sum_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    let here = dir.path().join("f");
    let to = here.display().to_string();
    let (summary, warnings) = copy(&server.url("/f"), &to, &with_streams(4, options())).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!((summary.verified.as_str(), warnings.len()), ("sha256", 0));
    assert!(std::fs::read(&here).unwrap() == bytes);
    assert_eq!(server.sent(), LENGTH as u64);
    // One of them was there before, to look.
    assert!(
        (4..=6).contains(&server.connections()),
        "{}",
        server.connections()
    );
    server.lie();
    let other = dir.path().join("g").display().to_string();
    let (summary, _) = copy(&server.url("/f"), &other, &options()).await;
    assert_eq!(summary.exit, Exit::Integrity);
    assert!(!dir.path().join("g").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_that_breaks_goes_on_and_moves_nothing_twice() {
    for streams in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        let (server, bytes) = server();
        server.break_after(&[900_000, 700_000]);
        let here = dir.path().join("f");
        let to = here.display().to_string();
        let options = with_streams(streams, retrying());
        let (summary, _) = copy(&server.url("/f"), &to, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{streams}: {summary:?}");
        assert_eq!(summary.verified, "sha256");
        assert!(std::fs::read(&here).unwrap() == bytes);
        assert_eq!(names(dir.path()), ["f"]);
        // Several streams stop in the middle of what they were asked.
        let most = LENGTH as u64 + LOST + if streams > 1 { 6 << 20 } else { 0 };
        assert!(server.sent() < most, "{streams}: {}", server.sent());
        assert!(summary.bytes < LENGTH as u64 + LOST, "{}", summary.bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_goes_on_from_what_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    server.break_after(&[5 << 20]);
    let here = dir.path().join("f");
    let to = here.display().to_string();
    let resuming = CopyOptions {
        resume: true,
        ..with_streams(1, options())
    };
    let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert!(!here.exists());
    let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&here).unwrap() == bytes);
    assert!(server.sent() < LENGTH as u64 + LOST, "{}", server.sent());
    let before = server.sent();
    let (summary, _) = copy(&server.url("/f"), &to, &resuming).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Done, 0));
    assert_eq!(server.sent(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_meanwhile_is_none() {
    for (plain, streams) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let (server, _) = server();
        if plain {
            server.make_plain();
        }
        server.break_after(&[900_000]);
        server.change_after(1 << 20);
        let to = dir.path().join("f").display().to_string();
        let options = with_streams(streams, retrying());
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
async fn a_server_that_ignores_ranges_sends_all_and_what_is_here_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (server, bytes) = server();
    server.ignore_ranges();
    server.break_after(&[6 << 20]);
    let here = dir.path().join("f");
    let to = here.display().to_string();
    let (summary, _) = copy(&server.url("/f"), &to, &with_streams(4, retrying())).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(summary.verified, "sha256");
    assert!(std::fs::read(&here).unwrap() == bytes);
    assert!(summary.bytes < LENGTH as u64 + LOST, "{}", summary.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_here_from_and_to_a_web_server_is_verified() {
    let (server, bytes) = server();
    let shelf = MemoryStore::named("web");
    for streams in [1, 4] {
        let to = format!("memory://web/{streams}");
        let (summary, warnings) =
            copy(&server.url("/f"), &to, &with_streams(streams, retrying())).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert_eq!((summary.verified.as_str(), warnings.len()), ("sha256", 0));
        assert!(shelf.get(&format!("/{streams}")).as_ref() == Some(&bytes));
    }
    assert_eq!(server.sent(), 2 * LENGTH as u64);
    let (summary, _) = copy("memory://web/1", &server.url("/g"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(server.get("/g") == Some(bytes));
    assert_eq!(server.paths(), ["/f", "/g"], "nothing is left beside it");
    assert_eq!(summary.verified, "sha256");
    server.make_plain();
    for (from, to, verified) in [
        (server.url("/f"), "memory://web/plain".to_owned(), "crc32c"),
        ("memory://web/1".to_owned(), server.url("/plain"), "size"),
    ] {
        let (summary, _) = copy(&from, &to, &options()).await;
        assert_eq!(
            (summary.exit, summary.verified.as_str()),
            (Exit::Done, verified)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_sum_is_found_at_either_end() {
    let (server, bytes) = server();
    server.lie();
    let shelf = MemoryStore::named("web.lies");
    shelf.put("/f", &bytes, 1_000_000_000);
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().join("f");
    std::fs::write(&here, &bytes).unwrap();
    for (from, to) in [
        (server.url("/f"), "memory://web.lies/g".to_owned()),
        ("memory://web.lies/f".to_owned(), server.url("/g")),
        (here.display().to_string(), server.url("/g")),
    ] {
        let (summary, _) = copy(&from, &to, &options()).await;
        assert_eq!(summary.exit, Exit::Integrity, "{from}: {summary:?}");
    }
    assert_eq!((shelf.get("/g"), server.get("/g")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_breaks_starts_over_and_never_stores_a_part() {
    let (server, bytes) = server();
    let shelf = MemoryStore::named("web.breaks");
    server.break_after(&[3 << 20]);
    let (summary, _) = copy(&server.url("/f"), "memory://web.breaks/f", &retrying()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(shelf.get("/f").as_ref() == Some(&bytes));
    shelf.break_after(&[3 << 20]);
    let (summary, _) = copy("memory://web.breaks/f", &server.url("/up"), &retrying()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(server.get("/up") == Some(bytes));
    assert_eq!(server.paths(), ["/f", "/up"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_go_up_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("t/a b")).unwrap();
    for name in ["t/one", "t/two%41.nc", "t/a b/three?.nc"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let recursive = CopyOptions {
        recursive: true,
        ..options()
    };
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
