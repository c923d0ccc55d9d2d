//! Files that `sync --delete` must not delete, whatever a listing shows.

use std::fs;

use copy::Exit;

use crate::incomplete_listings::{deleting, spoil};
use crate::listing_server::{ListingServer, ListingTextAndReply};
use crate::support::file_names;
use crate::sync::sync;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_listing_that_shows_less_than_the_first_completes_nothing() {
    let mut server =
        ListingServer::with(&["/d/.a", "/d/b", "/d/c"]).failing(|command, directory, listing| {
            let (text, reply) = match command {
                "MLSD" => return spoil("b")(command, directory, listing),
                "NLST" => return (Vec::new(), listing.1),
                _ => listing,
            };
            let text = String::from_utf8(text).unwrap();
            let rows = text.lines().filter(|row| row.ends_with(" .a"));
            let text: String = rows.map(|row| format!("{row}\r\n")).collect();
            (text.into_bytes(), reply)
        });
    server.has_mlsd = true;
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("b"), "earlier copy").unwrap();
    let from = format!("{}/d", server.start());
    let (summary, _) = sync(&from, top.path().to_str().unwrap(), &deleting()).await;
    assert_eq!(summary.exit, Exit::Partial, "{:?}", summary.first_failure);
    assert_eq!(file_names(top.path()), [".a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_something_with_the_name_of_an_option_are_not_those_of_the_directory() {
    // As ProFTPD reads it.
    let server = ListingServer::with(&["/d/-a/x", "/d/kept"]).failing(
        |command, directory, (text, reply)| match (command, directory) {
            ("LIST -a", "/d") => {
                let row = "-rw-r--r-- 1 u g 5 Jan 05 2024 x\r\n";
                (row.as_bytes().to_vec(), reply)
            }
            _ => (text, reply),
        },
    );
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("kept"), "12345").unwrap();
    let from = format!("{}/d", server.start());
    let (summary, _) = sync(&from, top.path().to_str().unwrap(), &deleting()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(top.path()), ["-a", "kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_which_nothing_is_shown_is_unknown_at_a_server_that_shows_directories_themselves()
 {
    for has_mlsd in [false, true] {
        let mut server = ListingServer::with(&["/d/a", "/d/sub/c"]).failing(
            |command, directory, (text, reply)| {
                let itself: &[u8] = match command {
                    "MLSD" => b"type=cdir; .\r\n",
                    "LIST -a" => b"drwxr-xr-x 1 u g 5 Jan 05 2024 .\r\n",
                    _ => b"",
                };
                match directory {
                    "/d/sub" => (Vec::new(), reply),
                    _ => ([itself, &text].concat(), reply),
                }
            },
        );
        server.has_mlsd = has_mlsd;
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("sub")).unwrap();
        fs::write(top.path().join("sub/c"), "kept").unwrap();
        let from = format!("{}/d", server.start());
        let (summary, _) = sync(&from, top.path().to_str().unwrap(), &deleting()).await;
        assert_eq!(summary.exit, Exit::Partial, "{:?}", server.commands(""));
        assert_eq!(fs::read(top.path().join("sub/c")).unwrap(), b"kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_rows_leave_out_delete_nothing() {
    // ProFTPD with a limit of files for LIST alone.
    let server =
        ListingServer::with(&["/d/a", "/d/b"]).failing(|command, _, (text, reply)| match command {
            "NLST" => (text, reply),
            _ => {
                let text = String::from_utf8(text).unwrap();
                let rows = text.lines().filter(|row| !row.ends_with(" b"));
                let text: String = rows.map(|row| format!("{row}\r\n")).collect();
                (text.into_bytes(), reply)
            }
        });
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("b"), "12345").unwrap();
    let from = format!("{}/d", server.start());
    let (summary, _) = sync(&from, top.path().to_str().unwrap(), &deleting()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", server.commands(""));
    assert_eq!(file_names(top.path()), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_its_listing_calls_a_file_is_not_deleted_with_its_content() {
    let as_file = |_: &str, directory: &str, (text, reply): ListingTextAndReply| {
        let text = String::from_utf8(text).unwrap();
        let rows = text.lines().map(|row| match directory == "/d" {
            true => row.replacen("drwx", "-rwx", 1),
            false => row.to_owned(),
        });
        let text: String = rows.map(|row| format!("{row}\r\n")).collect();
        (text.into_bytes(), reply)
    };
    let server = ListingServer::with(&["/d/a", "/d/extra/kept"]).failing(as_file);
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("a"), "12345").unwrap();
    let to = format!("{}/d", server.start());
    let (summary, _) = sync(from.path().to_str().unwrap(), &to, &deleting()).await;
    assert_ne!(summary.exit, Exit::Done, "{:?}", server.commands(""));
    assert!(server.files.lock().unwrap().contains_key("/d/extra/kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_listed_under_another_name_is_not_deleted() {
    // As servers do that change names, or join those that differ in case alone.
    let server = ListingServer::with(&["/d/other"]).failing(|_, _, (text, reply)| {
        let text = String::from_utf8(text).unwrap();
        let rows = text.lines().map(|row| match row.strip_suffix("name ") {
            Some(row) => format!("{row}name_\r\n"),
            None => format!("{row}\r\n"),
        });
        (rows.collect::<String>().into_bytes(), reply)
    });
    let from = tempfile::tempdir().unwrap();
    for name in ["name ", "other"] {
        fs::write(from.path().join(name), "12345").unwrap();
    }
    let to = format!("{}/d", server.start());
    for exit in [Exit::Done, Exit::Partial, Exit::Partial] {
        let (summary, _) = sync(from.path().to_str().unwrap(), &to, &deleting()).await;
        assert_eq!(summary.exit, exit, "{:?}", summary.first_failure);
        assert!(server.files.lock().unwrap().contains_key("/d/name "));
    }
}
