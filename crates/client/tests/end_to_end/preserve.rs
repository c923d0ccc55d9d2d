//! Permissions and times that copies keep.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use client::{CopyEvent, CopyOptions, Exit, Preserve, PreservedTimes, SyncOptions};

use crate::support::{EndToEndServer, EventRecorder, copy, options};

const LONG_AGO: u64 = 1_500_000_000;

fn keeping(preserve: Preserve) -> CopyOptions {
    CopyOptions {
        recursive: true,
        preserve,
        ..options()
    }
}

const ALL: Preserve = Preserve {
    times: PreservedTimes::FilesAndDirectories,
    modes: true,
    hard_links: true,
};

fn set(path: &Path, mode: u32, seconds: u64) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A tree of small files and a large one, a read-only directory, and a program that runs as its owner.
fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("d/read-only")).unwrap();
    let files = [
        ("d/a", 0o600),
        ("d/b", 0o755),
        ("d/read-only/c", 0o444),
        ("setuid", 0o4711),
        ("plain", 0o644),
        ("large", 0o640),
    ];
    for (seconds, (name, mode)) in (LONG_AGO..).zip(files) {
        let path = top.join(name);
        let length = if name == "large" { 17 << 20 } else { 100 };
        fs::write(&path, vec![7; length]).unwrap();
        set(&path, mode, seconds);
    }
    set(&top.join("d/read-only"), 0o555, LONG_AGO + 10);
    set(&top.join("d"), 0o750, LONG_AGO + 11);
    set(top, 0o711, LONG_AGO + 12);
}

/// Permissions and times below and at `top`.
fn metadata(top: &Path) -> Vec<(String, u32, i64)> {
    let names = [
        "",
        "d",
        "d/a",
        "d/b",
        "d/read-only",
        "d/read-only/c",
        "setuid",
        "plain",
        "large",
    ];
    let of = |name: &str| {
        let meta = fs::metadata(top.join(name)).unwrap();
        (name.to_owned(), meta.mode() & 0o7777, meta.mtime())
    };
    names.into_iter().map(of).collect()
}

/// What a copy has: no setuid bit.
fn expected(top: &Path) -> Vec<(String, u32, i64)> {
    let all = metadata(top).into_iter();
    all.map(|(name, mode, time)| (name, mode & 0o777, time))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_and_times_are_kept_in_all_directions() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let workdir = tempfile::tempdir().unwrap();
    let (from, back, local) = (
        workdir.path().join("from"),
        workdir.path().join("back"),
        workdir.path().join("local"),
    );
    make_tree(&from);
    let copies = [
        (
            from.to_str().unwrap().to_owned(),
            local.to_str().unwrap().to_owned(),
            local.clone(),
        ),
        (
            from.to_str().unwrap().to_owned(),
            server.user_url("t"),
            server.root().join("t"),
        ),
        (
            server.url("t"),
            back.to_str().unwrap().to_owned(),
            back.clone(),
        ),
        (
            server.user_url("t"),
            other.user_url("t"),
            other.root().join("t"),
        ),
    ];
    for (source, destination, there) in copies {
        let (summary, events) = copy(&[&source], &destination, &keeping(ALL)).await;
        assert_eq!(
            summary.exit,
            Exit::Done,
            "{source}: {:?}",
            summary.first_failure
        );
        assert_eq!(events.warnings(), [""; 0], "{source} {destination}");
        assert_eq!(metadata(&there), expected(&from), "{source} {destination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_times_of_files_are_kept_by_default_and_nothing_with_none() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("from");
    make_tree(&from);
    let source = from.to_str().unwrap();
    let is_old = |path: &Path| fs::metadata(path).unwrap().mtime() < 1_600_000_000;
    for (name, preserve) in [
        ("default", Preserve::default()),
        (
            "none",
            Preserve {
                times: PreservedTimes::None,
                ..Preserve::default()
            },
        ),
    ] {
        let local = workdir.path().join(name);
        for (destination, there) in [
            (server.url(name), server.root().join(name)),
            (local.to_str().unwrap().to_owned(), local.clone()),
        ] {
            let (summary, _) = copy(&[source], &destination, &keeping(preserve)).await;
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            for file in ["d/a", "large"] {
                assert_eq!(
                    is_old(&there.join(file)),
                    name == "default",
                    "{destination}"
                );
            }
            assert!(!is_old(&there.join("d")));
            let mode = fs::metadata(there.join("d/b")).unwrap().mode();
            assert_eq!(mode & 0o111, 0, "the umask decides");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_keeps_the_times_of_directories_after_it_has_deleted() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("from");
    make_tree(&from);
    server.store("t/d/extra", b"x");
    let options = SyncOptions {
        copy: keeping(ALL),
        delete: true,
        checksum: false,
    };
    for copied in [6, 0] {
        let recorder = std::sync::Arc::new(EventRecorder::default());
        let (source, there) = (from.to_str().unwrap(), server.url("t"));
        let summary = client::sync(source, &there, &options, recorder.clone()).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.files, copied);
        assert!(!server.root().join("t/d/extra").exists());
        assert_eq!(metadata(&server.root().join("t")), expected(&from));
        let warned = |event: &CopyEvent| matches!(event, CopyEvent::Warning(_));
        assert_eq!(recorder.count(warned), 0);
    }
}
