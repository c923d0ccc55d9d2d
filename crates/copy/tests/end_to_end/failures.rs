//! Interrupted connections, refusing servers, full disks, sources that change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copy::{CopyEvent, Exit, Parallelism};

use crate::faulty_server::FaultyServer;
use crate::support::{
    EndToEndServer, EventRecorder, copy, file_names, options, random_bytes, rate_limited, streams,
    wait_until,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_get_continues_where_it_stopped() {
    let bytes = random_bytes(5 << 20);
    let faulty = FaultyServer {
        size: bytes.len(),
        sent: bytes.clone(),
        interrupt_at: Some(3 << 20),
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    let url = format!("ftp://{}/f", faulty.start());
    let (summary, events) = copy(&[&url], to.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(
        events.count(|e| matches!(e, CopyEvent::Retrying { attempt: 2, .. })),
        1
    );
    assert_eq!(faulty.commands("REST"), [format!("REST {}", 3 << 20)]);
    assert_eq!(summary.bytes, 5 << 20);
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert_eq!(file_names(workdir.path()), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_put_continues_where_it_stopped() {
    let bytes = random_bytes(5 << 20);
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("g");
    std::fs::write(&from, &bytes).unwrap();
    // Without MODE E at the server, several streams are reduced to one.
    for options in [options(), streams(4)] {
        let faulty = FaultyServer {
            interrupt_at: Some(3 << 20),
            ..FaultyServer::default()
        };
        let url = format!("ftp://{}/g", faulty.start());
        let (summary, _) = copy(&[from.to_str().unwrap()], &url, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "size");
        assert_eq!(faulty.commands("REST"), [format!("REST {}", 3 << 20)]);
        let files = faulty.files.lock().unwrap();
        assert!(files["/g"] == bytes);
        assert_eq!(files.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_name_is_unknown_is_not_tried_again() {
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    for scheme in ["ftp", "http"] {
        let url = format!("{scheme}://no-such-host.invalid/f");
        let (summary, events) = copy(&[&url], to.to_str().unwrap(), &options()).await;
        assert_eq!(summary.exit, Exit::Unreachable, "{scheme}");
        let failure = summary.first_failure.unwrap().to_string();
        let expected = "cannot find the address of no-such-host.invalid";
        assert!(failure.contains(expected), "{failure}");
        assert_eq!(events.count(|e| matches!(e, CopyEvent::Retrying { .. })), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rename_files_are_stored_directly_with_one_warning() {
    let faulty = FaultyServer {
        refuse_rename: true,
        directories: vec!["/d"],
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let (a, b) = (workdir.path().join("a"), workdir.path().join("b"));
    std::fs::write(&a, "one").unwrap();
    std::fs::write(&b, "two").unwrap();
    let url = format!("ftp://{}/d/", faulty.start());
    let one_by_one = options().with(|o| o.concurrency = Some(1));
    let sources = [a.to_str().unwrap(), b.to_str().unwrap()];
    let (summary, events) = copy(&sources, &url, &one_by_one).await;
    assert_eq!(summary.files, 2, "{:?}", summary.first_failure);
    assert_eq!(events.warnings().len(), 1, "{:?}", events.warnings());
    let files = faulty.files.lock().unwrap();
    assert_eq!(files["/d/a"], b"one");
    assert_eq!(files["/d/b"], b"two");
    assert_eq!(files.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_local_disk_is_a_local_error() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(1 << 20));
    for options in [options(), streams(4)] {
        let (summary, _) = copy(&[&server.url("f")], "/dev/full", &options).await;
        assert_eq!(summary.exit, Exit::Local);
        let message = summary.first_failure.unwrap().to_string();
        assert!(message.contains("No space left"), "{message}");
        assert_eq!(message.lines().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_during_the_copy_is_not_put_in_place() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(6 << 20));
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    let slow = options().with(|o| {
        o.streams.transfer = rate_limited(6 << 20);
        o.streams.parallelism = Parallelism::Fixed(1);
    });
    let source = server.root().join("f");
    let partial = workdir.path().join("t.longhaul-partial");
    let touch = async {
        wait_until("bytes arrive", || {
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
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("changed while"), "{message}");
    assert!(!file_names(workdir.path()).contains(&"t".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_are_read_and_written() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(1_500_000);
    server.store("f", &bytes);
    let workdir = tempfile::tempdir().unwrap();
    let pipe = workdir.path().join("pipe");
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
async fn a_trace_has_samples_and_the_limiter() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(6 << 20));
    let workdir = tempfile::tempdir().unwrap();
    let trace = workdir.path().join("trace");
    let traced = streams(2).with(|o| {
        o.streams.transfer = rate_limited(6 << 20);
        o.trace = Some(trace.clone());
    });
    let (summary, events) = copy(&[&server.url("f")], "/dev/null", &traced).await;
    assert_eq!(summary.limited_by, "rate limit", "{}", summary.why);
    assert_eq!(summary.streams_max, 2);
    assert!(events.count(|e| matches!(e, CopyEvent::Progress(_))) >= 2);
    let text = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| lines.iter().filter(|l| l["sample"] == kind).count();
    assert!(of("transfer") >= 2 && of("stream") >= 2 * 2, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_put_reports_no_bytes() {
    let faulty = FaultyServer {
        refuse_store_with: Some("550 Permission denied"),
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, "x").unwrap();
    let url = format!("ftp://{}/g", faulty.start());
    let (summary, events) = copy(&[from.to_str().unwrap()], &url, &options()).await;
    assert_eq!(summary.exit, Exit::Refused, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 0);
    let moved = events.count(|e| matches!(e, CopyEvent::Progress(p) if p.safe > 0));
    assert_eq!(moved, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_disk_ends_a_put_without_retries() {
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(3 << 20)).unwrap();
    for refusal in [
        "452 Requested action not taken: insufficient storage space",
        "552 Requested file action aborted: exceeded storage allocation",
    ] {
        let before = FaultyServer {
            store_refusals: Arc::new(Mutex::new(vec![refusal])),
            ..FaultyServer::default()
        };
        let during = FaultyServer {
            full_at: Some((1 << 20, refusal)),
            ..FaultyServer::default()
        };
        let after = FaultyServer {
            refuse_store_with: Some(refusal),
            ..FaultyServer::default()
        };
        for faulty in [before, during, after] {
            let url = format!("ftp://{}/g", faulty.start());
            let (summary, _) = copy(&[from.to_str().unwrap()], &url, &options()).await;
            assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
            assert_eq!(faulty.commands("STOR").len(), 1);
            let message = summary.first_failure.unwrap().to_string();
            assert!(
                message.contains(refusal) && message.contains("make room there"),
                "{message}"
            );
            assert_eq!(message.lines().count(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_restart_keeps_the_partial_file_of_a_get() {
    let bytes = random_bytes(3 << 20);
    let faulty = FaultyServer {
        size: bytes.len(),
        sent: bytes.clone(),
        interrupt_at: Some(1 << 20),
        refuse_restart_with: Some("552 Requested file action aborted: exceeded storage allocation"),
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    let url = format!("ftp://{}/f", faulty.start());
    let once_more = options().with(|o| o.retry.retries = 1);
    let (summary, _) = copy(&[&url], to.to_str().unwrap(), &once_more).await;
    assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
    assert_eq!(faulty.commands("REST"), ["REST 1048576"]);
    let kept = std::fs::read(workdir.path().join("f.longhaul-partial")).unwrap();
    assert!(kept == bytes[..1 << 20], "{} bytes are left", kept.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bytes_confirmed_by_the_server_count_as_safe() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(40 << 20)).unwrap();
    for n in [1, 4] {
        let slow = streams(n).with(|o| o.streams.transfer = rate_limited(10 << 20));
        let to = server.url(&format!("g{n}"));
        let (summary, events) = copy(&[from.to_str().unwrap()], &to, &slow).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        let ahead = |e: &CopyEvent| matches!(e, CopyEvent::Progress(p) if p.safe > p.bytes);
        assert_eq!(events.count(ahead), 0);
        let total = 40 << 20;
        let some =
            |e: &CopyEvent| matches!(e, CopyEvent::Progress(p) if (1..total).contains(&p.safe));
        assert!(events.count(some) > 0, "-p {n}");
        // Markers arrive once a second: bytes just sent are not safe yet.
        let behind =
            |e: &CopyEvent| matches!(e, CopyEvent::Progress(p) if p.safe == 0 && p.bytes > 1 << 20);
        assert_eq!(events.count(behind) > 0, n == 4, "-p {n}");
        let whole = |e: &CopyEvent| matches!(e, CopyEvent::Progress(p) if p.safe == total);
        assert!(events.count(whole) > 0, "-p {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_between_servers_in_stream_mode_is_detected() {
    let bytes = random_bytes(4 << 20);
    let go_on = Arc::new(AtomicBool::new(false));
    let faulty = FaultyServer {
        size: bytes.len(),
        sent: bytes,
        stall_release: Some(Arc::clone(&go_on)),
        ..FaultyServer::default()
    };
    let server = EndToEndServer::start().await;
    let url = format!("ftp://{}/f", faulty.start());
    let mut short_stall = streams(1).with(|o| o.retry.retries = 0);
    short_stall.streams.transfer.stall = Duration::from_secs(5);
    let events = Arc::new(EventRecorder::default());
    // The destination's length is what people see of the progress: a share of the whole.
    let quarter = |e: &CopyEvent| matches!(e, CopyEvent::Progress(p) if [p.bytes, p.done] == [1 << 20; 2] && p.total_bytes == 4 << 20);
    let (from, to) = ([url], server.user_url("g"));
    let copying = copy::copy(&from, &to, &short_stall, events.clone());
    let going_on = async {
        wait_until("a quarter is reported", || events.count(quarter) > 0).await;
        go_on.store(true, Ordering::SeqCst);
    };
    let (summary, ()) = tokio::join!(copying, going_on);
    assert_eq!(
        summary.exit,
        Exit::Unreachable,
        "{:?}",
        summary.first_failure
    );
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("stayed at 2097152 bytes"), "{message}");
    assert_eq!(file_names(&server.root()), ["g.longhaul-partial"]);
}
