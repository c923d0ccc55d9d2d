//! Many small files in one transfer.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use copy::{CopyEvent, CopyOptions, Exit, ModeChoice, VerifyMode};

use crate::support::{EndToEndServer, copy, file_names, options};

fn recursive() -> CopyOptions {
    options().with(|o| o.tree.recursive = true)
}

fn content(n: usize) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); n]
}

/// Files `0`, `1`, ... of as many bytes, all modified at one time.
fn make_files(directory: &Path, count: usize) {
    fs::create_dir_all(directory).unwrap();
    for n in 0..count {
        let path = directory.join(n.to_string());
        fs::write(&path, content(n)).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        file.set_modified(time).unwrap();
    }
}

fn assert_files(directory: &Path, count: usize) {
    assert_eq!(file_names(directory).len(), count);
    for n in 0..count {
        let path = directory.join(n.to_string());
        assert_eq!(fs::read(&path).unwrap(), content(n), "{n}");
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 1_700_000_000, "{n}");
    }
}

/// Records of the server's log of transfers, which has one for each bundle.
fn transfers(log: &Path) -> usize {
    fs::read_to_string(log).unwrap().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_files_are_few_transfers_in_both_directions() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let server = EndToEndServer::with(|config| config.transfer_log = Some(log.clone())).await;
    let (from, back) = (scratch.path().join("from"), scratch.path().join("back"));
    make_files(&from, 300);
    for mode in [ModeChoice::Auto, ModeChoice::Stream] {
        let options = recursive().with(|o| o.streams.mode = mode);
        let before = fs::read_to_string(&log).map_or(0, |text| text.lines().count());
        let source = from.to_str().unwrap();
        let (summary, events) = copy(&[source], &server.url("t"), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!((summary.files, summary.bytes), (300, (0..300).sum()));
        assert_eq!(summary.verified, "crc32c");
        let finished = |event: &CopyEvent| matches!(event, CopyEvent::Finished { .. });
        assert_eq!(events.count(finished), 300);
        assert_files(&server.root().join("t"), 300);
        let (summary, _) = copy(&[&server.url("t")], back.to_str().unwrap(), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_files(&back, 300);
        let moved = transfers(&log) - before;
        // Listings are in the log, too.
        assert!(moved < 20, "{moved} transfers in {mode:?}");
        fs::remove_dir_all(&back).unwrap();
        fs::remove_dir_all(server.root().join("t")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_files_keep_their_permissions() {
    let scratch = tempfile::tempdir().unwrap();
    let server = EndToEndServer::start().await;
    make_files(&server.root().join("t"), 40);
    let there = scratch.path().join("t");
    fs::create_dir(&there).unwrap();
    let permissions = |name: &str| {
        let meta = fs::metadata(there.join(name)).unwrap();
        meta.permissions().mode() & 0o7777
    };
    for (name, mode) in [("1", 0o600), ("2", 0o6750)] {
        fs::write(there.join(name), "old").unwrap();
        fs::set_permissions(there.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(there.join("usual"), "").unwrap();
    let to = scratch.path().to_str().unwrap();
    let (summary, _) = copy(&[&server.url("t")], to, &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(permissions("1"), 0o600);
    assert_eq!(permissions("2"), 0o750, "without setuid and setgid");
    assert_eq!(permissions("3"), permissions("usual"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_a_bundle_cannot_move_are_copied_alone_or_named() {
    let server = EndToEndServer::start().await;
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    make_files(&from, 10);
    fs::create_dir_all(&to).unwrap();
    // A link at the destination is what the link leads to; a directory cannot be replaced.
    fs::write(scratch.path().join("target"), "old").unwrap();
    symlink(scratch.path().join("target"), to.join("5")).unwrap();
    fs::create_dir(to.join("7")).unwrap();
    let sources: Vec<String> = (0..10).map(|n| server.url(&n.to_string())).collect();
    make_files(&server.root(), 10);
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let (summary, _) = copy(&sources, to.to_str().unwrap(), &options()).await;
    assert_eq!((summary.files, summary.failed), (9, 1));
    assert_eq!(summary.exit, Exit::Partial);
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("/7"), "{message}");
    for n in [0, 4, 5, 6, 9] {
        assert_eq!(fs::read(to.join(n.to_string())).unwrap(), content(n));
    }
    let partial = |name: &String| name.contains("longhaul-partial");
    assert!(
        !file_names(&to).iter().any(partial),
        "{:?}",
        file_names(&to)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_files_fail_alone() {
    // Root reads everything.
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: unreadable_files_fail_alone: this is root");
        return;
    }
    let server = EndToEndServer::start().await;
    let scratch = tempfile::tempdir().unwrap();
    let from = scratch.path().join("from");
    make_files(&from, 10);
    fs::set_permissions(from.join("4"), fs::Permissions::from_mode(0o000)).unwrap();
    let source = from.to_str().unwrap();
    let (summary, _) = copy(&[source], &server.url("t"), &recursive()).await;
    assert_eq!((summary.files, summary.failed), (9, 1));
    assert!(!server.root().join("t/4").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_algorithm_that_does_not_combine_is_computed_for_each_file() {
    let server = EndToEndServer::start().await;
    let scratch = tempfile::tempdir().unwrap();
    let from = scratch.path().join("from");
    make_files(&from, 10);
    let options = recursive()
        .with(|o| o.file.verify = VerifyMode::With(proto::checksum::ChecksumAlgorithm::Sha256));
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("t"), &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "sha256");
    assert_files(&server.root().join("t"), 10);
}
