//! A sync of a tree with itself, under whatever names, changes nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use copy::{CopySummary, Exit, SyncOptions};

use crate::support::{EndToEndServer, EventRecorder, options, paths};

fn syncing(delete: bool) -> SyncOptions {
    SyncOptions {
        copy: options().with(|o| o.tree.recursive = true),
        delete,
        checksum: false,
    }
}

async fn sync(from: &str, to: &str, options: &SyncOptions) -> CopySummary {
    let recorder = Arc::new(EventRecorder::default());
    copy::sync(from, to, options, recorder).await
}

fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("d/e")).unwrap();
    for path in ["1", "2", "d/3", "d/e/4"] {
        fs::write(top.join(path), path).unwrap();
    }
}

async fn assert_refused(from: &str, to: &str, delete: bool) {
    let summary = sync(from, to, &syncing(delete)).await;
    assert_eq!(summary.exit, Exit::Usage, "{from} {to}: {summary:?}");
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("are one tree"), "{message}");
    assert_eq!((summary.files, summary.deleted), (0, 0), "{from} {to}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_its_directory_on_this_machine_are_one_tree() {
    let server = EndToEndServer::start().await;
    let root = server.root();
    make_tree(&root);
    let before = paths(&root);
    let here = |path: &str| root.join(path).display().to_string();
    for (local, remote) in [("", ""), ("", "d"), ("d", ""), ("d/e", ""), ("d", "d")] {
        let (local, remote) = (here(local), server.url(remote));
        for delete in [true, false] {
            // A listing of a server does not tell where its top is.
            assert_refused(&local, &remote, delete).await;
            assert_refused(&remote, &local, delete).await;
            assert_eq!(paths(&root), before);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_server_are_one_tree() {
    let server = EndToEndServer::start().await;
    make_tree(&server.root());
    let before = paths(&server.root());
    let other = |path: &str| format!("ftp://localhost:{}/{path}", server.address().port());
    for (from, to) in [("", ""), ("", "d"), ("d", "")] {
        assert_refused(&server.url(from), &other(to), true).await;
        assert_eq!(paths(&server.root()), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_looks_like_the_source_is_no_reason_to_refuse() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    make_tree(here.path());
    let from = here.path().display().to_string();
    // An older copy in the destination has all that the source has.
    make_tree(&server.root().join("old"));
    fs::write(server.root().join("extra"), "extra").unwrap();
    let summary = sync(&from, &server.url(""), &syncing(true)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.deleted, 2);
    assert_eq!(paths(&server.root()), paths(here.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn bind_mounts_of_a_tree_are_that_tree() {
    let scratch = tempfile::tempdir().unwrap();
    let (tree, whole, part) = (
        scratch.path().join("tree"),
        scratch.path().join("whole"),
        scratch.path().join("part"),
    );
    make_tree(&tree);
    let before = paths(&tree);
    let mut mounted = Vec::new();
    for (from, at) in [(tree.clone(), &whole), (tree.join("d"), &part)] {
        fs::create_dir(at).unwrap();
        let mount = std::process::Command::new("mount")
            .arg("--bind")
            .arg(from)
            .arg(at)
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            println!("SKIPPED: this user may mount nothing");
            return;
        }
        mounted.push(Mounted(at.clone()));
    }
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    for (a, b) in [(&tree, &whole), (&tree, &part), (&whole, &part)] {
        for delete in [true, false] {
            assert_refused(&text(a), &text(b), delete).await;
            assert_refused(&text(b), &text(a), delete).await;
        }
    }
    assert_eq!(paths(&tree), before);
}

struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}
