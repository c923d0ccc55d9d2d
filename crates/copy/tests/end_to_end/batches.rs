//! Journals of batches, and lists of what failed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use copy::{
    BatchJournalLocation, CopyEvent, CopyOptions, CopySummary, Exit, PairSource, Preserve,
    SymlinkPolicy, WriteSums,
};

use crate::continued_batches::{
    age, copy_some, kept_in, one_by_one, resuming, server_with_files, text,
};
use crate::support::{EventRecorder, copy, file_names, rate_limited};

#[tokio::test(flavor = "multi_thread")]
async fn checksums_of_a_part_of_a_copy_do_not_replace_a_checksum_file() {
    let server = server_with_files(20).await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
    let sums = scratch.path().join("sums");
    fs::write(&sums, "of an earlier run").unwrap();
    let mut options = one_by_one(kept_in(&journals));
    options.write_sums = Some(WriteSums::new(sums.clone(), None));
    copy_some(&server.url("t"), text(&to), &options, 5).await;
    let (summary, _) = copy(&[&server.url("t")], text(&to), &resuming(&options)).await;
    assert_eq!(summary.exit, Exit::Usage, "{:?}", summary.first_failure);
    assert_eq!(fs::read(&sums).unwrap(), b"of an earlier run");
    let anew = options.with(|o| o.file.wait = true);
    let (summary, _) = copy(&[&server.url("t")], text(&to), &anew).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(fs::read_to_string(&sums).unwrap().lines().count(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_copy_runs_once_at_a_time() {
    let server = server_with_files(3).await;
    server.store("t/d0/large", &vec![7; 4 << 20]);
    let scratch = tempfile::tempdir().unwrap();
    let (to, journals) = (scratch.path().join("to"), scratch.path().join("j"));
    let slow = one_by_one(kept_in(&journals)).with(|o| o.streams.transfer = rate_limited(1 << 20));
    let recorder = Arc::new(EventRecorder::default());
    let sources = [server.url("t")];
    let copying = copy::copy(&sources, text(&to), &slow, recorder.clone());
    let second = async {
        recorder
            .wait_until(|event| matches!(event, CopyEvent::Started { .. }))
            .await;
        let resumed = resuming(&slow).with(|o| o.file.wait = false);
        let (summary, _) = copy(&[&server.url("t")], text(&to), &resumed).await;
        summary
    };
    tokio::select! {
        summary = second => {
            let failure = summary.first_failure.unwrap();
            assert_eq!(summary.exit, Exit::Local, "{failure}");
            assert!(failure.to_string().contains("runs already"), "{failure}");
        }
        ended = copying => panic!("the first copy ended: {ended:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_without_a_place_for_its_journal_warns_and_copies() {
    let server = server_with_files(5).await;
    let scratch = tempfile::tempdir().unwrap();
    let (to, file) = (scratch.path().join("to"), scratch.path().join("file"));
    fs::write(&file, "").unwrap();
    let options = kept_in(&file.join("below"));
    let (summary, recorder) = copy(&[&server.url("t")], text(&to), &options).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 5));
    let warnings = recorder.warnings();
    assert!(warnings[0].contains("no journal"), "{warnings:?}");
}

async fn copy_list(list: &Path, options: &CopyOptions) -> CopySummary {
    let pairs = PairSource::File(list.to_owned());
    copy::copy_pairs(&pairs, options, Arc::new(EventRecorder::default())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_failures_can_be_given_back() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, there) = (scratch.path().join("from"), scratch.path().join("to"));
    // A tree that is copied into an existing directory keeps its name.
    let to = there.join("from");
    let names: [&[u8]; 5] = [
        b"plain",
        b"two words",
        b"line\nbreak",
        b"\xff\xfe",
        b"q\"#%",
    ];
    fs::create_dir_all(from.join("d")).unwrap();
    for name in names {
        fs::write(from.join("d").join(OsStr::from_bytes(name)), name).unwrap();
        // A directory in its place: the copy fails.
        fs::create_dir_all(to.join("d").join(OsStr::from_bytes(name))).unwrap();
    }
    fs::write(from.join("good"), "good").unwrap();
    let list = scratch.path().join("failed");
    let options = kept_in(&scratch.path().join("j")).with(|o| o.failed_list = Some(list.clone()));
    let (summary, _) = copy(&[text(&from)], text(&there), &options).await;
    assert_eq!((summary.exit, summary.failed), (Exit::Partial, 5));
    let lines = fs::read_to_string(&list).unwrap();
    assert_eq!(lines.lines().count(), 5, "{lines}");
    for name in names {
        fs::remove_dir(to.join("d").join(OsStr::from_bytes(name))).unwrap();
    }
    let still_left = scratch.path().join("left");
    let again = options.clone().with(|o| {
        o.tree.recursive = false;
        o.failed_list = Some(still_left.clone());
    });
    let summary = copy_list(&list, &again).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.files, 5);
    for name in names {
        let copied = fs::read(to.join("d").join(OsStr::from_bytes(name))).unwrap();
        assert_eq!(copied, name);
    }
    assert_eq!(fs::read(&still_left).unwrap(), b"", "nothing failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_kept_did_not_fail() {
    let server = server_with_files(3).await;
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("to");
    fs::create_dir_all(to.join("t/d0")).unwrap();
    fs::write(to.join("t/d0/0"), "kept").unwrap();
    let list = scratch.path().join("failed");
    let options = kept_in(&scratch.path().join("j")).with(|o| {
        o.file.keep_existing = true;
        o.failed_list = Some(list.clone());
    });
    let (summary, _) = copy(&[&server.url("t")], text(&to), &options).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 2));
    assert_eq!(fs::read(to.join("t/d0/0")).unwrap(), b"kept");
    assert_eq!(fs::read(&list).unwrap(), b"", "nothing failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_failures_names_directories_and_links() {
    let scratch = tempfile::tempdir().unwrap();
    let [from, to, list] = ["from", "to", "failed"].map(|name| scratch.path().join(name));
    fs::create_dir_all(from.join("empty")).unwrap();
    // Deeper than any tree that is listed.
    fs::create_dir_all(from.join(vec!["d"; 140].join("/"))).unwrap();
    fs::write(from.join("file"), "text").unwrap();
    std::os::unix::fs::symlink("file", from.join("link")).unwrap();
    // A directory and a file are in the way of the copy.
    fs::create_dir_all(to.join("from/link")).unwrap();
    fs::write(to.join("from/empty"), "a file").unwrap();
    let options = kept_in(&scratch.path().join("j")).with(|o| {
        o.failed_list = Some(list.clone());
        o.tree.symlinks = SymlinkPolicy::Copy;
    });
    let (summary, _) = copy(&[text(&from)], text(&to), &options).await;
    assert_eq!((summary.exit, summary.failed), (Exit::Partial, 3));
    let lines = fs::read_to_string(&list).unwrap();
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    let [_, link, directory, unlisted] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(link.starts_with("# not copied") && link.ends_with("/from/link"));
    assert!(directory.starts_with("# not made") && directory.ends_with("/from/empty/"));
    assert!(unlisted.ends_with("/d/d/"), "{unlisted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_list_of_pairs_replace_no_other_file_of_it() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, to, list] = ["one", "two", "to", "list"].map(|name| scratch.path().join(name));
    for tree in [&one, &two] {
        fs::create_dir(tree).unwrap();
    }
    fs::write(one.join("soft"), "first").unwrap();
    fs::write(one.join("hard"), "first").unwrap();
    fs::write(two.join("file"), "second").unwrap();
    std::os::unix::fs::symlink("file", two.join("soft")).unwrap();
    fs::hard_link(two.join("file"), two.join("hard")).unwrap();
    let lines = [&one, &two].map(|from| format!("{} {}", text(from), text(&to)));
    fs::write(&list, lines.join("\n")).unwrap();
    let options = kept_in(&scratch.path().join("j")).with(|o| {
        o.tree.symlinks = SymlinkPolicy::Copy;
        o.file.preserve = Preserve {
            hard_links: true,
            ..Preserve::default()
        };
    });
    let summary = copy_list(&list, &options).await;
    assert_eq!((summary.exit, summary.failed), (Exit::Partial, 2));
    for name in ["soft", "hard"] {
        assert!(!to.join(name).is_symlink());
        assert_eq!(fs::read(to.join(name)).unwrap(), b"first", "{name}");
    }
    // The links that are there do not lead to a conflict with the file.
    fs::write(&list, format!("{} {}", text(&two), text(&to.join("two")))).unwrap();
    for _ in 0..2 {
        let summary = copy_list(&list, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pairs_name_files_trees_and_directories_in_both_directions() {
    let server = server_with_files(6).await;
    let scratch = tempfile::tempdir().unwrap();
    let (list, to) = (scratch.path().join("list"), scratch.path().join("to"));
    fs::write(scratch.path().join("local file"), "local").unwrap();
    let at = |path: &str| format!("{}/{path}", scratch.path().display());
    let lines = [
        "# comment".to_owned(),
        format!("{} {}", server.url("t/d0/0"), at("to/x")),
        format!("{} {}", server.url("t/d1/1"), at("to/sub/")),
        format!("{} {}", server.url("t/d2"), at("to/tree")),
        format!("\"{}\" {}", at("local file"), server.url("up/f")),
        format!("{} {}", server.url("none"), at("to/none")),
        format!("{} {}", server.url("t/d0/3"), at("to/x")),
        "one-word".to_owned(),
    ];
    fs::write(&list, lines.join("\n")).unwrap();
    let failed = scratch.path().join("failed");
    let options = kept_in(&scratch.path().join("j")).with(|o| o.failed_list = Some(failed.clone()));
    let summary = copy_list(&list, &options).await;
    assert_eq!(summary.exit, Exit::Partial, "{:?}", summary.first_failure);
    assert_eq!((summary.files, summary.failed), (5, 3));
    assert_eq!(fs::read(to.join("x")).unwrap(), b"content 0");
    assert_eq!(fs::read(to.join("sub/1")).unwrap(), b"content 1");
    assert_eq!(file_names(&to.join("tree")), ["2", "5"]);
    assert_eq!(server.read("up/f"), b"local");
    let failed = fs::read_to_string(&failed).unwrap();
    assert!(
        failed.contains("/none") && failed.contains("t/d0/3"),
        "{failed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_batch_removes_an_abandoned_journal_and_an_old_one_can_still_be_continued() {
    let server = server_with_files(30).await;
    let scratch = tempfile::tempdir().unwrap();
    let [first, other, journals] = ["first", "other", "j"].map(|name| scratch.path().join(name));
    let options = one_by_one(kept_in(&journals));
    copy_some(&server.url("t"), text(&first), &options, 10).await;
    let journal = journals.join(&file_names(&journals)[0]);
    age(&journal);
    // The batch that is continued is not abandoned.
    let (resumed, _) = copy(&[&server.url("t")], text(&first), &resuming(&options)).await;
    assert_eq!(resumed.exit, Exit::Done, "{:?}", resumed.first_failure);
    assert!(resumed.files <= 21, "{} files again", resumed.files);
    copy_some(&server.url("t"), text(&first), &options, 10).await;
    age(&journal);
    // A batch whose journal the user has named looks nowhere else.
    let named = options
        .clone()
        .with(|o| o.journal = BatchJournalLocation::File(scratch.path().join("named")));
    let (summary, _) = copy(&[&server.url("t")], text(&other), &named).await;
    assert_eq!(summary.exit, Exit::Done);
    assert!(journal.exists());
    let (summary, _) = copy(&[&server.url("t/d0")], text(&other), &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(!journal.exists(), "abandoned");
}
