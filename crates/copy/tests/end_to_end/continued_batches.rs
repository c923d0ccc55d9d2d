//! Batches that are interrupted and continued by a later run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use copy::{BatchJournalLocation, CopyEvent, CopyOptions, Exit, Parallelism, VerifyMode};
use proto::checksum::ChecksumAlgorithm;
use tune::streams::chunked::ChunkTuningMode;

use crate::support::{EndToEndServer, EventRecorder, copy, file_names, options};

/// Options of a tree whose journal is in `directory`.
pub(crate) fn kept_in(directory: &Path) -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.journal = BatchJournalLocation::Directory(directory.to_owned());
    })
}

/// One file at a time, none in bundles.
pub(crate) fn one_by_one(options: CopyOptions) -> CopyOptions {
    options.with(|o| {
        o.concurrency = Some(1);
        o.file.verify = VerifyMode::With(ChecksumAlgorithm::Sha256);
    })
}

/// Options of the next run. It waits until the tasks of the interrupted one have let go of their files.
pub(crate) fn resuming(options: &CopyOptions) -> CopyOptions {
    options.clone().with(|o| {
        o.file.resume = true;
        o.file.wait = true;
    })
}

pub(crate) fn is_finished(event: &CopyEvent) -> bool {
    matches!(event, CopyEvent::Finished { .. })
}

/// Copies, and drops the copy after this many files, as a kill would.
pub(crate) async fn copy_some(
    source: &str,
    destination: &str,
    options: &CopyOptions,
    files: usize,
) {
    let recorder = Arc::new(EventRecorder::default());
    let sources = [source.to_owned()];
    let copying = copy::copy(&sources, destination, options, recorder.clone());
    tokio::select! {
        biased;
        () = async {
            while recorder.count(is_finished) < files {
                recorder.wait_until_changed().await;
            }
        } => {}
        ended = copying => panic!("ended before it was interrupted: {ended:?}"),
    }
}

/// A server with files `d0/0`, `d1/1`, ...
pub(crate) async fn server_with_files(count: usize) -> EndToEndServer {
    let server = EndToEndServer::start().await;
    for n in 0..count {
        server.store(
            &format!("t/d{}/{n}", n % 3),
            format!("content {n}").as_bytes(),
        );
    }
    server
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Gives files another content, with the size and the time that they have: only another transfer changes that.
pub(crate) fn disguise(files: &[PathBuf]) {
    for path in files {
        let found = fs::metadata(path).unwrap();
        let length = usize::try_from(found.len()).unwrap();
        fs::write(path, "#".repeat(length)).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(found.modified().unwrap()).unwrap();
    }
}

/// How many files were not transferred since they were disguised.
pub(crate) fn disguised(files: &[PathBuf]) -> usize {
    let content = |path: &PathBuf| fs::read(path).unwrap_or_default();
    let all = files.iter().map(content);
    all.filter(|bytes| bytes.first() == Some(&b'#')).count()
}

/// The files below a directory that have their final names.
pub(crate) fn complete_files(top: &Path) -> Vec<PathBuf> {
    let mut files = all_files(top);
    files.retain(|path| !text(path).contains("longhaul-"));
    files
}

pub(crate) fn all_files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in file_names(top) {
        let directory = top.join(directory);
        found.extend(
            file_names(&directory)
                .iter()
                .map(|name| directory.join(name)),
        );
    }
    found
}

/// Sets the time of a file back by 61 days.
pub(crate) fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(61 * 24 * 3600);
    file.set_modified(long_ago).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_tree_is_neither_listed_nor_sent_again_as_far_as_it_is_done() {
    let server = server_with_files(40).await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
    let options = one_by_one(kept_in(&journals));
    copy_some(&server.url("t"), text(&to), &options, 10).await;
    assert_eq!(file_names(&journals).len(), 1);
    let complete = complete_files(&to);
    assert!((10..40).contains(&complete.len()), "{complete:?}");
    // Only another listing would find a new file.
    disguise(&complete);
    server.store("t/d0/new", b"new");
    let (summary, recorder) = copy(&[&server.url("t")], text(&to), &resuming(&options)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    // The last one may have had its name, but not its mark.
    let unchanged = disguised(&complete);
    assert!(unchanged + 1 >= complete.len(), "{unchanged}");
    assert_eq!(usize::try_from(summary.files).unwrap(), 40 - unchanged);
    assert_eq!(recorder.count(is_finished), 40 - unchanged);
    assert!(!to.join("d0/new").exists() && !to.join("t").exists());
    assert_eq!(all_files(&to).len(), 40);
    assert!(file_names(&journals).is_empty(), "removed at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_flag_a_tree_goes_on_where_it_was_and_what_is_new_or_changed_is_copied() {
    let server = server_with_files(40).await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
    let options = one_by_one(kept_in(&journals));
    copy_some(&server.url("t"), text(&to), &options, 10).await;
    let mut complete = complete_files(&to);
    disguise(&complete);
    server.store("t/d0/new", b"new");
    let changed = complete.remove(0);
    let source = format!("t/{}", text(changed.strip_prefix(&to).unwrap()));
    server.store(&source, b"another content of it");
    let later = options.with(|o| o.file.wait = true);
    let (summary, recorder) = copy(&[&server.url("t")], text(&to), &later).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let unchanged = disguised(&complete);
    assert!(unchanged + 1 >= complete.len(), "{unchanged}");
    assert_eq!(usize::try_from(summary.files).unwrap(), 41 - unchanged);
    let in_place = |event: &CopyEvent| match event {
        // The changed one is in place, too: its copy is that of the earlier source.
        CopyEvent::Continuing { files } => *files == unchanged as u64 + 1,
        _ => false,
    };
    assert_eq!(recorder.count(in_place), 1);
    assert_eq!(fs::read(&changed).unwrap(), b"another content of it");
    assert_eq!(fs::read(to.join("d0/new")).unwrap(), b"new");
    assert!(
        !to.join("t").exists(),
        "not copied into what the first run has made"
    );
    assert_eq!(all_files(&to).len(), 41);
    assert!(file_names(&journals).is_empty(), "removed at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_restart_a_tree_is_copied_as_if_it_were_new() {
    let server = server_with_files(20).await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
    let options = one_by_one(kept_in(&journals));
    copy_some(&server.url("t"), text(&to), &options, 5).await;
    let restart = options.with(|o| {
        o.file.restart = true;
        o.file.wait = true;
    });
    let (summary, _) = copy(&[&server.url("t")], text(&to), &restart).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.files, 20);
    assert_eq!(
        all_files(&to.join("t")).len(),
        20,
        "the directory exists now"
    );
    assert!(file_names(&journals).is_empty(), "removed at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_of_files_that_are_missing_or_changed_at_the_destination_do_not_count() {
    for resume in [true, false] {
        for is_put in [false, true] {
            let server = server_with_files(40).await;
            // Older than what is changed below.
            all_files(&server.root().join("t"))
                .iter()
                .for_each(|path| age(path));
            let scratch = tempfile::tempdir().unwrap();
            let journals = scratch.path().join("j");
            let options = one_by_one(kept_in(&journals));
            let (source, destination, to) = match is_put {
                true => {
                    let from = scratch.path().join("from");
                    let fetched = copy(&[&server.url("t")], text(&from), &kept_in(&journals)).await;
                    assert_eq!(fetched.0.exit, Exit::Done);
                    let there = server.root().join("put");
                    (text(&from).to_owned(), server.url("put"), there)
                }
                false => {
                    let to = scratch.path().join("to");
                    (server.url("t"), text(&to).to_owned(), to)
                }
            };
            copy_some(&source, &destination, &options, 12).await;
            let mut complete = complete_files(&to);
            disguise(&complete);
            // The last files may have no marks yet.
            let damaged: Vec<PathBuf> = complete.drain(..4).collect();
            fs::remove_file(&damaged[0]).unwrap();
            fs::write(&damaged[1], "").unwrap();
            let length = fs::metadata(&damaged[2]).unwrap().len();
            fs::write(&damaged[2], "x".repeat(usize::try_from(length).unwrap())).unwrap();
            let file = fs::File::options().write(true).open(&damaged[3]).unwrap();
            file.set_len(length / 2).unwrap();
            let later = options.with(|o| {
                o.file.resume = resume;
                o.file.wait = true;
            });
            let (summary, recorder) = copy(&[&source], &destination, &later).await;
            let case = format!("resume {resume}, put {is_put}: {summary:?}");
            assert_eq!(summary.exit, Exit::Done, "{case}");
            assert!(disguised(&complete) + 1 >= complete.len(), "{case}");
            for path in &damaged {
                let content = fs::read_to_string(path).unwrap();
                assert!(content.starts_with("content "), "{case}: {content}");
            }
            let warnings = recorder.warnings();
            let told = "4 files of an earlier run are missing at the destination, or changed there";
            assert!(
                warnings.iter().any(|text| text.starts_with(told)),
                "{warnings:?}"
            );
            assert_eq!(all_files(&to).len(), 40, "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_was_removed_is_copied_whole_by_the_next_run() {
    for resume in [true, false] {
        let server = server_with_files(30).await;
        let scratch = tempfile::tempdir().unwrap();
        let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
        let options = one_by_one(kept_in(&journals));
        copy_some(&server.url("t"), text(&to), &options, 8).await;
        // Its writers have let go when the copy can be repeated, not before.
        let later = options.with(|o| {
            o.file.resume = resume;
            o.file.wait = true;
        });
        fs::rename(&to, scratch.path().join("gone")).unwrap();
        let (summary, _) = copy(&[&server.url("t")], text(&to), &later).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!((summary.files, all_files(&to).len()), (30, 30));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_done_travels_in_bundles_and_a_changed_source_is_copied_as_it_is() {
    let server = server_with_files(60).await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
    // Files that are cut into chunks are in no bundle.
    let single = kept_in(&journals).with(|o| {
        o.concurrency = Some(1);
        o.streams.parallelism = Parallelism::Chunked(ChunkTuningMode::Mi);
    });
    copy_some(&server.url("t"), text(&to), &single, 3).await;
    let last = (0..60).rfind(|n| !to.join(format!("d{}/{n}", n % 3)).exists());
    let last = last.unwrap();
    server.store(&format!("t/d{}/{last}", last % 3), b"another content");
    let options = kept_in(&journals);
    let (summary, _) = copy(&[&server.url("t")], text(&to), &resuming(&options)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let changed = fs::read(to.join(format!("d{}/{last}", last % 3))).unwrap();
    assert_eq!(changed, b"another content");
    assert_eq!(all_files(&to).len(), 60);
}

/// Writes other content of the same size into a file, whose time stays within its second.
fn write_again(path: &Path) -> String {
    let before = fs::metadata(path).unwrap();
    let second = before.modified().unwrap();
    let since = second.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let text = "!".repeat(usize::try_from(before.len()).unwrap());
    fs::write(path, &text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    let begin = second - Duration::from_nanos(u64::from(since.subsec_nanos()));
    file.set_modified(begin).unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_source_that_was_written_again_in_the_same_second_is_copied_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for n in 0..40 {
        let directory = from.join(format!("d{}", n % 3));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(n.to_string()), format!("content {n}")).unwrap();
    }
    let options = one_by_one(kept_in(&scratch.path().join("j")));
    copy_some(text(&from), text(&to), &options, 10).await;
    let mut complete = complete_files(&to);
    disguise(&complete);
    let changed = complete.remove(0);
    let written = write_again(&from.join(changed.strip_prefix(&to).unwrap()));
    let later = options.with(|o| o.file.wait = true);
    let (summary, _) = copy(&[text(&from)], text(&to), &later).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(fs::read_to_string(&changed).unwrap(), written);
    assert!(
        disguised(&complete) + 1 >= complete.len(),
        "the others are not copied again"
    );
    assert_eq!(all_files(&to).len(), 40);
}
