//! One tree made like another.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use copy::{CopyEvent, CopySummary, Exit, Selection, SyncOptions};

use crate::support::{EndToEndServer, EventRecorder, options};

/// Options of a sync that deletes nothing.
pub(crate) fn syncing() -> SyncOptions {
    SyncOptions {
        copy: options().with(|o| o.tree.recursive = true),
        delete: false,
        checksum: false,
    }
}

/// Syncs, and returns the summary and the events.
pub(crate) async fn sync(
    from: &str,
    to: &str,
    options: &SyncOptions,
) -> (CopySummary, Arc<EventRecorder>) {
    let recorder = Arc::new(EventRecorder::default());
    let summary = copy::sync(from, to, options, recorder.clone()).await;
    (summary, recorder)
}

fn write(top: &Path, path: &str, text: &str, seconds: u64) {
    let path = top.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

fn source() -> tempfile::TempDir {
    let source = tempfile::tempdir().unwrap();
    for n in 0..20 {
        let path = format!("d{}/{n}", n % 3);
        write(
            source.path(),
            &path,
            &format!("text {n}"),
            1_700_000_000 + n,
        );
    }
    fs::create_dir(source.path().join("empty")).unwrap();
    source
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_differs_is_copied_in_both_directions() {
    let server = EndToEndServer::start().await;
    let source = source();
    let there = server.url("t");
    let (summary, _) = sync(text(source.path()), &there, &syncing()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.files, 20);
    assert!(server.root().join("t/empty").is_dir());
    // An unfinished file of another copy is no file of the tree.
    write(
        source.path(),
        "d1/u.longhaul-partial",
        "half",
        1_700_000_000,
    );
    // A slash at the end means nothing.
    let (summary, _) = sync(text(source.path()), &format!("{there}/"), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 0));
    // Another size, another time, a new file.
    write(source.path(), "d1/1", "longer text", 1_700_000_001);
    write(source.path(), "d2/2", "TEXT 2", 1_700_000_500);
    write(source.path(), "new/x", "x", 1_700_000_000);
    let (summary, _) = sync(text(source.path()), &there, &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    assert_eq!(server.read("t/d1/1"), b"longer text");
    assert_eq!(server.read("t/d2/2"), b"TEXT 2");
    let back = tempfile::tempdir().unwrap();
    let (summary, _) = sync(&there, text(back.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 21));
    let (summary, _) = sync(&there, text(back.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_find_what_size_and_time_do_not_show() {
    let server = EndToEndServer::start().await;
    let source = source();
    let there = server.url("t");
    sync(text(source.path()), &there, &syncing()).await;
    write(source.path(), "d1/1", "TEXT 1", 1_700_000_001);
    let (summary, _) = sync(text(source.path()), &there, &syncing()).await;
    assert_eq!(summary.files, 0);
    let by_checksum = SyncOptions {
        checksum: true,
        ..syncing()
    };
    let (summary, _) = sync(text(source.path()), &there, &by_checksum).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
    assert_eq!(server.read("t/d1/1"), b"TEXT 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_does_not_have_is_deleted_if_that_is_asked_for() {
    let server = EndToEndServer::start().await;
    let source = source();
    let there = server.url("t");
    sync(text(source.path()), &there, &syncing()).await;
    for extra in [
        "t/extra",
        "t/d1/extra",
        "t/old/a/b",
        "t/d1/u.longhaul-partial",
    ] {
        server.store(extra, b"old");
    }
    let mut deleting = SyncOptions {
        delete: true,
        ..syncing()
    };
    deleting.copy.dry_run = true;
    let (summary, events) = sync(text(source.path()), &there, &deleting).await;
    assert_eq!((summary.exit, summary.deleted), (Exit::Done, 0));
    let would = |event: &CopyEvent| matches!(event, CopyEvent::WouldDelete { .. });
    assert_eq!(events.count(would), 3);
    assert!(server.root().join("t/extra").exists());
    deleting.copy.dry_run = false;
    let (summary, _) = sync(text(source.path()), &there, &deleting).await;
    assert_eq!((summary.exit, summary.deleted), (Exit::Done, 3));
    for gone in ["t/extra", "t/d1/extra", "t/old"] {
        assert!(!server.root().join(gone).exists(), "{gone}");
    }
    assert!(server.root().join("t/d1/u.longhaul-partial").exists());
    assert_eq!(server.read("t/d1/1"), b"text 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_files_and_what_is_below_skipped_paths_are_not_deleted() {
    let server = EndToEndServer::start().await;
    let source = source();
    // A link, which is skipped, where the destination has a directory.
    std::os::unix::fs::symlink("d1", source.path().join("link")).unwrap();
    let local = tempfile::tempdir().unwrap();
    let deleting = SyncOptions {
        delete: true,
        ..syncing()
    };
    for (to, top) in [
        (server.url("t"), server.root().join("t")),
        (text(local.path()).to_owned(), local.path().to_owned()),
    ] {
        write(&top, "extra/deep/u.longhaul-partial", "half", 1);
        write(&top, "extra/deep/gone", "x", 1);
        write(&top, "extra/other/gone", "x", 1);
        write(&top, "link/deep/kept", "x", 1);
        let (summary, _) = sync(text(source.path()), &to, &deleting).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(top.join("extra/deep/u.longhaul-partial").exists(), "{to}");
        assert!(top.join("link/deep/kept").exists(), "{to}");
        assert!(!top.join("extra/deep/gone").exists(), "{to}");
        assert!(!top.join("extra/other").exists(), "{to}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_for_an_empty_or_incomplete_source() {
    let server = EndToEndServer::start().await;
    server.store("t/kept", b"kept");
    let empty = tempfile::tempdir().unwrap();
    let deleting = SyncOptions {
        delete: true,
        ..syncing()
    };
    let (summary, _) = sync(text(empty.path()), &server.url("t"), &deleting).await;
    assert_eq!((summary.exit, summary.deleted), (Exit::Refused, 0));
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("nothing was deleted"), "{message}");
    // A file that cannot replace a directory.
    fs::write(empty.path().join("x"), "x").unwrap();
    server.store("t/x/y", b"y");
    let (summary, _) = sync(text(empty.path()), &server.url("t"), &deleting).await;
    assert_eq!(summary.deleted, 0);
    assert_ne!(summary.exit, Exit::Done);
    assert_eq!(server.read("t/kept"), b"kept");
    let missing = empty.path().join("missing");
    let (summary, _) = sync(text(&missing), &server.url("t"), &deleting).await;
    assert_eq!((summary.exit, summary.deleted), (Exit::NotFound, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_left_out_are_left_alone() {
    let server = EndToEndServer::start().await;
    let source = source();
    server.store("t/notes.log", b"log");
    server.store("t/other", b"old");
    let mut deleting = SyncOptions {
        delete: true,
        ..syncing()
    };
    let mut selection = Selection::default();
    selection.exclude("*.log").unwrap();
    deleting.copy.tree.selection = selection;
    let (summary, _) = sync(text(source.path()), &server.url("t"), &deleting).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.deleted, 1);
    assert_eq!(server.read("t/notes.log"), b"log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_and_a_tree_in_it_are_not_synced() {
    let source = source();
    let inside = source.path().join("d1");
    for (a, b) in [(source.path(), inside.as_path()), (&inside, source.path())] {
        let (summary, _) = sync(text(a), text(b), &syncing()).await;
        assert_eq!(summary.exit, Exit::Usage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_synced_between_servers() {
    let (a, b) = (EndToEndServer::start().await, EndToEndServer::start().await);
    for n in 0..5 {
        a.store(&format!("t/d/{n}"), &[n; 10]);
    }
    let (summary, _) = sync(&a.user_url("t"), &b.user_url("u"), &syncing()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.files, 5);
    let (summary, _) = sync(&a.user_url("t"), &b.user_url("u"), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn slashes_at_the_end_have_no_meaning_for_a_sync() {
    let server = EndToEndServer::start().await;
    let source = source();
    let workdir = tempfile::tempdir().unwrap();
    let there = server.url("t");
    let mut n = 0;
    for (from_end, to_end) in [("", ""), ("/", ""), ("", "/"), ("/", "/")] {
        n += 1;
        let back = workdir.path().join(n.to_string());
        for exists in [false, true] {
            let from = format!("{}{from_end}", text(source.path()));
            let to = format!("{there}{n}{to_end}");
            let (summary, _) = sync(&from, &to, &syncing()).await;
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            assert_eq!(summary.files == 0, exists, "{from} {to}");
            assert!(server.root().join(format!("t{n}/d1/1")).is_file());
            let (from, to) = (
                format!("{there}{n}{from_end}"),
                format!("{}{to_end}", text(&back)),
            );
            let (summary, _) = sync(&from, &to, &syncing()).await;
            assert_eq!(
                (summary.exit, summary.files == 0),
                (Exit::Done, exists),
                "{from} {to}"
            );
            assert!(back.join("d1/1").is_file());
        }
    }
}
