//! Somebody else who may write in the directories of a copy puts links in the place of files and directories while it runs;
//! a hostile server does so over several runs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use copy::{CopyObserver, CopyOptions, Exit, Preserve, PreservedTimes, SymlinkPolicy, SyncOptions};

use crate::support::{
    EndToEndServer, Intruder, copy, copy_with, options, random_bytes, rate_limited,
};

/// Larger than a file of a bundle: it is copied alone, and first.
const LARGE: usize = 17 << 20;

/// One file at a time, the large one in about a second.
fn slowly() -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
        o.streams.transfer = rate_limited(24 << 20);
    })
}

/// A tree with a large file, and small ones in `d`.
fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("d")).unwrap();
    fs::write(top.join("large"), random_bytes(LARGE)).unwrap();
    for n in 0..5 {
        fs::write(top.join(format!("d/{n}")), "public").unwrap();
    }
}

/// A directory with files of the same names, which only its owner may read.
fn make_secrets(top: &Path) {
    fs::create_dir_all(top).unwrap();
    for n in 0..5 {
        let path = top.join(n.to_string());
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Puts a link to `target` in the place of a directory.
fn replace_by_link(directory: &Path, target: &Path) {
    fs::rename(directory, directory.with_extension("moved")).unwrap();
    symlink(target, directory).unwrap();
}

fn contents(directory: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.is_file())
        .map(|path| fs::read(path).unwrap())
        .collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory of scratch with a tree `t` and secrets beside it.
fn scratch() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let (tree, secrets) = (scratch.path().join("t"), scratch.path().join("secrets"));
    make_tree(&tree);
    make_secrets(&secrets);
    (scratch, tree, secrets)
}

/// A change of a directory with the files of a tree, made by one who has secrets of the same names.
type Swap = fn(&Path, &Path);

/// Copies the tree to a server and within this machine, while its directory `d` is swapped. Returns what came in `d`, and
/// the first failure.
async fn copies_while(swap: Swap) -> Vec<(Vec<Vec<u8>>, String)> {
    let server = EndToEndServer::start().await;
    let (scratch, ..) = scratch();
    let here = scratch.path().join("got");
    let mut copies = Vec::new();
    for (to, there) in [
        (server.url("t"), server.root().join("t")),
        (text(&here).to_owned(), here.clone()),
    ] {
        let (_scratch, tree, secrets) = self::scratch();
        let directory = tree.join("d");
        let intruder = Intruder::new(move || swap(&directory, &secrets));
        let summary = copy_with(&intruder, text(&tree), &to, &slowly()).await;
        let result = (summary.exit, summary.failed);
        assert_eq!(result, (Exit::Partial, 5), "{to}");
        let large = fs::metadata(there.join("large")).unwrap();
        assert_eq!(large.len(), LARGE as u64);
        let failure = intruder.events.failures().swap_remove(0);
        copies.push((contents(&there.join("d")), failure.to_string()));
    }
    copies
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_the_source_that_becomes_a_link_leads_to_no_secret() {
    for (copied, failure) in copies_while(replace_by_link).await {
        assert!(copied.iter().all(|content| content == b"public"));
        assert!(failure.contains("symbolic link"), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_source_that_becomes_a_link_leads_to_no_secret() {
    let swap: Swap = |directory, secrets| {
        for n in 0..5 {
            let name = directory.join(n.to_string());
            fs::remove_file(&name).unwrap();
            symlink(secrets.join(n.to_string()), &name).unwrap();
        }
    };
    for (copied, _) in copies_while(swap).await {
        assert!(copied.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_through_a_directory_of_the_destination_that_becomes_a_link() {
    let server = EndToEndServer::start().await;
    make_tree(&server.root().join("t"));
    let (scratch, tree, secrets) = scratch();
    for from in [server.url("t"), text(&tree).to_owned()] {
        let to = scratch.path().join(format!("got-{}", from.len()));
        let (directory, victim) = (to.join("d"), secrets.clone());
        let swap = Intruder::new(move || replace_by_link(&directory, &victim));
        let summary = copy_with(&swap, &from, text(&to), &slowly()).await;
        assert_eq!((summary.exit, summary.failed), (Exit::Partial, 5), "{from}");
        let kept = contents(&secrets);
        assert_eq!(kept.len(), 5, "{from}");
        assert!(kept.iter().all(|content| content == b"secret"), "{from}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_becomes_a_link_gives_its_target_no_permissions_and_no_time() {
    let (scratch, tree, secrets) = scratch();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o700)).unwrap();
    let before = fs::metadata(&secrets).unwrap();
    let to = scratch.path().join("got");
    let (directory, victim) = (to.clone(), secrets.clone());
    let swap = Intruder::new(move || replace_by_link(&directory, &victim));
    let options = slowly().with(|o| {
        o.file.preserve = Preserve {
            times: PreservedTimes::FilesAndDirectories,
            modes: true,
            ..Preserve::default()
        }
    });
    copy_with(&swap, text(&tree), text(&to), &options).await;
    let after = fs::metadata(&secrets).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
    let copy = fs::metadata(to.with_extension("moved")).unwrap();
    assert_eq!(copy.permissions().mode() & 0o777, 0o777);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_somebody_else_has_put_at_the_destination_gives_its_permissions_to_none() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can make a file of another user");
        return;
    }
    let server = EndToEndServer::start().await;
    make_tree(&server.root().join("from"));
    let (scratch, tree, _) = scratch();
    let here = scratch.path().join("got");
    // Alone and in a bundle, at both ends.
    let names = ["large", "d/0", "d/1", "d/2", "d/3", "d/4"];
    for (from, to, there) in [
        (
            server.url("from"),
            text(&here).to_owned(),
            here.join("from"),
        ),
        (
            text(&tree).to_owned(),
            text(&here).to_owned(),
            here.join("t"),
        ),
        (
            text(&tree).to_owned(),
            server.url("to"),
            server.root().join("to/t"),
        ),
    ] {
        make_tree(&there);
        for name in names {
            let planted = there.join(name);
            std::os::unix::fs::chown(&planted, Some(65_534), None).unwrap();
            fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
        }
        let usual = there.join("usual");
        fs::write(&usual, "").unwrap();
        let usual = fs::metadata(&usual).unwrap().permissions();
        let (summary, _) = copy(&[&from], &to, &slowly()).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        for name in names {
            let copied = fs::metadata(there.join(name)).unwrap();
            assert_eq!(copied.uid(), 0, "{to} {name}");
            assert_eq!(copied.permissions(), usual, "{to} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_deletes_nothing_through_a_directory_that_becomes_a_link() {
    let (scratch, tree, secrets) = scratch();
    let to = scratch.path().join("copy");
    // A directory that stays, with files that go, and one that goes.
    make_secrets(&to.join("d"));
    fs::remove_file(tree.join("d/3")).unwrap();
    fs::remove_file(tree.join("d/4")).unwrap();
    make_secrets(&to.join("gone"));
    let (directories, victim) = ([to.join("d"), to.join("gone")], secrets.clone());
    let swap = Intruder::new(move || {
        for directory in directories {
            replace_by_link(&directory, &victim);
        }
    });
    let options = SyncOptions {
        copy: slowly().with(|o| {
            // Small files are the same already.
            o.tree.selection = copy::Selection::default();
        }),
        delete: true,
        checksum: false,
    };
    for n in 0..3 {
        let time = fs::metadata(tree.join(format!("d/{n}")))
            .unwrap()
            .modified()
            .unwrap();
        let path = to.join(format!("d/{n}"));
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }
    let observer = Arc::clone(&swap) as Arc<dyn CopyObserver>;
    let summary = copy::sync(text(&tree), text(&to), &options, observer).await;
    assert!(swap.has_acted(), "the sync was over too soon");
    assert_eq!(summary.exit, Exit::Partial, "{:?}", summary.first_failure);
    assert_eq!(contents(&secrets).len(), 5);
    // The link itself was in the way, and is gone.
    assert!(fs::symlink_metadata(to.join("gone")).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_server_makes_no_way_out_of_the_destination_over_several_runs() {
    let server = EndToEndServer::start().await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, outside) = (
        scratch.path().join("got"),
        scratch.path().join("got/outside"),
    );
    fs::create_dir_all(&outside).unwrap();
    let tree = server.root().join("t");
    let fresh = |entries: &[(&str, Option<&str>)]| {
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(&tree).unwrap();
        for (path, target) in entries {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match target {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, "planted").unwrap(),
            }
        }
    };
    let options = options().with(|o| {
        o.tree.recursive = true;
        o.tree.symlinks = SymlinkPolicy::Copy;
    });
    let mut failed = 0;
    for listing in [
        // A link to the top makes every path through it shorter than it looks.
        &[("f", None), ("a", Some("."))][..],
        &[("f", None), ("a/way", Some("../outside"))],
        &[("f", None), ("a/way/evil", None), ("way/evil", None)],
    ] {
        fresh(listing);
        let (summary, _) = copy(&[&server.url("t")], text(&to), &options).await;
        failed += summary.failed;
    }
    assert!(failed > 0, "nothing was refused");
    assert!(contents(&outside).is_empty());
    assert!(fs::symlink_metadata(outside.join("evil")).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_destination_is_replaced_by_a_file_and_never_by_a_directory() {
    let server = EndToEndServer::start().await;
    for n in 0..5 {
        server.store(&format!("t/d/{n}"), b"new");
        server.store(&format!("t/{n}"), b"new");
    }
    let scratch = tempfile::tempdir().unwrap();
    let (to, elsewhere) = (scratch.path().join("to"), scratch.path().join("elsewhere"));
    make_secrets(&elsewhere);
    fs::create_dir_all(to.join("t")).unwrap();
    symlink(&elsewhere, to.join("t/d")).unwrap();
    for n in 0..2 {
        symlink(elsewhere.join(n.to_string()), to.join(format!("t/{n}"))).unwrap();
    }
    let recursive = options().with(|o| o.tree.recursive = true);
    let (summary, events) = copy(&[&server.url("t")], text(&to), &recursive).await;
    assert_eq!((summary.exit, summary.files), (Exit::Partial, 5));
    let messages: Vec<String> = events
        .failures()
        .into_iter()
        .map(|f| f.to_string())
        .collect();
    let told = |words: &str| messages.iter().any(|message| message.contains(words));
    assert!(
        told("is a symbolic link, and the copy has a directory"),
        "{messages:?}"
    );
    assert!(
        contents(&elsewhere)
            .iter()
            .all(|content| content == b"secret")
    );
    for n in 0..5 {
        let path = to.join(format!("t/{n}"));
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(path).unwrap(), b"new");
    }
    // A place that the user names himself may be a link.
    let (summary, _) = copy(&[&server.url("t/d/")], text(&to.join("t/d")), &recursive).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let named = to.join("t/link");
    symlink(elsewhere.join("0"), &named).unwrap();
    let (summary, _) = copy(&[&server.url("t/1")], text(&named), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(fs::read(elsewhere.join("0")).unwrap(), b"new");
    assert!(fs::symlink_metadata(&named).unwrap().is_symlink());
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_in_the_destination_hold_nothing_up() {
    let server = EndToEndServer::start().await;
    for n in 0..5 {
        server.store(&format!("t/{n}"), b"new");
    }
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("t");
    fs::create_dir(&to).unwrap();
    let pipes = |names: &[&str]| {
        for name in names {
            let made = std::process::Command::new("mkfifo")
                .arg(to.join(name))
                .status();
            assert!(made.unwrap().success());
        }
    };
    // In the place of a file of a bundle, of a file alone, and of what a copy leaves.
    pipes(&["1", "5", "2.longhaul-partial", "3.longhaul-journal"]);
    server.store("t/5", &random_bytes(LARGE));
    let resuming = options().with(|o| {
        o.tree.recursive = true;
        o.file.resume = true;
    });
    let (summary, events) = copy(&[&server.url("t")], text(scratch.path()), &resuming).await;
    assert_eq!((summary.exit, summary.failed), (Exit::Partial, 2));
    for failure in events.failures() {
        assert!(failure.to_string().contains("is a pipe"), "{failure}");
    }
    for n in [0, 2, 3, 4] {
        assert_eq!(fs::read(to.join(n.to_string())).unwrap(), b"new");
    }
}
