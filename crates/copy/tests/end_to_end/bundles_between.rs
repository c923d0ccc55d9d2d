//! Many small files from one server to another.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use copy::{CopyEvent, CopyObserver, CopyOptions, Exit, ModeChoice};

use crate::control_proxy::control_proxy;
use crate::support::{EndToEndServer, copy, file_names, options};

fn recursive(retries: u32) -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.retry.retries = retries;
    })
}

fn content(n: usize) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); n]
}

async fn server_with_files(count: usize) -> EndToEndServer {
    let server = EndToEndServer::start().await;
    for n in 0..count {
        server.store(&format!("t/{n}"), &content(n));
    }
    server
}

fn assert_files(directory: &Path, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = numbers.collect();
    // A single copy that failed keeps its partial file. Those of bundles have names of their own.
    let names = file_names(directory);
    let alone = |name: &&String| *name != "7.longhaul-partial";
    assert_eq!(
        names.iter().filter(alone).count(),
        numbers.len(),
        "{names:?}"
    );
    for n in numbers {
        let path = directory.join(n.to_string());
        assert_eq!(fs::read(&path).unwrap(), content(n), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_files_pass_in_few_transfers_between_servers() {
    let from = server_with_files(1000).await;
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let to = EndToEndServer::with(|config| config.transfer_log = Some(log.clone())).await;
    for mode in [ModeChoice::Auto, ModeChoice::Stream] {
        let options = recursive(0).with(|o| o.streams.mode = mode);
        let target = format!("{mode:?}");
        let source = from.user_url("t");
        let (summary, events) = copy(&[&source], &to.user_url(&target), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!((summary.files, summary.bytes), (1000, (0..1000).sum()));
        assert_eq!(summary.verified, "crc32c");
        assert_eq!(events.warnings(), Vec::<String>::new());
        assert_files(&to.root().join(&target), 0..1000);
    }
    let transfers = fs::read_to_string(&log).unwrap().lines().count();
    assert!(transfers < 40, "{transfers} transfers");
}

/// Removes a file when the copy of the first one begins.
struct RemoveWhenStarted(PathBuf);

impl CopyObserver for RemoveWhenStarted {
    fn on_event(&self, event: CopyEvent) {
        if matches!(event, CopyEvent::Started { .. }) && self.0.exists() {
            fs::remove_file(&self.0).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_source_lacks_fails_alone() {
    let from = server_with_files(20).await;
    let to = EndToEndServer::start().await;
    let observer = Arc::new(RemoveWhenStarted(from.root().join("t/7")));
    let source = [from.user_url("t")];
    let summary = copy::copy(&source, &to.user_url("t"), &recursive(0), observer).await;
    assert_eq!((summary.files, summary.failed), (19, 1));
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("t/7"), "{message}");
    assert_files(&to.root().join("t"), (0..20).filter(|n| *n != 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_destination_refuses_fails_alone() {
    let from = server_with_files(20).await;
    let to = EndToEndServer::start().await;
    // A directory cannot be replaced by a file.
    to.store("t/7/inside", b"");
    let sources: Vec<String> = (0..20).map(|n| from.user_url(&format!("t/{n}"))).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let (summary, _) = copy(&sources, &to.user_url("t/"), &recursive(0)).await;
    assert_eq!((summary.files, summary.failed), (19, 1));
    fs::remove_dir_all(to.root().join("t/7")).unwrap();
    assert_files(&to.root().join("t"), (0..20).filter(|n| *n != 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_lost_in_a_bundle_gets_it_again() {
    let from = server_with_files(20).await;
    for (cuts, exit) in [(1, Exit::Done), (usize::MAX, Exit::Unreachable)] {
        let to = EndToEndServer::start().await;
        let cuts = AtomicUsize::new(cuts);
        let is_passed = move |line: &mut Vec<u8>| {
            let order = Ordering::SeqCst;
            let is_cut = |left: usize| left.checked_sub(1);
            !line.starts_with(b"ESTO BUNDLE") || cuts.fetch_update(order, order, is_cut).is_err()
        };
        let port = control_proxy(to.address(), is_passed, |_| true).await;
        let target = format!("ftp://alice:secret@127.0.0.1:{port}/t");
        let (summary, events) = copy(&[&from.user_url("t")], &target, &recursive(1)).await;
        assert_eq!(summary.exit, exit, "{:?}", summary.first_failure);
        let retried = |event: &CopyEvent| matches!(event, CopyEvent::Retrying { .. });
        assert_eq!(events.count(retried), 1);
        let files = if exit == Exit::Done { 20 } else { 0 };
        assert_files(&to.root().join("t"), 0..files);
    }
}
