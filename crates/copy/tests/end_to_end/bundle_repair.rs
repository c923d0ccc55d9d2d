//! Bundles of which some bytes are wrong at one end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use copy::{CopyEvent, CopyOptions, CopySummary, Exit};

use crate::control_proxy::control_proxy;
use crate::support::{EndToEndServer, EventRecorder, copy, file_names, options};

const FILES: usize = 40;
/// Size of each file, bytes.
const SIZE: usize = 1000;

fn recursive() -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.retry.retries = 0;
    })
}

fn content(n: usize) -> Vec<u8> {
    vec![u8::try_from(n).unwrap(); SIZE]
}

fn make_files(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for n in 0..FILES {
        fs::write(directory.join(n.to_string()), content(n)).unwrap();
    }
}

fn assert_files(directory: &Path) {
    assert_eq!(file_names(directory).len(), FILES);
    for n in 0..FILES {
        assert_eq!(fs::read(directory.join(n.to_string())).unwrap(), content(n));
    }
}

/// Changes the checksum of a bundle in a line, in the same way each time: to the client, the server seems to have another
/// checksum of the bundle than it has.
fn change_checksum(line: &mut [u8]) -> bool {
    let starts: [&[u8]; 3] = [
        b"SITE BUNDLE END CRC32C ",
        b"250-Bundle CRC32C ",
        b"450-Bundle CRC32C ",
    ];
    for start in starts {
        if line.starts_with(start) {
            let digit = char::from(line[start.len()]).to_digit(16).unwrap();
            let other = char::from_digit(digit ^ 1, 16).unwrap();
            line[start.len()] = u8::try_from(other).unwrap();
        }
    }
    true
}

/// One file of the bundle, which has no name yet, and its content. The client ends a bundle when its bytes are sent: they may still be on their
/// way.
fn wait_for_stored_file(directory: &Path) -> (PathBuf, Vec<u8>) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while Instant::now() < deadline {
        let names = file_names(directory);
        let stored =
            |name: &&String| fs::metadata(directory.join(name)).unwrap().len() == SIZE as u64;
        if names.iter().filter(stored).count() == FILES {
            let name = names.iter().find(|name| name.contains("-7.longhaul-"));
            let path = directory.join(name.unwrap());
            return (path.clone(), fs::read(path).unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the files do not arrive");
}

/// Changes a byte of a file that is stored in `directory` and has no name yet.
fn corrupt_stored_file(directory: PathBuf) -> impl Fn(&mut Vec<u8>) -> bool + Send + Sync {
    let done = std::sync::Once::new();
    move |line: &mut Vec<u8>| {
        if line.starts_with(b"SITE BUNDLE END") {
            done.call_once(|| {
                let wait = || wait_for_stored_file(&directory);
                let (path, mut bytes) = tokio::task::block_in_place(wait);
                bytes[SIZE / 2] ^= 1;
                fs::write(&path, bytes).unwrap();
            });
        }
        change_checksum(line)
    }
}

fn assert_one_file_was_repaired(summary: &CopySummary, events: &EventRecorder) {
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.files, FILES as u64);
    assert_eq!(summary.resent_bytes, SIZE as u64);
    assert_eq!(summary.bytes, ((FILES + 1) * SIZE) as u64);
    let warnings = events.warnings();
    let told = warnings.iter().any(|text| text.contains("1 of 40 files"));
    assert!(told, "{warnings:?}");
    let retried = |event: &CopyEvent| matches!(event, CopyEvent::Retrying { .. });
    assert_eq!(events.count(retried), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_wrong_file_of_a_stored_bundle_is_stored_again() {
    let scratch = tempfile::tempdir().unwrap();
    let server = EndToEndServer::start().await;
    make_files(scratch.path());
    let corrupt = corrupt_stored_file(server.root().join("t"));
    let port = control_proxy(server.address(), corrupt, |line| change_checksum(line)).await;
    let source = scratch.path().to_str().unwrap();
    let target = format!("ftp://127.0.0.1:{port}/t");
    let (summary, events) = copy(&[source], &target, &recursive()).await;
    assert_one_file_was_repaired(&summary, &events);
    assert_files(&server.root().join("t"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_wrong_file_of_a_bundle_between_servers_is_copied_again() {
    let (from, to) = (EndToEndServer::start().await, EndToEndServer::start().await);
    make_files(&from.root().join("t"));
    let corrupt = corrupt_stored_file(to.root().join("t"));
    let port = control_proxy(to.address(), corrupt, |line| change_checksum(line)).await;
    let target = format!("ftp://alice:secret@127.0.0.1:{port}/t");
    let (summary, events) = copy(&[&from.user_url("t")], &target, &recursive()).await;
    assert_one_file_was_repaired(&summary, &events);
    assert_files(&to.root().join("t"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_wrong_file_of_a_received_bundle_is_received_again() {
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("t");
    let server = EndToEndServer::start().await;
    make_files(&server.root().join("t"));
    // The sent bytes of this file become wrong: from then on the server has another content.
    let changed = server.root().join("t/7");
    let old = fs::read(&changed).unwrap();
    let time = fs::metadata(&changed).unwrap().modified().unwrap();
    let done = std::sync::Once::new();
    let replies = move |line: &mut Vec<u8>| {
        if line.starts_with(b"250-Bundle") {
            done.call_once(|| {
                let mut bytes = old.clone();
                bytes[0] ^= 1;
                fs::write(&changed, bytes).unwrap();
                let file = fs::File::options().write(true).open(&changed).unwrap();
                file.set_modified(time).unwrap();
            });
        }
        change_checksum(line)
    };
    let port = control_proxy(server.address(), |line| change_checksum(line), replies).await;
    let source = format!("ftp://127.0.0.1:{port}/t");
    let (summary, events) = copy(&[&source], to.to_str().unwrap(), &recursive()).await;
    assert_one_file_was_repaired(&summary, &events);
    let mut expected = content(7);
    expected[0] ^= 1;
    assert_eq!(fs::read(to.join("7")).unwrap(), expected);
    fs::write(to.join("7"), content(7)).unwrap();
    assert_files(&to);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_whose_proof_was_damaged_is_not_sent_again() {
    let scratch = tempfile::tempdir().unwrap();
    let server = EndToEndServer::start().await;
    make_files(scratch.path());
    let done = std::sync::Once::new();
    let commands = move |line: &mut Vec<u8>| {
        if line.starts_with(b"SITE BUNDLE END") {
            done.call_once(|| assert!(change_checksum(line)));
        }
        true
    };
    let port = control_proxy(server.address(), commands, |_| true).await;
    let source = scratch.path().to_str().unwrap();
    let target = format!("ftp://127.0.0.1:{port}/t");
    let (summary, _) = copy(&[source], &target, &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(
        (summary.bytes, summary.resent_bytes),
        ((FILES * SIZE) as u64, 0)
    );
    assert_files(&server.root().join("t"));
}

/// A path, a proxy or a program that changes every checksum.
#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_whose_checksum_is_always_wrong_is_copied_file_by_file() {
    let scratch = tempfile::tempdir().unwrap();
    let server = EndToEndServer::start().await;
    make_files(scratch.path());
    let commands = |line: &mut Vec<u8>| change_checksum(line);
    let port = control_proxy(server.address(), commands, |_| true).await;
    let source = scratch.path().to_str().unwrap();
    let target = format!("ftp://127.0.0.1:{port}/t");
    let (summary, _) = copy(&[source], &target, &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_files(&server.root().join("t"));
}
