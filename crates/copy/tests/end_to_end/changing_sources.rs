//! Local sources that change while they are copied.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use copy::{CopyOptions, Exit, VerifyMode};

use crate::faulty_server::FaultyServer;
use crate::support::{EndToEndServer, Intruder, copy_with, options, random_bytes, rate_limited};

const SIZE: usize = 17 << 20;

fn slowly() -> CopyOptions {
    options().with(|o| o.streams.transfer = rate_limited(24 << 20))
}

/// A change of a file that happens while it is copied.
type SourceChange = fn(&Path);

/// Other bytes of the same length, within the same second.
fn rewrite(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&vec![0; SIZE], 0).unwrap();
    file.set_modified(time + std::time::Duration::from_nanos(1))
        .unwrap();
}

/// As [`rewrite`], by one who hides it.
fn rewrite_and_set_the_time_back(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&vec![0; SIZE], 0).unwrap();
    file.set_modified(time).unwrap();
}

fn change_mode(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
}

fn add_name(path: &Path) {
    fs::hard_link(path, path.with_extension("linked")).unwrap();
}

/// A source whose time has no fraction of a second.
fn source(directory: &Path) -> String {
    let path = directory.join("source");
    fs::write(&path, random_bytes(SIZE)).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    file.set_modified(time).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn copy_while(
    change: SourceChange,
    to: &str,
    options: &CopyOptions,
) -> (copy::CopySummary, Vec<String>) {
    let workdir = tempfile::tempdir().unwrap();
    let from = source(workdir.path());
    let path = from.clone();
    let intruder = Intruder::new(move || change(Path::new(&path)));
    let summary = copy_with(&intruder, &from, to, options).await;
    (summary, intruder.events.warnings())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_rewritten_within_the_same_second_is_not_copied_as_a_mixture() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("copy").to_str().unwrap().to_owned();
    let unverified = slowly().with(|o| o.file.verify = VerifyMode::None);
    for to in [server.url("copy"), local] {
        for (change, options) in [
            (rewrite as SourceChange, slowly()),
            (rewrite, unverified.clone()),
            (rewrite_and_set_the_time_back, slowly()),
        ] {
            let (summary, _) = copy_while(change, &to, &options).await;
            assert_eq!(summary.exit, Exit::Integrity, "{:?}", summary.first_failure);
            let message = summary.first_failure.unwrap().to_string();
            assert!(message.contains("changed while"), "{message}");
        }
    }
    assert!(!here.path().join("copy").exists() && !server.root().join("copy").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_whose_attributes_alone_change_is_looked_at_again_and_copied() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("copy");
    let to_here = local.to_str().unwrap().to_owned();
    for to in [server.url("copy"), to_here] {
        for change in [change_mode as SourceChange, add_name] {
            let (summary, warnings) = copy_while(change, &to, &slowly()).await;
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            assert_eq!(summary.verified, "crc32c");
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }
    for copy in [local, server.root().join("copy")] {
        assert!(fs::read(copy).unwrap() == random_bytes(SIZE));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_checksum_a_source_whose_attributes_change_is_copied_again() {
    let here = tempfile::tempdir().unwrap();
    let unverified = slowly().with(|o| o.file.verify = VerifyMode::None);
    let changes: [(SourceChange, _, _); 2] = [
        (change_mode, random_bytes(SIZE), false),
        (rewrite_and_set_the_time_back, vec![0; SIZE], true),
    ];
    for (change, content, has_other_time) in changes {
        // On a slow machine a look may come before the time is set back.
        let was_seen = |summary: &copy::CopySummary| {
            has_other_time
                && summary.exit == Exit::Integrity
                && summary.first_failure.as_ref().is_some_and(|failure| {
                    failure.to_string().contains("changed while it was copied")
                })
        };
        let faulty = FaultyServer::default();
        let to = format!("ftp://{}/copy", faulty.start());
        let (summary, warnings) = copy_while(change, &to, &slowly()).await;
        if !was_seen(&summary) {
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            assert_eq!(summary.verified, "size");
            let told = |warning: &String| warning.contains("no checksum shows");
            assert!(warnings.iter().any(told), "{warnings:?}");
            assert!(faulty.files.lock().unwrap()["/copy"] == content);
        }

        let local = here.path().join("copy");
        let to = local.to_str().unwrap();
        let (summary, _) = copy_while(change, to, &unverified).await;
        if !was_seen(&summary) {
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            assert!(fs::read(&local).unwrap() == content);
            fs::remove_file(&local).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_rewritten_while_its_server_sends_it_is_never_a_mixture() {
    for change in [rewrite as SourceChange, rewrite_and_set_the_time_back] {
        let server = EndToEndServer::start().await;
        source(&server.root());
        let path = server.root().join("source");
        let intruder = Intruder::new(move || change(&path));
        let workdir = tempfile::tempdir().unwrap();
        let copy = workdir.path().join("copy");
        let (from, to) = (server.url("source"), copy.to_str().unwrap());
        let summary = copy_with(&intruder, &from, to, &slowly()).await;
        // On a busy machine a look may come between the bytes and the time of the change...
        if let Some(failure) = &summary.first_failure {
            assert_eq!(summary.exit, Exit::Integrity, "{failure:?}");
            assert!(failure.to_string().contains("changed while"), "{failure}");
            assert!(!copy.exists());
            continue;
        }
        assert_eq!(summary.verified, "crc32c");
        // ... or the change when the server has read all of the file.
        let copied = fs::read(copy).unwrap();
        let new = copied.iter().filter(|byte| **byte == 0).count();
        assert!(
            new == SIZE || copied == random_bytes(SIZE),
            "a mixture of both versions: {new} of {SIZE} bytes are new"
        );
    }
}
