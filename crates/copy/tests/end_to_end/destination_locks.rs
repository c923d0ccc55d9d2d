//! One copy at a time writes a destination; a second one fails, or waits with `--wait`.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use copy::{CopyEvent, CopyOptions, CopySummary, Exit, Failure, FailureKind, Parallelism};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use tokio::task::JoinHandle;

use crate::faulty_server::FaultyServer;
use crate::support::{
    EndToEndServer, EventRecorder, copy, copy_and_interrupt, file_names, options, random_bytes,
    rate_limited, write_private,
};

const SIZE: usize = 4 << 20;

/// Takes seconds for a file of [`SIZE`] bytes.
fn slow_options() -> CopyOptions {
    options().with(|o| {
        o.streams.transfer = rate_limited(2 << 20);
        o.streams.parallelism = Parallelism::Fixed(2);
    })
}

fn waiting_options() -> CopyOptions {
    options().with(|o| o.file.wait = true)
}

/// Two files of equal length that differ in every byte.
fn two_contents() -> (Vec<u8>, Vec<u8>) {
    let one = random_bytes(SIZE);
    let other = one.iter().map(|byte| !byte).collect();
    (one, other)
}

/// A copy of the first content from a pipe, which ends when the test says so.
struct PipeCopyInProgress {
    copying: JoinHandle<CopySummary>,
    go_on: mpsc::Sender<()>,
    _directory: tempfile::TempDir,
}

impl PipeCopyInProgress {
    /// Starts the copy and returns when it has moved half of the file.
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
        let (copying, events) = start_copy(&source, to, options());
        events.wait_until(is_moving).await;
        Self {
            copying,
            go_on,
            _directory: directory,
        }
    }

    async fn finish(self) {
        self.go_on.send(()).unwrap();
        let summary = self.copying.await.unwrap();
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "crc32c");
    }
}

fn start_copy(
    from: &str,
    to: &str,
    options: CopyOptions,
) -> (JoinHandle<CopySummary>, Arc<EventRecorder>) {
    let events = Arc::new(EventRecorder::default());
    let (sources, to, observer) = ([from.to_owned()], to.to_owned(), Arc::clone(&events));
    let copying = async move { copy::copy(&sources, &to, &options, observer).await };
    (tokio::spawn(copying), events)
}

fn is_moving(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Progress(progress) if progress.bytes > 0)
}

fn is_waiting(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Warning(text) if text.ends_with("; waiting"))
}

fn assert_refused(summary: &CopySummary) {
    assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
    let failure = summary.first_failure.as_ref();
    let message = failure.map_or_else(String::new, Failure::to_string);
    assert!(
        message.contains("another copy is writing this file"),
        "{message}"
    );
    assert!(failure.is_some_and(|f| f.kind() == FailureKind::DestinationBusy));
}

/// While another copy to `to` runs, `second` is refused; with `--wait` it runs afterwards.
async fn assert_one_writer_at_a_time(second: &str, to: &str, content: impl Fn() -> Vec<u8>) {
    let (one, other) = two_contents();
    let first = PipeCopyInProgress::to(to).await;
    let (summary, events) = copy(&[second], to, &options()).await;
    assert_refused(&summary);
    assert_eq!(events.count(|e| matches!(e, CopyEvent::Retrying { .. })), 0);
    first.finish().await;
    assert!(content() == one);

    let first = PipeCopyInProgress::to(to).await;
    let (waiting, events) = start_copy(second, to, waiting_options());
    events.wait_until(is_waiting).await;
    first.finish().await;
    let summary = waiting.await.unwrap();
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(content() == other);
}

/// Writes the second content.
fn write_second_content(path: &Path) -> String {
    std::fs::write(path, two_contents().1).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_never_mixes_with_another_copy_to_its_destination() {
    let server = EndToEndServer::start().await;
    write_second_content(&server.root().join("g"));
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    let content = || std::fs::read(&to).unwrap();
    assert_one_writer_at_a_time(&server.url("g"), to.to_str().unwrap(), content).await;
    assert_eq!(file_names(workdir.path()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_local_copies_to_one_destination_never_mix() {
    let workdir = tempfile::tempdir().unwrap();
    let from = write_second_content(&workdir.path().join("g"));
    let to = workdir.path().join("t");
    let content = || std::fs::read(&to).unwrap();
    assert_one_writer_at_a_time(&from, to.to_str().unwrap(), content).await;
    assert_eq!(file_names(workdir.path()), ["g", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_puts_to_one_destination_never_mix() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = write_second_content(&workdir.path().join("g"));
    assert_one_writer_at_a_time(&from, &server.url("t"), || server.read("t")).await;
    assert_eq!(file_names(&server.root()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_party_copy_never_mixes_with_a_put_to_the_same_file() {
    let (from, server) = (EndToEndServer::start().await, EndToEndServer::start().await);
    write_second_content(&from.root().join("g"));
    let to = server.user_url("t");
    assert_one_writer_at_a_time(&from.user_url("g"), &to, || server.read("t")).await;
    assert_eq!(file_names(&server.root()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gets_to_one_destination_never_mix() {
    let server = EndToEndServer::start().await;
    let (one, _) = two_contents();
    server.store("f", &one);
    write_second_content(&server.root().join("g"));
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t").display().to_string();
    let (first, events) = start_copy(&server.url("f"), &to, slow_options());
    events.wait_until(is_moving).await;
    let partial = std::fs::File::open(format!("{to}.longhaul-partial")).unwrap();
    assert_eq!(
        take_write_lock(&partial, WriteLockKind::Exclusive).unwrap(),
        WriteLockStatus::Busy
    );
    let (second, _) = start_copy(&server.url("g"), &to, options());
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.exit, Exit::Done, "{:?}", first.first_failure);
    // Refused, or on a slow machine started later and complete.
    if second.exit == Exit::Local {
        assert_refused(&second);
        assert!(std::fs::read(&to).unwrap() == one);
    } else {
        assert_eq!(second.exit, Exit::Done, "{:?}", second.first_failure);
        assert!(std::fs::read(&to).unwrap() == two_contents().1);
    }
    assert_eq!(file_names(workdir.path()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_with_keep_existing_keeps_a_file_that_appeared_meanwhile() {
    let server = EndToEndServer::start().await;
    write_second_content(&server.root().join("g"));
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t").display().to_string();
    let first = PipeCopyInProgress::to(&to).await;
    let keep = waiting_options().with(|o| o.file.keep_existing = true);
    let (waiting, events) = start_copy(&server.url("g"), &to, keep);
    events.wait_until(is_waiting).await;
    first.finish().await;
    let summary = waiting.await.unwrap();
    assert_eq!((summary.exit, summary.kept), (Exit::Done, 1));
    assert!(std::fs::read(&to).unwrap() == two_contents().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interruption_leaves_no_lock_and_a_failure_no_empty_file() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(SIZE));
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t").display().to_string();
    let partial = workdir.path().join("t.longhaul-partial");
    copy_and_interrupt(&server.url("f"), &to, &slow_options(), (1 << 20, &partial)).await;
    let resumed = options().with(|o| o.file.resume = true);
    let (summary, _) = copy(&[&server.url("f")], &to, &resumed).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let nowhere = "ftp://127.0.0.1:1/f";
    let (summary, _) = copy(
        &[nowhere],
        workdir.path().join("n").to_str().unwrap(),
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(file_names(workdir.path()), ["t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symlink_at_the_partial_name_is_not_followed() {
    let server = EndToEndServer::start().await;
    server.store("f", b"new");
    let workdir = tempfile::tempdir().unwrap();
    let victim = workdir.path().join("victim");
    std::fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, workdir.path().join("t.longhaul-partial")).unwrap();
    let to = workdir.path().join("t");
    let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
    assert_eq!(std::fs::read(&to).unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_copy_removes_a_stale_journal() {
    let workdir = tempfile::tempdir().unwrap();
    let path = |name: &str| workdir.path().join(name);
    std::fs::write(path("f"), "new").unwrap();
    std::fs::write(path("t.longhaul-partial"), "of a get").unwrap();
    std::fs::write(path("t.longhaul-journal"), "of a get").unwrap();
    let shown = |name: &str| path(name).display().to_string();
    let (summary, _) = copy(&[&shown("f")], &shown("t"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(workdir.path()), ["f", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_copy_discards_a_stale_journal_before_it_writes() {
    let workdir = tempfile::tempdir().unwrap();
    let path = |name: &str| workdir.path().join(name);
    std::fs::write(path("t.longhaul-partial"), "of a get").unwrap();
    std::fs::write(path("t.longhaul-journal"), "of a get").unwrap();
    let under_way = PipeCopyInProgress::to(path("t").to_str().unwrap()).await;
    assert_eq!(file_names(workdir.path()), ["t.longhaul-partial"]);
    under_way.finish().await;
    // A journal that cannot be removed would describe bytes that are gone.
    write_private(&path("t.longhaul-partial"), b"of a get");
    std::fs::create_dir(path("t.longhaul-journal")).unwrap();
    let from = write_second_content(&path("f"));
    let (summary, _) = copy(&[&from], path("t").to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Local, "{:?}", summary.first_failure);
    let left = std::fs::read(path("t.longhaul-partial")).unwrap();
    assert_eq!(left, b"of a get");
}

/// The result of a put whose server answers STOR with these refusals first.
async fn put_with_store_refusals(
    refusals: &[&'static str],
    options: &CopyOptions,
) -> (CopySummary, usize) {
    let faulty = FaultyServer {
        store_refusals: Arc::new(std::sync::Mutex::new(refusals.to_vec())),
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, "content").unwrap();
    let url = format!("ftp://{}/g", faulty.start());
    let (summary, _) = copy(&[from.to_str().unwrap()], &url, options).await;
    (summary, faulty.commands("STOR").len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_upload_is_retried_only_with_wait() {
    let store_refusals = ["450 /g: another upload is writing this file"; 2];
    let (summary, stores) = put_with_store_refusals(&store_refusals, &options()).await;
    assert_eq!((summary.exit, stores), (Exit::Local, 1));
    let message = summary.first_failure.unwrap().to_string();
    assert!(
        message.contains("another upload") && message.contains("--wait"),
        "{message}"
    );
    // A 450 of another program's server is retried.
    let (summary, stores) = put_with_store_refusals(&["450 file busy"], &options()).await;
    assert_eq!((summary.exit, stores), (Exit::Done, 2));
    let (summary, stores) = put_with_store_refusals(&store_refusals, &waiting_options()).await;
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
    from.store("f", &random_bytes(1000));
    let (summary, _) = copy(&[&from.user_url("f")], &to.user_url("g"), &slow_options()).await;
    assert_eq!(summary.exit, Exit::Usage);
    let message = summary.first_failure.unwrap().to_string();
    assert!(message.contains("--limit-rate"), "{message}");
    assert_eq!(file_names(&to.root()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_files_share_one_rate_limit() {
    let server = EndToEndServer::start().await;
    for name in ["a", "b", "c", "d"] {
        server.store(&format!("d/{name}"), &random_bytes(1 << 20));
    }
    let workdir = tempfile::tempdir().unwrap();
    let rate_limited = slow_options().with(|o| o.tree.recursive = true);
    let to = workdir.path().join("t");
    let (summary, _) = copy(&[&server.url("d")], to.to_str().unwrap(), &rate_limited).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(&to), ["a", "b", "c", "d"]);
    // The burst allowance is a tenth of a second; the rest has to wait, however busy the machine
    // is.
    assert!(summary.seconds > 1.8, "{}", summary.seconds);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hashed_partial_name_is_resumed_and_removed() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let name = "x".repeat(250);
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(SIZE)).unwrap();
    let from = from.to_str().unwrap();
    let url = server.url(&name);
    let left = || {
        let file_names = file_names(&server.root());
        file_names
            .iter()
            .filter(|n| n.ends_with(".longhaul-partial"))
            .count()
    };
    let start_and_interrupt = || async {
        // The copy interrupted before may release its lock a moment later.
        let patient = slow_options().with(|o| o.file.wait = true);
        let (copying, events) = start_copy(from, &url, patient);
        events.wait_until(is_moving).await;
        while left() == 0 {
            tokio::task::yield_now().await;
        }
        copying.abort();
        assert!(copying.await.is_err());
    };
    start_and_interrupt().await;
    assert_eq!(left(), 1);
    let resumed = options().with(|o| {
        o.file.resume = true;
        o.file.wait = true;
    });
    let (summary, _) = copy(&[from], &server.url(&name), &resumed).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(&server.root()), [name.as_str()]);
    start_and_interrupt().await;
    assert_eq!(left(), 1);
    let remote = copy::RemoteOptions {
        timeout: Duration::from_secs(60),
        security: Arc::default(),
    };
    copy::remove(&server.url(&name), false, &remote)
        .await
        .unwrap();
    assert_eq!(file_names(&server.root()), Vec::<String>::new());
    // A file that was never complete can be removed, too.
    start_and_interrupt().await;
    copy::remove(&server.url(&name), false, &remote)
        .await
        .unwrap();
    assert_eq!(file_names(&server.root()), Vec::<String>::new());
    let missing = copy::remove(&server.url(&name), false, &remote).await;
    assert_eq!(missing.unwrap_err().exit(), Exit::NotFound);
    let long = server.url(&"x".repeat(256));
    let (summary, _) = copy(&[from], &long, &options()).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert_eq!(file_names(&server.root()), Vec::<String>::new());
}

/// A file that was moved out of the way of `x` and could not be moved back.
const BACKUP_NAME: &str = "x.longhaul-partial.old";

/// A tree of two files and a backup of one, with the partial file and journal of a third.
fn create_tree_with_leftovers(top: &Path) {
    std::fs::create_dir(top).unwrap();
    for name in [
        "x",
        "y",
        BACKUP_NAME,
        "x.longhaul-partial",
        "x.longhaul-journal",
    ] {
        std::fs::write(top.join(name), name).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_files_in_a_tree_are_skipped_and_backups_are_copied() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let workdir = tempfile::tempdir().unwrap();
    create_tree_with_leftovers(&workdir.path().join("d"));
    create_tree_with_leftovers(&server.root().join("d"));
    let local = workdir.path().join("d").display().to_string();
    let back = workdir.path().join("back").display().to_string();
    let recursive = options().with(|o| o.tree.recursive = true);
    for (from, to) in [
        (local.clone(), server.url("t")),
        (server.url("d"), back.clone()),
        (server.user_url("d"), other.user_url("t")),
        (local, workdir.path().join("here").display().to_string()),
    ] {
        let (summary, events) = copy(&[&from], &to, &recursive).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!((summary.files, summary.skipped), (3, 2));
        let named = |e: &CopyEvent| {
            matches!(e, CopyEvent::Skipped { source, reason }
                if source.contains("x.longhaul-") && reason.contains("unfinished"))
        };
        assert_eq!(events.count(named), 2);
    }
    assert_eq!(file_names(Path::new(&back)), ["x", BACKUP_NAME, "y"]);
    assert_eq!(
        file_names(&server.root().join("t")),
        ["x", BACKUP_NAME, "y"]
    );
}
