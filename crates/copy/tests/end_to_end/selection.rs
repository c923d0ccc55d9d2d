//! Which files of a tree are copied, and what would be.

use copy::{CopyEvent, CopyOptions, Exit, Selection};

use crate::support::{EndToEndServer, copy, options, paths};

fn tree(server: &EndToEndServer) {
    for path in [
        "t/a.txt",
        "t/b.bin",
        "t/d/c.txt",
        "t/e/f.bin",
        "t/g/h/i.bin",
    ] {
        server.store(path, path.as_bytes());
    }
}

fn with(selection: Selection) -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.tree.selection = selection;
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn only_selected_files_and_their_directories_are_copied() {
    let server = EndToEndServer::start().await;
    tree(&server);
    let mut selection = Selection::default();
    selection.include("*.txt").unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("to");
    let (summary, _) = copy(&[&server.url("t")], to.to_str().unwrap(), &with(selection)).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
    assert_eq!(paths(&to), ["a.txt", "d", "d/c.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_files_and_directories_are_copied_and_missing_ones_named() {
    let server = EndToEndServer::start().await;
    tree(&server);
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("to");
    let listed = ["b.bin", "g", "none"];
    let options = with(Selection::default()).with(|o| {
        o.tree.files_from = Some(listed.iter().map(|path| path.as_bytes().to_vec()).collect());
    });
    let (summary, _) = copy(&[&server.url("t")], to.to_str().unwrap(), &options).await;
    assert_eq!((summary.files, summary.failed), (2, 1));
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("none"), "{message}");
    assert_eq!(paths(&to), ["b.bin", "g", "g/h", "g/h/i.bin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_what_would_be_copied_and_changes_nothing() {
    let server = EndToEndServer::start().await;
    tree(&server);
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("to");
    let options = with(Selection::default()).with(|o| o.dry_run = true);
    let (summary, events) = copy(&[&server.url("t")], to.to_str().unwrap(), &options).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 0));
    let would = |event: &CopyEvent| matches!(event, CopyEvent::WouldCopy { .. });
    assert_eq!(events.count(would), 5);
    assert!(!to.exists());
}
