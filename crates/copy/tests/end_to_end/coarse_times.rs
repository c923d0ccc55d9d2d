//! Times that listings show coarsely or not at all, and that destinations do not keep as they are set.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use copy::{Exit, Preserve, PreservedTimes, Selection, SyncOptions};
use proto::timestamp::Timestamp;

use crate::listing_server::ListingServer;
use crate::support::{file_names, options};
use crate::sync::{sync, syncing};

fn seconds(digits: &str) -> u64 {
    u64::try_from(Timestamp::parse(digits).unwrap().0).unwrap()
}

fn time_of(path: &Path) -> u64 {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn set_time(path: &Path, seconds: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_list_does_not_show_are_asked_for() {
    let server = ListingServer::with(&["/d/a", "/d/b", "/d/sub/c"]);
    let url = server.start();
    let to = tempfile::tempdir().unwrap();
    let (summary, _) = sync(&format!("{url}/d"), text(to.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    assert_eq!(time_of(&to.path().join("sub/c")), seconds("20240105101500"));
    // Nothing has changed; then something that only MDTM shows.
    let (summary, _) = sync(&format!("{url}/d"), text(to.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 0));
    server.put("/d/b", b"54321", "20240105101501");
    let (summary, _) = sync(&format!("{url}/d"), text(to.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
    assert_eq!(fs::read(to.path().join("b")).unwrap(), b"54321");
    // Matches of a pattern keep their times, too.
    let matched = tempfile::tempdir().unwrap();
    let pattern = format!("{url}/d/[ab]");
    let (summary, _) = crate::support::copy(&[&pattern], text(matched.path()), &options()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
    assert_eq!(
        time_of(&matched.path().join("b")),
        seconds("20240105101501")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_no_option_needs_are_not_asked_for() {
    let server = ListingServer::with(&["/d/a", "/d/b"]);
    let from = format!("{}/d", server.start());
    let to = tempfile::tempdir().unwrap();
    let without_times = options().with(|o| {
        o.tree.recursive = true;
        o.file.preserve = Preserve {
            times: PreservedTimes::None,
            ..Preserve::default()
        };
    });
    let (summary, _) = crate::support::copy(&[&from], text(to.path()), &without_times).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
    let asked = server.commands("MDTM");
    assert!(asked.iter().all(|line| line == "MDTM /d"), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_by_time_decides_by_exact_times_or_says_that_it_cannot() {
    let mut selection = Selection::default();
    selection.newer = Timestamp::parse("20240105120000");
    let options = options().with(|o| {
        o.tree.recursive = true;
        o.tree.selection = selection;
    });
    for (has_mdtm, copied, exit) in [
        (true, &["new"][..], Exit::Done),
        // LIST shows the same day for both: neither is known to be selected.
        (false, &[], Exit::Protocol),
    ] {
        let mut server = ListingServer::with(&["/d/old"]);
        server.put("/d/new", b"1", "20240105130000");
        server.has_mdtm = has_mdtm;
        let to = tempfile::tempdir().unwrap();
        let from = format!("{}/d", server.start());
        let at = to.path().join("t");
        let (summary, _) = crate::support::copy(&[&from], text(&at), &options).await;
        assert_eq!(summary.exit, exit, "{:?}", summary.first_failure);
        let names = if at.exists() {
            file_names(&at)
        } else {
            Vec::new()
        };
        assert_eq!(names, copied);
        if !has_mdtm {
            let failure = summary.first_failure.unwrap().to_string();
            assert!(failure.contains("and 1 other file: left out"), "{failure}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_exact_times_a_copy_that_is_surely_later_is_the_same_and_others_are_copied_again() {
    let mut server = ListingServer::with(&["/d/a", "/d/b"]);
    server.has_mdtm = false;
    let from = format!("{}/d", server.start());
    let to = tempfile::tempdir().unwrap();
    let (summary, recorder) = sync(&from, text(to.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
    let warnings = recorder.warnings();
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("does not tell the times")),
        "{warnings:?}"
    );
    // The rows say 2024, whatever the zone: earlier than the copies.
    let (summary, recorder) = sync(&from, text(to.path()), &syncing()).await;
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Done, 0),
        "{:?}",
        recorder.warnings()
    );
    // The day of the row is not over everywhere.
    set_time(&to.path().join("a"), seconds("20240105235959"));
    let (summary, recorder) = sync(&from, text(to.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
    let warnings = recorder.warnings();
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("too little is known of their times")),
        "{warnings:?}"
    );
    // Without any time nothing is the same.
    let nameless = server
        .clone()
        .failing(|command, _, (text, reply)| match command {
            "NLST" => (text, reply),
            _ => (Vec::new(), "502 no".to_owned()),
        });
    let from = format!("{}/d", nameless.start());
    let (summary, _) = sync(&from, text(to.path()), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
}

/// A directory with files of odd seconds.
fn source() -> tempfile::TempDir {
    let source = tempfile::tempdir().unwrap();
    for (n, name) in ["a", "b", "c"].iter().enumerate() {
        let path = source.path().join(name);
        fs::write(&path, "12345").unwrap();
        set_time(&path, 1_700_000_001 + 38 * n as u64);
    }
    source
}

#[tokio::test(flavor = "multi_thread")]
async fn coarse_times_of_a_destination_are_found_out_so_that_nothing_is_stored_again() {
    fn minutes(time: &str) -> Option<String> {
        Some(format!("{}00", &time[..12]))
    }
    fn two_seconds_up(time: &str) -> Option<String> {
        let second: u8 = time[12..].parse().unwrap();
        Some(format!("{}{:02}", &time[..12], second + second % 2))
    }
    for (keeps, has_mlsd) in [
        (minutes as fn(&str) -> Option<String>, true),
        (minutes, false),
        (two_seconds_up, true),
        (two_seconds_up, false),
        (|_| None, true),
        (|_| None, false),
    ] {
        let mut server = ListingServer::with(&[]);
        (server.keeps, server.has_mlsd) = (keeps, has_mlsd);
        let to = format!("{}/t", server.start());
        let from = source();
        let (summary, _) = sync(text(from.path()), &to, &syncing()).await;
        assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
        let before = server.files.lock().unwrap().clone();
        let (summary, _) = sync(text(from.path()), &to, &syncing()).await;
        assert_eq!((summary.exit, summary.files), (Exit::Done, 0), "{before:?}");
        assert_eq!(
            *server.files.lock().unwrap(),
            before,
            "all have the times that they had"
        );
        // A file that changed is stored all the same.
        fs::write(from.path().join("b"), "54321").unwrap();
        set_time(&from.path().join("b"), 1_800_000_000);
        let (summary, _) = sync(text(from.path()), &to, &syncing()).await;
        assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
        assert_eq!(server.files.lock().unwrap()["/t/b"].bytes, b"54321");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_keeps_times_gets_files_whose_times_differ_by_seconds() {
    let server = ListingServer::with(&[]);
    let to = format!("{}/t", server.start());
    let from = source();
    sync(text(from.path()), &to, &syncing()).await;
    for (name, shift) in [("a", -1), ("b", 30), ("c", -500_000)] {
        let time = time_of(&from.path().join(name))
            .checked_add_signed(shift)
            .unwrap();
        fs::write(from.path().join(name), "54321").unwrap();
        set_time(&from.path().join(name), time);
    }
    // A dry run sets no time to find out.
    let dry = SyncOptions {
        copy: syncing().copy.with(|o| o.dry_run = true),
        ..syncing()
    };
    let set = server.commands("MFMT").len();
    sync(text(from.path()), &to, &dry).await;
    assert_eq!(server.commands("MFMT").len(), set);
    let (summary, _) = sync(text(from.path()), &to, &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    let files = server.files.lock().unwrap();
    assert!(
        files
            .iter()
            .all(|(path, file)| path.ends_with(".made") || file.bytes == b"54321")
    );
}
