//! Listings that are not known to be complete: what they show is used, and nothing is deleted for what they lack.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use copy::{CopyEvent, CopyOptions, CopySummary, Exit, RemoteOptions, SymlinkPolicy, SyncOptions};

use crate::listing_server::{ListingServer, ListingTextAndReply};
use crate::support::{EventRecorder, file_names, options};
use crate::sync::{sync, syncing};

fn recursive() -> CopyOptions {
    options().with(|o| o.tree.recursive = true)
}

async fn copy(from: &str, to: &Path) -> (CopySummary, Arc<EventRecorder>) {
    crate::support::copy(&[from], to.to_str().unwrap(), &recursive()).await
}

pub(crate) fn deleting() -> SyncOptions {
    SyncOptions {
        delete: true,
        ..syncing()
    }
}

/// The messages of failures.
fn failures(recorder: &EventRecorder) -> Vec<String> {
    let messages = std::sync::Mutex::new(Vec::new());
    recorder.count(|event| {
        if let CopyEvent::Failed { failure, .. } = event {
            messages.lock().unwrap().push(failure.to_string().clone());
        }
        false
    });
    messages.into_inner().unwrap()
}

/// Spoils the row of one name.
pub(crate) fn spoil(
    name: &'static str,
) -> impl Fn(&str, &str, ListingTextAndReply) -> ListingTextAndReply {
    move |command, _, (text, reply)| {
        if command == "NLST" {
            return (text, reply);
        }
        let text = String::from_utf8(text).unwrap();
        let lines = text
            .lines()
            .map(|line| match line.ends_with(&format!(" {name}")) {
                true => format!("spoiled {name}\r\n"),
                false => format!("{line}\r\n"),
            });
        (lines.collect::<String>().into_bytes(), reply)
    }
}

/// Spoils the row of one name, and NLST lacks it.
fn hide(name: &'static str) -> impl Fn(&str, &str, ListingTextAndReply) -> ListingTextAndReply {
    move |command, directory, listing| {
        let (text, reply) = spoil(name)(command, directory, listing);
        let text = String::from_utf8(text).unwrap();
        let lines = text
            .lines()
            .filter(|line| command != "NLST" || *line != name);
        let text: String = lines.map(|line| format!("{line}\r\n")).collect();
        (text.into_bytes(), reply)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_listing_shows_beside_a_row_that_is_not_understood_is_copied_and_nothing_is_deleted()
{
    for has_mlsd in [false, true] {
        let mut server = ListingServer::with(&["/d/a", "/d/b", "/d/sub/c"]).failing(hide("b"));
        server.has_mlsd = has_mlsd;
        let from = format!("{}/d", server.start());
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("b"), "earlier copy").unwrap();
        fs::write(top.path().join("extra"), "x").unwrap();
        let (summary, recorder) = sync(&from, top.path().to_str().unwrap(), &deleting()).await;
        assert_eq!(summary.exit, Exit::Partial, "{:?}", summary.first_failure);
        assert_eq!(file_names(top.path()), ["a", "b", "extra", "sub"]);
        assert_eq!(file_names(&top.path().join("sub")), ["c"]);
        assert_eq!(fs::read(top.path().join("b")).unwrap(), b"earlier copy");
        // Once, with the row, and that nothing was deleted.
        let messages = failures(&recorder);
        let incomplete = messages
            .iter()
            .filter(|m| m.contains("is not known to be complete"));
        assert_eq!(incomplete.count(), 1, "{messages:?}");
        assert!(
            messages.iter().any(|m| m.contains("\"spoiled b\"")),
            "{messages:?}"
        );
        assert!(
            messages.iter().any(|m| m.contains("nothing was deleted")),
            "{messages:?}"
        );
        // A plain copy says the same.
        let to = tempfile::tempdir().unwrap();
        let (summary, recorder) = copy(&from, &to.path().join("t")).await;
        assert_eq!((summary.exit, summary.files), (Exit::Partial, 2));
        assert_eq!(failures(&recorder).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_listing_command_is_tried_before_a_listing_is_given_up() {
    // MLSD is spoiled: LIST shows everything.
    let mut mlsd =
        ListingServer::with(&["/d/a", "/d/b"]).failing(
            |command, directory, listing| match command {
                "MLSD" => spoil("b")(command, directory, listing),
                _ => listing,
            },
        );
    mlsd.has_mlsd = true;
    // LIST is spoiled: NLST shows everything, and the facts of one name are asked for.
    let list = ListingServer::with(&["/d/a", "/d/b"]).failing(spoil("b"));
    // A text without an end is confirmed by another one.
    let cut = ListingServer::with(&["/d/a", "/d/b"]).failing(|_, _, (mut text, reply)| {
        text.truncate(text.len() - 2);
        (text, reply)
    });
    for server in [mlsd, list.clone(), cut] {
        let from = format!("{}/d", server.start());
        let to = tempfile::tempdir().unwrap();
        let (summary, recorder) = copy(&from, &to.path().join("t")).await;
        let context = (failures(&recorder), server.commands(""));
        assert_eq!(summary.exit, Exit::Done, "{context:?}");
        assert_eq!(summary.files, 2, "{context:?}");
    }
    let facts: Vec<_> = list
        .commands("SIZE")
        .into_iter()
        .filter(|c| c.ends_with("/a"))
        .collect();
    assert!(facts.is_empty(), "facts of what LIST showed: {facts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_by_which_a_server_limits_a_listing_makes_it_incomplete() {
    for reply in [
        "226-Options: -a -l\r\n226 Output truncated to 50 matches",
        "226 Transfer done (but failed to open directory).",
    ] {
        let server = ListingServer::with(&["/d/a", "/d/sub/c"]).failing(
            move |_, directory, (text, done)| match directory {
                "/d/sub" => (Vec::new(), reply.to_owned()),
                _ => (text, done),
            },
        );
        let from = format!("{}/d", server.start());
        let to = tempfile::tempdir().unwrap();
        fs::create_dir(to.path().join("sub")).unwrap();
        fs::write(to.path().join("sub/c"), "kept").unwrap();
        let (summary, recorder) = sync(&from, to.path().to_str().unwrap(), &deleting()).await;
        assert_eq!((summary.exit, summary.files), (Exit::Partial, 1));
        assert_eq!(fs::read(to.path().join("sub/c")).unwrap(), b"kept");
        let messages = failures(&recorder);
        let words = reply.rsplit("226 ").next().unwrap();
        assert!(messages.iter().any(|m| m.contains(words)), "{messages:?}");
    }
    // A count alone is no limit.
    let server = ListingServer::with(&["/d/a"])
        .failing(|_, _, (text, _)| (text, "226-Options: -a -l\r\n226 1 matches total".to_owned()));
    let to = tempfile::tempdir().unwrap();
    let (summary, _) = copy(&format!("{}/d", server.start()), &to.path().join("t")).await;
    assert_eq!(summary.exit, Exit::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_entries_of_one_name_and_names_without_facts_are_unknown_entries() {
    // As servers show `x?` and a name with a line break.
    let double = ListingServer::with(&["/d/a", "/d/x?"]).failing(|_, _, (text, reply)| {
        let text = String::from_utf8(text).unwrap();
        let last = text.lines().last().unwrap().to_owned();
        (format!("{text}{last}\r\n").into_bytes(), reply)
    });
    let unnamed =
        ListingServer::with(&["/d/a"]).failing(|command, _, (text, reply)| match command {
            "NLST" => ([text, b"b?\r\n".to_vec()].concat(), reply),
            _ => (Vec::new(), "502 no".to_owned()),
        });
    for (server, files, reason) in [
        (double, 2, "two entries have the name \"x?\""),
        (unnamed, 1, "one entry is known by name alone"),
    ] {
        let to = tempfile::tempdir().unwrap();
        let (summary, recorder) =
            copy(&format!("{}/d", server.start()), &to.path().join("t")).await;
        let messages = failures(&recorder);
        assert_eq!(
            (summary.exit, summary.files),
            (Exit::Partial, files),
            "{messages:?}"
        );
        assert!(messages.iter().any(|m| m.contains(reason)), "{messages:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_fails_in_the_middle_is_used_as_far_as_it_came() {
    let server = ListingServer::with(&["/d/a", "/d/b"]).failing(|_, _, (text, _)| {
        let whole = text
            .split_inclusive(|b| *b == b'\n')
            .next()
            .unwrap_or_default();
        // The second row breaks off within the name.
        let part = &text[..text.len().min(whole.len() + 20)];
        (part.to_vec(), "550 read error".to_owned())
    });
    let to = tempfile::tempdir().unwrap();
    let at = to.path().join("t");
    let (summary, recorder) = copy(&format!("{}/d", server.start()), &at).await;
    let messages = failures(&recorder);
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Partial, 1),
        "{messages:?}"
    );
    assert_eq!(file_names(&at), ["a"]);
    assert!(
        messages.iter().any(|m| m.contains("550 read error")),
        "{messages:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_are_refused_for_the_moment_for_ever_do_not_end_the_walk() {
    let server = ListingServer::with(&["/d/a", "/d/s1/x", "/d/s2/x", "/d/s3/x", "/d/t/b"]).failing(
        |_, directory, listing| match directory.contains("/s") {
            true => (Vec::new(), "451 Input/output error".to_owned()),
            false => listing,
        },
    );
    let to = tempfile::tempdir().unwrap();
    let at = to.path().join("t");
    let options = recursive().with(|o| {
        o.retry.retries = 1;
        o.concurrency = Some(1);
    });
    let from = format!("{}/d", server.start());
    let (summary, recorder) = crate::support::copy(&[&from], at.to_str().unwrap(), &options).await;
    let messages = failures(&recorder);
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Partial, 2),
        "{messages:?}"
    );
    assert_eq!(messages.len(), 3, "{messages:?}");
    // One further attempt for each.
    let attempts = server.commands("CWD /d/s1");
    assert_eq!(attempts.len(), 2, "{attempts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_listing_of_the_destination_deletes_nothing() {
    let server = ListingServer::with(&["/t/old", "/t/sub/old", "/t/sub/b"]).failing(
        |command, directory, listing| match directory {
            "/t/sub" => hide("b")(command, directory, listing),
            _ => listing,
        },
    );
    let to = format!("{}/t", server.start());
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("new"), "1").unwrap();
    let (summary, recorder) = sync(from.path().to_str().unwrap(), &to, &deleting()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Partial, 1));
    let messages = failures(&recorder);
    assert!(
        messages
            .iter()
            .any(|m| m.contains("a part of it could not be listed")),
        "{messages:?}"
    );
    assert!(server.commands("DELE").is_empty());
    let removed = server.commands("RMD");
    // The mark by which one tree is known under two names.
    assert!(
        removed
            .iter()
            .all(|rmd| rmd.contains("longhaul-same-tree-")),
        "{removed:?}"
    );
    // Without --delete it is a warning, and unknown files are copied.
    fs::create_dir(from.path().join("sub")).unwrap();
    fs::write(from.path().join("sub/b"), "12345").unwrap();
    let from = from.path().to_str().unwrap();
    let (summary, recorder) = sync(from, &to, &syncing()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let stored = server.files.lock().unwrap()["/t/sub/b"].time.clone();
    assert_ne!(stored, "20240105101500", "copied");
    let warnings = recorder.warnings();
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("not known to be complete")),
        "{warnings:?}"
    );
}

fn remote_options() -> RemoteOptions {
    RemoteOptions {
        timeout: Duration::from_secs(20),
        security: Arc::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_use_what_is_shown_and_remove_nothing() {
    let server = ListingServer::with(&["/d/a1", "/d/a2", "/d/b"]).failing(hide("b"));
    let url = server.start();
    let mut listed = Vec::new();
    let mut visit = |entry: copy::RemoteEntry| {
        listed.push(String::from_utf8(entry.name).unwrap());
        ControlFlow::Continue(())
    };
    let directory = format!("{url}/d/");
    let failure = copy::list_each(&directory, false, &remote_options(), &mut visit).await;
    assert_eq!(failure.unwrap_err().exit(), Exit::Protocol);
    let pattern = format!("{url}/d/a*");
    let failure = copy::list_each(&pattern, false, &remote_options(), &mut visit).await;
    assert_eq!(failure.unwrap_err().exit(), Exit::Partial);
    let failure = copy::list_each(&directory, true, &remote_options(), &mut visit).await;
    assert_eq!(failure.unwrap_err().exit(), Exit::Partial);
    assert_eq!(listed, ["a1", "a2", "a1", "a2", "a1", "a2"]);
    // Known matches are copied, and the failure says that there may be more.
    let to = tempfile::tempdir().unwrap();
    let (summary, recorder) = copy(&pattern, to.path()).await;
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Partial, 2),
        "{:?}",
        failures(&recorder)
    );
    // Nothing that an unknown entry could have is said not to exist.
    for unknown in ["c*", "{a1,c}"] {
        let (summary, recorder) = copy(&format!("{url}/d/{unknown}"), to.path()).await;
        assert_eq!(summary.exit, Exit::Protocol, "{:?}", failures(&recorder));
    }
    let mut reports = Vec::new();
    let mut report = |result| reports.push(result);
    let failure = copy::remove_each(&pattern, false, &remote_options(), &mut report).await;
    let failure = failure.unwrap_err();
    assert!(
        failure.to_string().starts_with("nothing was deleted: "),
        "{failure}"
    );
    let tree = format!("{url}/d");
    assert!(copy::remove(&tree, true, &remote_options()).await.is_err());
    let mut show = |_| ControlFlow::Continue(());
    assert!(
        copy::preview_removal(&tree, true, &remote_options(), &mut show)
            .await
            .is_err()
    );
    assert!(reports.is_empty());
    assert_eq!(server.files.lock().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_link_whose_target_cannot_be_read_is_a_failure_and_its_copy_stays() {
    let link = |command: &str, directory: &str, (text, reply): ListingTextAndReply| {
        let row: &[u8] = match directory {
            "/d" if command == "NLST" => b"link\r\n",
            "/d" => b"lrwxrwxrwx 1 u g 6 Jan 05  2024 link -> target\r\n",
            _ => b"",
        };
        ([&text, row].concat(), reply)
    };
    for (reply, exit) in [
        ("550 Permission denied", Exit::Partial),
        // It points nowhere, and is skipped.
        ("550 No such file or directory", Exit::Done),
    ] {
        let mut server = ListingServer::with(&["/d/a"]).failing(link);
        server.closed = Some(("/d/link", reply));
        let to = tempfile::tempdir().unwrap();
        fs::create_dir(to.path().join("link")).unwrap();
        fs::write(to.path().join("link/kept"), "x").unwrap();
        let options = SyncOptions {
            copy: recursive().with(|o| o.tree.symlinks = SymlinkPolicy::Follow),
            ..deleting()
        };
        let from = format!("{}/d", server.start());
        let (summary, recorder) = sync(&from, to.path().to_str().unwrap(), &options).await;
        assert_eq!(summary.exit, exit, "{reply}: {:?}", failures(&recorder));
        assert!(to.path().join("link/kept").exists(), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mlsd_that_is_refused_is_replaced_and_an_empty_replacement_proves_nothing() {
    let refuse = |reply: &'static str| {
        move |command: &str, _: &str, (text, done): ListingTextAndReply| match command {
            "MLSD" => (Vec::new(), reply.to_owned()),
            _ => (text, done),
        }
    };
    for reply in ["500 Unknown", "501 Bad", "550 not supported", "451 error"] {
        let mut server = ListingServer::with(&["/d/a", "/d/sub/c"]).failing(refuse(reply));
        server.has_mlsd = true;
        let to = tempfile::tempdir().unwrap();
        let (summary, _) = copy(&format!("{}/d", server.start()), &to.path().join("t")).await;
        assert_eq!((summary.exit, summary.files), (Exit::Done, 2), "{reply}");
    }
    // A closed directory that LIST shows as empty.
    let mut server =
        ListingServer::with(&["/d/a", "/d/sub/c"]).failing(|command, directory, listing| {
            match (command, directory) {
                ("MLSD", "/d/sub") => (Vec::new(), "550 Permission denied".to_owned()),
                (_, "/d/sub") => (Vec::new(), listing.1),
                _ => listing,
            }
        });
    server.has_mlsd = true;
    let to = tempfile::tempdir().unwrap();
    let (summary, recorder) = copy(&format!("{}/d", server.start()), &to.path().join("t")).await;
    assert_eq!((summary.exit, summary.files), (Exit::Partial, 1));
    let messages = failures(&recorder);
    assert!(
        messages.iter().any(|m| m.contains("550 Permission denied")),
        "{messages:?}"
    );
}
