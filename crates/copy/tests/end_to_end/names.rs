//! The names of stored files: a partial one until the file is complete, then the final one.

use std::sync::{Arc, Mutex};

use copy::{CopyOptions, CopySummary, Exit, PairSource};

use crate::faulty_server::FaultyServer;
use crate::support::{EventRecorder, copy, options};

fn in_place() -> CopyOptions {
    options().with(|o| o.file.in_place = true)
}

/// A put of `new` as `/g`.
async fn put(faulty: &FaultyServer, options: &CopyOptions) -> (CopySummary, Vec<String>) {
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("g");
    std::fs::write(&from, "new").unwrap();
    let url = format!("ftp://{}/g", faulty.start());
    let (summary, events) = copy(&[from.to_str().unwrap()], &url, options).await;
    (summary, events.warnings())
}

/// A put of `new` to a server that has `old` under the name.
async fn put_over_old_file(faulty: &FaultyServer) -> CopySummary {
    store_old_file(faulty);
    put(faulty, &options()).await.0
}

fn store_old_file(faulty: &FaultyServer) {
    let old = ("/g".to_owned(), b"old".to_vec());
    faulty.files.lock().unwrap().insert(old.0, old.1);
}

/// The only file of the server.
fn only_file(faulty: &FaultyServer) -> (String, Vec<u8>) {
    let files = faulty.files.lock().unwrap();
    assert_eq!(files.len(), 1, "{:?}", files.keys());
    let (name, bytes) = files.iter().next().unwrap();
    (name.clone(), bytes.clone())
}

/// A put of a directory `up` with the files `f0` to `f5`.
async fn put_tree(faulty: &FaultyServer) -> (CopySummary, Vec<String>) {
    let workdir = tempfile::tempdir().unwrap();
    let directory = workdir.path().join("up");
    std::fs::create_dir(&directory).unwrap();
    for n in 0..6 {
        let name = directory.join(format!("f{n}"));
        std::fs::write(name, format!("content {n}")).unwrap();
    }
    let url = format!("ftp://{}/", faulty.start());
    let tree = options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
    });
    let (summary, events) = copy(&[directory.to_str().unwrap()], &url, &tree).await;
    (summary, events.warnings())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_file_that_blocks_rename_is_removed_after_the_new_one_is_named() {
    let faulty = FaultyServer {
        refuse_replace: true,
        ..FaultyServer::default()
    };
    let summary = put_over_old_file(&faulty).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let files = faulty.files.lock().unwrap();
    assert_eq!(files.len(), 1, "{:?}", files.keys());
    assert_eq!(files["/g"], b"new");
    drop(files);
    assert!(!faulty.commands("DELE").contains(&"DELE /g".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_rename_keeps_the_old_and_the_new_file() {
    // Whatever the refusal says, and whether or not the name is taken.
    for (refuse_partial_rename_with, refuse_replace) in [
        ("553 File exists", true),
        ("550 Rename failed.", true),
        ("550 Rename failed.", false),
    ] {
        let faulty = FaultyServer {
            refuse_replace,
            refuse_partial_rename_with: Some(refuse_partial_rename_with),
            ..FaultyServer::default()
        };
        let summary = put_over_old_file(&faulty).await;
        assert_ne!(summary.exit, Exit::Done);
        let failure = summary.first_failure.unwrap().to_string();
        assert!(
            failure.contains("kept on the server as /g.longhaul-partial"),
            "{failure}"
        );
        let files = faulty.files.lock().unwrap();
        assert_eq!(files["/g"], b"old", "{refuse_partial_rename_with}");
        assert_eq!(
            files["/g.longhaul-partial"], b"new",
            "{refuse_partial_rename_with}"
        );
        assert_eq!(files.len(), 2, "{:?}", files.keys());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_an_earlier_copy_is_not_replaced() {
    let faulty = FaultyServer {
        refuse_partial_rename_with: Some("553 File exists"),
        ..FaultyServer::default()
    };
    let moved = ("/g.longhaul-partial.old".to_owned(), b"older".to_vec());
    faulty.files.lock().unwrap().extend([moved]);
    let summary = put_over_old_file(&faulty).await;
    assert_ne!(summary.exit, Exit::Done);
    let failure = summary.first_failure.unwrap().to_string();
    let what_to_do = "; /g.longhaul-partial.old, which an earlier copy moved out of the way, still \
        exists: examine it, then remove or rename it";
    assert!(failure.contains(what_to_do), "{failure}");
    assert!(
        failure.contains("kept on the server as /g.longhaul-partial,"),
        "{failure}"
    );
    let files = faulty.files.lock().unwrap();
    assert_eq!(files["/g.longhaul-partial.old"], b"older");
    assert_eq!(files["/g"], b"old");
    assert_eq!(files["/g.longhaul-partial"], b"new");
}

/// Servers without rename, without permission to rename, and without partial names.
fn servers_of_final_names() -> [(FaultyServer, usize); 3] {
    let no_rename = FaultyServer {
        refuse_rename: true,
        ..FaultyServer::default()
    };
    let drop_box = FaultyServer {
        drop_box: Some("/"),
        ..FaultyServer::default()
    };
    let no_partial_names = FaultyServer {
        refuse_partial_names_with: Some("553 Files of this type are not allowed."),
        ..FaultyServer::default()
    };
    [(no_rename, 1), (drop_box, 1), (no_partial_names, 2)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_is_stored_once_under_its_name_where_no_other_way_leads_to_it() {
    for (faulty, stores) in servers_of_final_names() {
        let (summary, warnings) = put(&faulty, &options()).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(only_file(&faulty), ("/g".to_owned(), b"new".to_vec()));
        // A refused name costs a command and no bytes.
        assert_eq!(faulty.commands("STOR").len(), stores);
        let warned = |warning: &String| warning.contains("stored under their final names");
        assert!(warnings.iter().any(warned), "{warnings:?}");
        assert_eq!(faulty.commands("DELE"), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_file_stays_unless_the_user_lets_it_be_replaced_in_place() {
    for (faulty, _) in servers_of_final_names() {
        if faulty.drop_box.is_some() {
            // It does not show that there is an old file.
            continue;
        }
        let summary = put_over_old_file(&faulty).await;
        assert_eq!(summary.exit, Exit::Refused);
        let failure = summary.first_failure.unwrap().to_string();
        assert!(failure.contains("--in-place"), "{failure}");
        assert_eq!(only_file(&faulty), ("/g".to_owned(), b"old".to_vec()));
        assert!(!faulty.commands("STOR").contains(&"STOR /g".to_owned()));
        let (summary, _) = put(&faulty, &in_place()).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(only_file(&faulty), ("/g".to_owned(), b"new".to_vec()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_box_is_said_to_prove_nothing_but_its_confirmation() {
    let faulty = FaultyServer {
        drop_box: Some("/"),
        ..FaultyServer::default()
    };
    let (summary, warnings) = put(&faulty, &options()).await;
    assert_eq!(summary.verified, "none");
    for told in ["is replaced unseen", "only its confirmation proves"] {
        let warned = warnings.iter().any(|warning| warning.contains(told));
        assert!(warned, "{told}: {warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_box_beside_a_directory_with_renames_gets_its_files_once() {
    let faulty = FaultyServer {
        drop_box: Some("/in/"),
        directories: vec!["/in", "/out"],
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let address = faulty.start();
    let mut pairs = String::new();
    for path in ["out/f", "in/f"] {
        let from = workdir.path().join(path.replace('/', "-"));
        std::fs::write(&from, path).unwrap();
        pairs += &format!("{} ftp://{address}/{path}\n", from.display());
    }
    let list = workdir.path().join("pairs");
    std::fs::write(&list, pairs).unwrap();
    let one_by_one = options().with(|o| o.concurrency = Some(1));
    let observer = Arc::new(EventRecorder::default());
    let summary = copy::copy_pairs(&PairSource::File(list), &one_by_one, observer).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let stored = ["STOR /out/f.longhaul-partial", "STOR /in/f"];
    assert_eq!(faulty.commands("STOR"), stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_refused_under_either_name_is_refused_for_its_first_reason() {
    let faulty = FaultyServer {
        store_refusals: Arc::new(Mutex::new(vec!["550 Second denied", "550 First denied"])),
        ..FaultyServer::default()
    };
    let (summary, warnings) = put(&faulty, &options()).await;
    assert_eq!(summary.exit, Exit::Refused);
    let failure = summary.first_failure.unwrap().to_string();
    assert!(failure.contains("First denied"), "{failure}");
    assert_eq!(faulty.commands("STOR").len(), 2);
    let warned = |warning: &String| warning.contains("final names");
    assert!(!warnings.iter().any(warned), "{warnings:?}");
    // With an old file, the final name is not tried, and the reason stays.
    let faulty = FaultyServer {
        store_refusals: Arc::new(Mutex::new(vec!["550 Permission denied"])),
        ..FaultyServer::default()
    };
    let summary = put_over_old_file(&faulty).await;
    let failure = summary.first_failure.unwrap().to_string();
    assert!(failure.contains("Permission denied"), "{failure}");
    assert!(
        failure.contains("if only the partial name is refused, --in-place"),
        "{failure}"
    );
    assert_eq!(only_file(&faulty), ("/g".to_owned(), b"old".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_that_is_refused_for_one_file_says_nothing_about_the_others() {
    let faulty = FaultyServer {
        directories: vec!["/up", "/up/f1"],
        ..FaultyServer::default()
    };
    let (summary, _) = put_tree(&faulty).await;
    assert_eq!((summary.files, summary.failed), (5, 1));
    let partial = |line: &String| line.contains("longhaul-partial");
    assert!(faulty.commands("STOR").iter().all(partial));
    let files = faulty.files.lock().unwrap();
    for n in [0, 2, 3, 4, 5] {
        assert_eq!(
            files[&format!("/up/f{n}")],
            format!("content {n}").into_bytes()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_partial_name_is_not_tried_again_in_its_directory() {
    let faulty = FaultyServer {
        refuse_partial_names_with: Some("553 Files of this type are not allowed."),
        directories: vec!["/up"],
        ..FaultyServer::default()
    };
    let (summary, warnings) = put_tree(&faulty).await;
    assert_eq!((summary.files, summary.failed), (6, 0), "{summary:?}");
    assert_eq!(faulty.files.lock().unwrap().len(), 6);
    let about_names = |warning: &&String| warning.contains("final names");
    assert_eq!(
        warnings.iter().filter(about_names).count(),
        1,
        "{warnings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_from_a_pipe_keeps_its_partial_file_if_it_is_not_renamed() {
    let faulty = FaultyServer {
        refuse_partial_rename_with: Some("550 Rename failed."),
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let pipe = workdir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, "only once"))
    };
    let url = format!("ftp://{}/g", faulty.start());
    let (summary, _) = copy(&[pipe.to_str().unwrap()], &url, &options()).await;
    writer.join().unwrap().unwrap();
    assert_ne!(summary.exit, Exit::Done);
    let failure = summary.first_failure.unwrap().to_string();
    assert!(failure.contains("/g.longhaul-partial"), "{failure}");
    let files = faulty.files.lock().unwrap();
    assert_eq!(files["/g.longhaul-partial"], b"only once");
    assert_eq!(files.len(), 1);
}
