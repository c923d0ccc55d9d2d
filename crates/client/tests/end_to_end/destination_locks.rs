//! One copy at a time writes a destination; the second one is told, or waits.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use client::{CopyEvent, CopyFailure, CopyOptions, CopySummary, Exit, Parallelism};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use tokio::task::JoinHandle;

use crate::faulty_server::FaultyServer;
use crate::support::{
    EndToEndServer, EventRecorder, copy, copy_cut, limited, names, noise, options,
};

const SIZE: usize = 4 << 20;

/// Takes seconds for a file of [`SIZE`] bytes.
fn slow() -> CopyOptions {
    CopyOptions {
        transfer: limited(2 << 20),
        parallelism: Parallelism::Fixed(2),
        ..options()
    }
}

fn waiting() -> CopyOptions {
    CopyOptions {
        wait: true,
        ..options()
    }
}

/// Two files of one length that differ in every byte.
fn two_contents() -> (Vec<u8>, Vec<u8>) {
    let one = noise(SIZE);
    let other = one.iter().map(|byte| !byte).collect();
    (one, other)
}

/// A copy of the first content from a pipe, which ends when it is let.
struct PipeCopyInProgress {
    copying: JoinHandle<CopySummary>,
    go_on: mpsc::Sender<()>,
    _directory: tempfile::TempDir,
}

impl PipeCopyInProgress {
    /// Half of it has come.
    async fn to(to: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let (go_on, wait) = mpsc::channel();
        let feeding = pipe.clone();
        std::thread::spawn(move || {
            let (bytes, _) = two_contents();
            let (first, rest) = bytes.split_at(SIZE / 2);
            let mut pipe = std::fs::File::create(feeding).unwrap();
            pipe.write_all(first).unwrap();
            if wait.recv().is_ok() {
                pipe.write_all(rest).unwrap();
            }
        });
        let source = pipe.display().to_string();
        let (copying, seen) = begin(&source, to, options());
        seen.until(is_moving).await;
        Self {
            copying,
            go_on,
            _directory: directory,
        }
    }

    async fn ends(self) {
        self.go_on.send(()).unwrap();
        let summary = self.copying.await.unwrap();
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "crc32c");
    }
}

fn begin(
    from: &str,
    to: &str,
    options: CopyOptions,
) -> (JoinHandle<CopySummary>, Arc<EventRecorder>) {
    let seen = Arc::new(EventRecorder::default());
    let (sources, to, observer) = ([from.to_owned()], to.to_owned(), Arc::clone(&seen));
    let copying = async move { client::copy(&sources, &to, &options, observer).await };
    (tokio::spawn(copying), seen)
}

fn is_moving(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Progress { bytes, .. } if *bytes > 0)
}

fn is_waiting(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Warning(text) if text.ends_with("; waiting"))
}

fn refused(summary: &CopySummary) {
    assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
    let failure = summary.first_failure.as_ref();
    let message = failure.map_or("", |f| f.message.as_str());
    assert!(
        message.contains("another copy is writing this file"),
        "{message}"
    );
    assert!(failure.is_some_and(CopyFailure::is_destination_busy));
}

/// While something else is copied to `to`, `second` is refused there; then it waits for its turn.
async fn one_at_a_time(second: &str, to: &str, content: impl Fn() -> Vec<u8>) {
    let (one, other) = two_contents();
    let first = PipeCopyInProgress::to(to).await;
    let (summary, seen) = copy(&[second], to, &options()).await;
    refused(&summary);
    assert_eq!(seen.count(|e| matches!(e, CopyEvent::Retrying { .. })), 0);
    first.ends().await;
    assert!(content() == one);

    let first = PipeCopyInProgress::to(to).await;
    let (waiting, seen) = begin(second, to, waiting());
    seen.until(is_waiting).await;
    first.ends().await;
    let summary = waiting.await.unwrap();
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(content() == other);
}

/// The second content.
fn plant_other(path: &Path) -> String {
    std::fs::write(path, two_contents().1).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_beside_another_copy_to_its_destination_never_mixes() {
    let server = EndToEndServer::start().await;
    plant_other(&server.root().join("g"));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    let content = || std::fs::read(&to).unwrap();
    one_at_a_time(&server.url("g"), to.to_str().unwrap(), content).await;
    assert_eq!(names(here.path()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_local_copies_with_one_destination_never_mix() {
    let here = tempfile::tempdir().unwrap();
    let from = plant_other(&here.path().join("g"));
    let to = here.path().join("t");
    let content = || std::fs::read(&to).unwrap();
    one_at_a_time(&from, to.to_str().unwrap(), content).await;
    assert_eq!(names(here.path()), ["g", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_puts_to_one_destination_never_mix() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let from = plant_other(&here.path().join("g"));
    one_at_a_time(&from, &server.url("t"), || server.read("t")).await;
    assert_eq!(names(&server.root()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_between_servers_beside_a_put_to_the_same_file_never_mixes() {
    let (from, server) = (EndToEndServer::start().await, EndToEndServer::start().await);
    plant_other(&from.root().join("g"));
    let to = server.user_url("t");
    one_at_a_time(&from.user_url("g"), &to, || server.read("t")).await;
    assert_eq!(names(&server.root()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gets_with_one_destination_never_mix() {
    let server = EndToEndServer::start().await;
    let (one, _) = two_contents();
    server.store("f", &one);
    plant_other(&server.root().join("g"));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t").display().to_string();
    let (first, seen) = begin(&server.url("f"), &to, slow());
    seen.until(is_moving).await;
    let partial = std::fs::File::open(format!("{to}.longhaul-partial")).unwrap();
    assert_eq!(
        take_write_lock(&partial, WriteLockKind::Exclusive).unwrap(),
        WriteLockStatus::Busy
    );
    let (second, _) = begin(&server.url("g"), &to, options());
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.exit, Exit::Done, "{:?}", first.first_failure);
    // Refused, or on a machine that took seconds to begin, later and whole.
    if second.exit == Exit::Local {
        refused(&second);
        assert!(std::fs::read(&to).unwrap() == one);
    } else {
        assert_eq!(second.exit, Exit::Done, "{:?}", second.first_failure);
        assert!(std::fs::read(&to).unwrap() == two_contents().1);
    }
    assert_eq!(names(here.path()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_with_keep_existing_leaves_alone_what_came_meanwhile() {
    let server = EndToEndServer::start().await;
    plant_other(&server.root().join("g"));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t").display().to_string();
    let first = PipeCopyInProgress::to(&to).await;
    let keep = CopyOptions {
        keep_existing: true,
        ..waiting()
    };
    let (waiting, seen) = begin(&server.url("g"), &to, keep);
    seen.until(is_waiting).await;
    first.ends().await;
    let summary = waiting.await.unwrap();
    assert_eq!((summary.exit, summary.kept), (Exit::Done, 1));
    assert!(std::fs::read(&to).unwrap() == two_contents().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_leaves_no_stale_lock_and_a_failure_no_empty_file() {
    let server = EndToEndServer::start().await;
    server.store("f", &noise(SIZE));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t").display().to_string();
    let partial = here.path().join("t.longhaul-partial");
    copy_cut(&server.url("f"), &to, &slow(), (1 << 20, &partial)).await;
    let resumed = CopyOptions {
        resume: true,
        ..options()
    };
    let (summary, _) = copy(&[&server.url("f")], &to, &resumed).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let nowhere = "ftp://127.0.0.1:1/f";
    let (summary, _) = copy(
        &[nowhere],
        here.path().join("n").to_str().unwrap(),
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(names(here.path()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_place_of_the_partial_file_is_not_followed() {
    let server = EndToEndServer::start().await;
    server.store("f", b"new");
    let here = tempfile::tempdir().unwrap();
    let victim = here.path().join("victim");
    std::fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, here.path().join("t.longhaul-partial")).unwrap();
    let to = here.path().join("t");
    let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Local);
    assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
    assert!(!to.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_copy_leaves_no_journal_that_tells_of_other_bytes() {
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name);
    std::fs::write(path("f"), "new").unwrap();
    std::fs::write(path("t.longhaul-partial"), "of a get").unwrap();
    std::fs::write(path("t.longhaul-journal"), "of a get").unwrap();
    let shown = |name: &str| path(name).display().to_string();
    let (summary, _) = copy(&[&shown("f")], &shown("t"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(names(here.path()), ["f", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_copy_discards_the_journal_of_a_get_before_it_writes() {
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name);
    std::fs::write(path("t.longhaul-partial"), "of a get").unwrap();
    std::fs::write(path("t.longhaul-journal"), "of a get").unwrap();
    let under_way = PipeCopyInProgress::to(path("t").to_str().unwrap()).await;
    assert_eq!(names(here.path()), ["t.longhaul-partial"]);
    under_way.ends().await;
    // One that cannot be removed would tell of bytes that are gone.
    std::fs::write(path("t.longhaul-partial"), "of a get").unwrap();
    std::fs::create_dir(path("t.longhaul-journal")).unwrap();
    let from = plant_other(&path("f"));
    let (summary, _) = copy(&[&from], path("t").to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
    let left = std::fs::read(path("t.longhaul-partial")).unwrap();
    assert_eq!(left, b"of a get");
}

/// The outcome of a put whose server answers STOR with these refusals first.
async fn put_to_busy(refusals: &[&'static str], options: &CopyOptions) -> (CopySummary, usize) {
    let liar = FaultyServer {
        busy: Arc::new(std::sync::Mutex::new(refusals.to_vec())),
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, "content").unwrap();
    let url = format!("ftp://{}/g", liar.start());
    let (summary, _) = copy(&[from.to_str().unwrap()], &url, options).await;
    (summary, liar.commands("STOR").len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stores_another_upload_of_the_file_is_not_asked_again() {
    let busy = ["450 /g: another upload is writing this file"; 2];
    let (summary, stores) = put_to_busy(&busy, &options()).await;
    assert_eq!((summary.exit, stores), (Exit::Local, 1));
    let message = summary.first_failure.unwrap().message;
    assert!(
        message.contains("another upload") && message.contains("--wait"),
        "{message}"
    );
    // A refusal of somebody else's server may pass, as ever.
    let (summary, stores) = put_to_busy(&["450 file busy"], &options()).await;
    assert_eq!((summary.exit, stores), (Exit::Done, 2));
    let (summary, stores) = put_to_busy(&busy, &waiting()).await;
    assert_eq!(
        (summary.exit, stores),
        (Exit::Done, 3),
        "{:?}",
        summary.first_failure
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_between_two_servers_is_refused() {
    let (from, to) = (EndToEndServer::start().await, EndToEndServer::start().await);
    from.store("f", &noise(1000));
    let (summary, _) = copy(&[&from.user_url("f")], &to.user_url("g"), &slow()).await;
    assert_eq!(summary.exit, Exit::Usage);
    let message = summary.first_failure.unwrap().message;
    assert!(message.contains("--limit-rate"), "{message}");
    assert_eq!(names(&to.root()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_at_a_time_share_one_rate_limit() {
    let server = EndToEndServer::start().await;
    for name in ["a", "b", "c", "d"] {
        server.store(&format!("d/{name}"), &noise(1 << 20));
    }
    let here = tempfile::tempdir().unwrap();
    let limited = CopyOptions {
        recursive: true,
        ..slow()
    };
    let to = here.path().join("t");
    let (summary, _) = copy(&[&server.url("d")], to.to_str().unwrap(), &limited).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(names(&to), ["a", "b", "c", "d"]);
    // All but a burst of a tenth of a second waited, whatever else the machine does.
    assert!(summary.seconds > 1.8, "{}", summary.seconds);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_hash_for_its_partial_name_is_found_finished_and_removed() {
    let server = EndToEndServer::start().await;
    let here = tempfile::tempdir().unwrap();
    let name = "x".repeat(250);
    let from = here.path().join("f");
    std::fs::write(&from, noise(SIZE)).unwrap();
    let from = from.to_str().unwrap();
    let url = server.url(&name);
    let left = || {
        let names = names(&server.root());
        names
            .iter()
            .filter(|n| n.ends_with(".longhaul-partial"))
            .count()
    };
    let cut = || async {
        // What was cut before lets go of its lock a moment later.
        let patient = CopyOptions {
            wait: true,
            ..slow()
        };
        let (copying, seen) = begin(from, &url, patient);
        seen.until(is_moving).await;
        while left() == 0 {
            tokio::task::yield_now().await;
        }
        copying.abort();
        assert!(copying.await.is_err());
    };
    cut().await;
    assert_eq!(left(), 1);
    let resumed = CopyOptions {
        resume: true,
        wait: true,
        ..options()
    };
    let (summary, _) = copy(&[from], &server.url(&name), &resumed).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(names(&server.root()), [name.as_str()]);
    cut().await;
    assert_eq!(left(), 1);
    let remote = client::RemoteOptions {
        timeout: Duration::from_secs(60),
    };
    client::remove(&server.url(&name), false, &remote)
        .await
        .unwrap();
    assert_eq!(names(&server.root()), Vec::<String>::new());
    // Of a file that never was whole, too.
    cut().await;
    client::remove(&server.url(&name), false, &remote)
        .await
        .unwrap();
    assert_eq!(names(&server.root()), Vec::<String>::new());
    let missing = client::remove(&server.url(&name), false, &remote).await;
    assert_eq!(missing.unwrap_err().exit, Exit::NotFound);
    let long = server.url(&"x".repeat(256));
    let (summary, _) = copy(&[from], &long, &options()).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert_eq!(names(&server.root()), Vec::<String>::new());
}

/// File that was moved out of the way of `x`, and could not be moved back.
const ASIDE: &str = "x.longhaul-partial.old";

/// A tree of two files and one that was moved out of the way, and an unfinished fourth.
fn plant(top: &Path) {
    std::fs::create_dir(top).unwrap();
    for name in ["x", "y", ASIDE, "x.longhaul-partial", "x.longhaul-journal"] {
        std::fs::write(top.join(name), name).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_files_in_a_tree_are_skipped_and_named_and_one_moved_aside_is_copied() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let here = tempfile::tempdir().unwrap();
    plant(&here.path().join("d"));
    plant(&server.root().join("d"));
    let local = here.path().join("d").display().to_string();
    let back = here.path().join("back").display().to_string();
    let recursive = CopyOptions {
        recursive: true,
        ..options()
    };
    for (from, to) in [
        (local.clone(), server.url("t")),
        (server.url("d"), back.clone()),
        (server.user_url("d"), other.user_url("t")),
        (local, here.path().join("here").display().to_string()),
    ] {
        let (summary, seen) = copy(&[&from], &to, &recursive).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!((summary.files, summary.skipped), (3, 2));
        let named = |e: &CopyEvent| {
            matches!(e, CopyEvent::Skipped { source, reason }
                if source.contains("x.longhaul-") && reason.contains("unfinished"))
        };
        assert_eq!(seen.count(named), 2);
    }
    assert_eq!(names(Path::new(&back)), ["x", ASIDE, "y"]);
    assert_eq!(names(&server.root().join("t")), ["x", ASIDE, "y"]);
}
