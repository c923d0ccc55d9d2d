//! Names of files at web servers, and the files that have them already.

use std::sync::Arc;

use super::copy;
use super::web::{RecordedWaits, server};
use crate::options::SyncOptions;
use crate::run::tests::options;
use crate::storage::webdav::WebDavServer;
use ftp::Exit;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_webdav_gets_each_file_once_under_its_final_name() {
    let (server, bytes) = server();
    server.refuse_webdav();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    std::fs::write(&file, &bytes).unwrap();
    for name in ["/new", "/newer"] {
        let to = server.url(name);
        let (summary, warnings) = copy(&file.display().to_string(), &to, &options()).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(server.get(name).as_ref() == Some(&bytes));
    }
    assert_eq!(server.paths(), ["/f", "/new", "/newer"]);
    let methods = server.methods();
    assert_eq!(methods.iter().filter(|m| *m == "PUT").count(), 2);
    assert!(!methods.iter().any(|m| m == "MOVE" || m == "DELETE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_file_stays_where_the_new_one_would_be_written_over_it() {
    let in_place = options().with(|o| o.file.in_place = true);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    std::fs::write(&file, b"new").unwrap();
    let from = file.display().to_string();
    for (name, encoded, refuse) in [
        // Without WebDAV, without partial names, with a name that a server may cut off.
        ("/f", "/f", WebDavServer::refuse_webdav as fn(&WebDavServer)),
        ("/f", "/f", WebDavServer::refuse_partial_names),
        ("/a;b", "/a%3Bb", |_: &WebDavServer| {}),
    ] {
        let server = WebDavServer::start();
        server.put(name, b"old");
        refuse(&server);
        let to = server.url(encoded);
        let (summary, _) = copy(&from, &to, &options()).await;
        assert_ne!(summary.exit, Exit::Done, "{summary:?}");
        let failure = summary.first_failure.unwrap().to_string();
        assert!(failure.contains("--in-place"), "{failure}");
        assert_eq!(server.get(name).as_deref(), Some(&b"old"[..]), "{failure}");
        let (summary, _) = copy(&from, &to, &in_place).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert_eq!(server.get(name).as_deref(), Some(&b"new"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_with_move_asks_once_what_has_the_final_name() {
    let dir = tempfile::tempdir().unwrap();
    for directory in ["t/a", "t/b"] {
        std::fs::create_dir_all(dir.path().join(directory)).unwrap();
        for name in ["one", "two"] {
            std::fs::write(dir.path().join(directory).join(name), name).unwrap();
        }
    }
    let tree = options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
    });
    let server = WebDavServer::start();
    let from = dir.path().join("t").display().to_string();
    let (summary, _) = copy(&from, &server.url("/up/"), &tree).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    for path in ["/up/a/one", "/up/a/two", "/up/b/one", "/up/b/two"] {
        assert!(server.get(path).is_some());
        assert_eq!(server.asked(path), 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_refused_for_one_file_says_nothing_about_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let up = dir.path().join("up");
    std::fs::create_dir(&up).unwrap();
    for name in ["a", "b"] {
        std::fs::write(up.join(name), b"new").unwrap();
    }
    let tree = options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
    });
    let from = up.display().to_string();
    // Whichever comes first.
    for (refused, other) in [("/up/b", "/up/a"), ("/up/a", "/up/b")] {
        let server = WebDavServer::start();
        server.make_collection("/up");
        server.put(other, b"old");
        server.refuse_moves_to(refused);
        let (summary, warnings) = copy(&from, &server.url("/"), &tree).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert_eq!(server.paths(), ["/up/a", "/up/b"]);
        assert_eq!(server.get(other).as_deref(), Some(&b"new"[..]));
        let told = format!("{refused} is stored under its final name");
        assert!(warnings[0].contains(&told), "{warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_into_a_collection_that_answers_head_and_take_the_place_of_none() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = server();
    server.answer_head_of_collections();
    server.make_collection("/d");
    server.put("/d/precious", b"precious");
    let file = dir.path().join("x");
    std::fs::write(&file, b"x").unwrap();
    let file = file.display().to_string();
    let (summary, _) = copy(&file, &server.url("/d"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(server.get("/d/x").as_deref(), Some(&b"x"[..]));
    let (summary, _) = copy(
        &server.url("/d"),
        &dir.path().join("got").display().to_string(),
        &options(),
    )
    .await;
    assert_eq!(
        summary.exit,
        Exit::Usage,
        "a directory needs -r: {summary:?}"
    );
    // A tree with a file where the server has a collection.
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("d"), b"a file").unwrap();
    for delete in [false, true, false] {
        // For the last one, MOVE with `Overwrite: F` would replace a collection.
        let options = SyncOptions {
            copy: options(),
            delete,
            checksum: false,
        };
        let observer = Arc::new(RecordedWaits::default());
        let from = tree.display().to_string();
        let summary = crate::sync(&from, &server.url("/"), &options, observer).await;
        assert_ne!(summary.exit, Exit::Done, "{summary:?}");
        assert!(server.get("/d/precious").is_some() && server.get("/f").is_some());
        if delete {
            server.ignore_overwrite();
        }
    }
}
