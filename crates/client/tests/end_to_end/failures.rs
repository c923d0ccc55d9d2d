//! Cut connections, servers that refuse, disks that are full, sources that change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{CopyEvent, CopyOptions, Exit, Parallelism};

use crate::faulty_server::FaultyServer;
use crate::support::{
    EndToEndServer, EventRecorder, copy, limited, names, noise, options, streams, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_get_goes_on_where_it_was() {
    let bytes = noise(5 << 20);
    let liar = FaultyServer {
        size: bytes.len(),
        sent: bytes.clone(),
        cut_at: Some(3 << 20),
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let url = format!("ftp://{}/f", liar.start());
    let (summary, seen) = copy(&[&url], to.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(
        seen.count(|e| matches!(e, CopyEvent::Retrying { attempt: 2, .. })),
        1
    );
    assert_eq!(liar.commands("REST"), [format!("REST {}", 3 << 20)]);
    assert_eq!(summary.bytes, 5 << 20);
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert_eq!(names(here.path()), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_put_goes_on_where_it_was() {
    let bytes = noise(5 << 20);
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("g");
    std::fs::write(&from, &bytes).unwrap();
    // Without MODE E at the server, several streams are one.
    for options in [options(), streams(4)] {
        let liar = FaultyServer {
            cut_at: Some(3 << 20),
            ..FaultyServer::default()
        };
        let url = format!("ftp://{}/g", liar.start());
        let (summary, _) = copy(&[from.to_str().unwrap()], &url, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "size");
        assert_eq!(liar.commands("REST"), [format!("REST {}", 3 << 20)]);
        let files = liar.files.lock().unwrap();
        assert!(files["/g"] == bytes);
        assert_eq!(files.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_rename_stores_directly_with_one_warning() {
    let liar = FaultyServer {
        no_rename: true,
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let (a, b) = (here.path().join("a"), here.path().join("b"));
    std::fs::write(&a, "one").unwrap();
    std::fs::write(&b, "two").unwrap();
    let url = format!("ftp://{}/d/", liar.start());
    let one_by_one = CopyOptions {
        concurrency: 1,
        ..options()
    };
    let sources = [a.to_str().unwrap(), b.to_str().unwrap()];
    let (summary, seen) = copy(&sources, &url, &one_by_one).await;
    assert_eq!(summary.files, 2, "{:?}", summary.first_failure);
    assert_eq!(seen.warnings().len(), 1, "{:?}", seen.warnings());
    let files = liar.files.lock().unwrap();
    assert_eq!(files["/d/a"], b"one");
    assert_eq!(files["/d/b"], b"two");
    assert_eq!(files.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_a_local_error() {
    let server = EndToEndServer::start().await;
    server.store("f", &noise(1 << 20));
    for options in [options(), streams(4)] {
        let (summary, _) = copy(&[&server.url("f")], "/dev/full", &options).await;
        assert_eq!(summary.exit, Exit::Local);
        let message = summary.first_failure.unwrap().message;
        assert!(message.contains("No space left"), "{message}");
        assert_eq!(message.lines().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_meanwhile_is_not_put_in_place() {
    let server = EndToEndServer::start().await;
    server.store("f", &noise(6 << 20));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    let slow = CopyOptions {
        transfer: limited(6 << 20),
        parallelism: Parallelism::Fixed(1),
        ..options()
    };
    let source = server.root().join("f");
    let partial = here.path().join("t.longhaul-partial");
    let touch = async {
        until("bytes arrive", || {
            std::fs::metadata(&partial).is_ok_and(|meta| meta.len() > 0)
        })
        .await;
        let file = std::fs::File::options().write(true).open(&source).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000))
            .unwrap();
    };
    let url = server.url("f");
    let sources = [url.as_str()];
    let copying = copy(&sources, to.to_str().unwrap(), &slow);
    let ((summary, _), ()) = tokio::join!(copying, touch);
    assert_eq!(summary.exit, Exit::Integrity, "{:?}", summary.first_failure);
    let message = summary.first_failure.unwrap().message;
    assert!(message.contains("changed while"), "{message}");
    assert!(!names(here.path()).contains(&"t".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_both_ways() {
    let server = EndToEndServer::start().await;
    let bytes = noise(1_500_000);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let pipe = here.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let path = pipe.clone();
    let reader = std::thread::spawn(move || std::fs::read(path).unwrap());
    let (summary, _) = copy(&[&server.url("f")], pipe.to_str().unwrap(), &streams(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(reader.join().unwrap() == bytes);

    let (path, sent) = (pipe.clone(), bytes.clone());
    let writer = std::thread::spawn(move || std::fs::write(path, sent).unwrap());
    let (summary, _) = copy(&[pipe.to_str().unwrap()], &server.url("g"), &streams(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    writer.join().unwrap();
    assert!(server.read("g") == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_and_reasons() {
    let server = EndToEndServer::start().await;
    server.store("f", &noise(6 << 20));
    let here = tempfile::tempdir().unwrap();
    let trace = here.path().join("trace");
    let traced = CopyOptions {
        transfer: limited(6 << 20),
        trace: Some(trace.clone()),
        ..streams(2)
    };
    let (summary, seen) = copy(&[&server.url("f")], "/dev/null", &traced).await;
    assert_eq!(summary.limited_by, "rate limit", "{}", summary.why);
    assert_eq!(summary.streams_max, 2);
    assert!(seen.count(|e| matches!(e, CopyEvent::Progress { .. })) >= 2);
    let text = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| lines.iter().filter(|l| l["sample"] == kind).count();
    assert!(of("transfer") >= 2 && of("stream") >= 2 * 2, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_put_moved_nothing() {
    let liar = FaultyServer {
        no_store: Some("550 Permission denied"),
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, "x").unwrap();
    let url = format!("ftp://{}/g", liar.start());
    let (summary, seen) = copy(&[from.to_str().unwrap()], &url, &options()).await;
    assert_eq!(summary.exit, Exit::Refused, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 0);
    let moved = seen.count(|e| matches!(e, CopyEvent::Progress { safe, .. } if *safe > 0));
    assert_eq!(moved, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_ends_a_put_as_a_full_disk_does_and_is_not_asked_again() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, noise(3 << 20)).unwrap();
    for refusal in [
        "452 Requested action not taken: insufficient storage space",
        "552 Requested file action aborted: exceeded storage allocation",
    ] {
        let before = FaultyServer {
            busy: Arc::new(Mutex::new(vec![refusal])),
            ..FaultyServer::default()
        };
        let during = FaultyServer {
            full_at: Some((1 << 20, refusal)),
            ..FaultyServer::default()
        };
        let after = FaultyServer {
            no_store: Some(refusal),
            ..FaultyServer::default()
        };
        for liar in [before, during, after] {
            let url = format!("ftp://{}/g", liar.start());
            let (summary, _) = copy(&[from.to_str().unwrap()], &url, &options()).await;
            assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
            assert_eq!(liar.commands("STOR").len(), 1);
            let message = summary.first_failure.unwrap().message;
            assert!(
                message.contains(refusal) && message.contains("make room there"),
                "{message}"
            );
            assert_eq!(message.lines().count(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_takes_nothing_from_what_a_get_has_here() {
    let bytes = noise(3 << 20);
    let liar = FaultyServer {
        size: bytes.len(),
        sent: bytes.clone(),
        cut_at: Some(1 << 20),
        no_more: Some("552 Requested file action aborted: exceeded storage allocation"),
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let url = format!("ftp://{}/f", liar.start());
    let once_more = CopyOptions {
        retries: 1,
        ..options()
    };
    let (summary, _) = copy(&[&url], to.to_str().unwrap(), &once_more).await;
    assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
    assert_eq!(liar.commands("REST"), ["REST 1048576"]);
    let kept = std::fs::read(here.path().join("f.longhaul-partial")).unwrap();
    assert!(kept == bytes[..1 << 20], "{} bytes are left", kept.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_called_safe_is_what_the_server_confirmed() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, noise(40 << 20)).unwrap();
    for n in [1, 4] {
        let slow = CopyOptions {
            transfer: limited(10 << 20),
            ..streams(n)
        };
        let to = server.url(&format!("g{n}"));
        let (summary, seen) = copy(&[from.to_str().unwrap()], &to, &slow).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        let ahead =
            |e: &CopyEvent| matches!(e, CopyEvent::Progress { bytes, safe, .. } if safe > bytes);
        assert_eq!(seen.count(ahead), 0);
        let total = 40 << 20;
        let some = |e: &CopyEvent| matches!(e, CopyEvent::Progress { safe, .. } if (1..total).contains(safe));
        assert!(seen.count(some) > 0, "-p {n}");
        // Markers come once a second: what has just left is not safe yet.
        let behind = |e: &CopyEvent| matches!(e, CopyEvent::Progress { bytes, safe: 0, .. } if *bytes > 1 << 20);
        assert_eq!(seen.count(behind) > 0, n == 4, "-p {n}");
        let whole = |e: &CopyEvent| matches!(e, CopyEvent::Progress { safe, .. } if *safe == total);
        assert!(seen.count(whole) > 0, "-p {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_between_servers_is_noticed_also_in_stream_mode() {
    let bytes = noise(4 << 20);
    let go_on = Arc::new(AtomicBool::new(false));
    let liar = FaultyServer {
        size: bytes.len(),
        sent: bytes,
        stalls: Some(Arc::clone(&go_on)),
        ..FaultyServer::default()
    };
    let server = EndToEndServer::start().await;
    let url = format!("ftp://{}/f", liar.start());
    let mut impatient = CopyOptions {
        retries: 0,
        ..streams(1)
    };
    impatient.transfer.stall = Duration::from_secs(5);
    let seen = Arc::new(EventRecorder::default());
    let quarter =
        |e: &CopyEvent| matches!(e, CopyEvent::Progress { bytes, .. } if *bytes == 1 << 20);
    let (from, to) = ([url], server.user_url("g"));
    let copying = client::copy(&from, &to, &impatient, seen.clone());
    let going_on = async {
        until("a quarter is told", || seen.count(quarter) > 0).await;
        go_on.store(true, Ordering::SeqCst);
    };
    let (summary, ()) = tokio::join!(copying, going_on);
    assert_eq!(
        summary.exit,
        Exit::Unreachable,
        "{:?}",
        summary.first_failure
    );
    let message = summary.first_failure.unwrap().message;
    assert!(message.contains("stayed at 2097152 bytes"), "{message}");
    assert_eq!(names(&server.root()), ["g.longhaul-partial"]);
}

/// A put of `new` to a server that has `old` under the name.
async fn put_over(liar: &FaultyServer) -> client::CopySummary {
    let old = ("/g".to_owned(), b"old".to_vec());
    liar.files.lock().unwrap().insert(old.0, old.1);
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("g");
    std::fs::write(&from, "new").unwrap();
    let url = format!("ftp://{}/g", liar.start());
    copy(&[from.to_str().unwrap()], &url, &options()).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn where_rename_does_not_replace_the_old_file_goes_when_the_new_one_has_the_name() {
    let liar = FaultyServer {
        no_replace: true,
        ..FaultyServer::default()
    };
    let summary = put_over(&liar).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let files = liar.files.lock().unwrap();
    assert_eq!(files.len(), 1, "{:?}", files.keys());
    assert_eq!(files["/g"], b"new");
    drop(files);
    assert!(!liar.commands("DELE").contains(&"DELE /g".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_rename_costs_neither_the_old_file_nor_the_new_one() {
    // Whatever the reason, and whether or not something has the name.
    for (no_target, no_replace) in [
        ("553 File exists", true),
        ("550 Rename failed.", true),
        ("550 Rename failed.", false),
    ] {
        let liar = FaultyServer {
            no_replace,
            no_target: Some(no_target),
            ..FaultyServer::default()
        };
        let summary = put_over(&liar).await;
        assert_ne!(summary.exit, Exit::Done);
        let failure = summary.first_failure.unwrap().message;
        assert!(
            failure.contains("kept on the server as /g.longhaul-partial"),
            "{failure}"
        );
        let files = liar.files.lock().unwrap();
        assert_eq!(files["/g"], b"old", "{no_target}");
        assert_eq!(files["/g.longhaul-partial"], b"new", "{no_target}");
        assert_eq!(files.len(), 2, "{:?}", files.keys());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_copy_moved_out_of_the_way_is_not_replaced() {
    let liar = FaultyServer {
        no_target: Some("553 File exists"),
        ..FaultyServer::default()
    };
    let moved = ("/g.longhaul-partial.old".to_owned(), b"older".to_vec());
    liar.files.lock().unwrap().extend([moved]);
    let summary = put_over(&liar).await;
    assert_ne!(summary.exit, Exit::Done);
    let failure = summary.first_failure.unwrap().message;
    let what_to_do = "; /g.longhaul-partial.old, which an earlier copy moved out of the way, still \
        exists: examine it, then remove or rename it";
    assert!(failure.contains(what_to_do), "{failure}");
    assert!(
        failure.contains("kept on the server as /g.longhaul-partial,"),
        "{failure}"
    );
    let files = liar.files.lock().unwrap();
    assert_eq!(files["/g.longhaul-partial.old"], b"older");
    assert_eq!(files["/g"], b"old");
    assert_eq!(files["/g.longhaul-partial"], b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_partial_file_stays_until_the_file_is_stored_under_its_own_name() {
    let liar = FaultyServer {
        no_rename: true,
        ..FaultyServer::default()
    };
    let summary = put_over(&liar).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let seen = liar.seen.lock().unwrap();
    let at = |line: &str| seen.iter().position(|l| l == line);
    let (stored, deleted) = (at("STOR /g"), at("DELE /g.longhaul-partial"));
    assert!(stored.is_some() && stored < deleted, "{seen:?}");
    let files = liar.files.lock().unwrap();
    assert_eq!((files.len(), files["/g"].as_slice()), (1, &b"new"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_from_a_pipe_is_kept_where_the_server_does_not_rename() {
    let liar = FaultyServer {
        no_rename: true,
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let pipe = here.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, "only once"))
    };
    let url = format!("ftp://{}/g", liar.start());
    let (summary, _) = copy(&[pipe.to_str().unwrap()], &url, &options()).await;
    writer.join().unwrap().unwrap();
    assert_ne!(summary.exit, Exit::Done);
    let failure = summary.first_failure.unwrap().message;
    assert!(failure.contains("/g.longhaul-partial"), "{failure}");
    let files = liar.files.lock().unwrap();
    assert_eq!(files["/g.longhaul-partial"], b"only once");
    assert_eq!(files.len(), 1);
}
