//! Checksum files, written by copies and checked by this program and by coreutils.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use copy::{
    CheckTotals, CheckedSum, CopyOptions, Exit, PairSource, RemoteOptions, SyncOptions, WriteSums,
    check_sums,
};

use crate::support::{EndToEndServer, EventRecorder, copy, options};

fn writing(sums: &Path) -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.write_sums = Some(WriteSums::new(sums.to_owned(), None));
    })
}

/// Small files, which travel in a bundle, a large one, and names that need escapes.
fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("d/e")).unwrap();
    for n in 0..20 {
        fs::write(top.join(format!("d/{n}")), n.to_string()).unwrap();
    }
    fs::write(top.join("d/e/back\\slash"), "1").unwrap();
    fs::write(top.join(" blank "), "2").unwrap();
    fs::write(top.join("large"), vec![3; 17 << 20]).unwrap();
}

/// Whether a program of coreutils accepts the checksum file.
fn accepts(program: &str, sums: &Path, top: &Path) -> bool {
    let mut check = Command::new(program);
    check.args(["--check", "--strict", "--quiet"]).arg(sums);
    check.current_dir(top).status().unwrap().success()
}

async fn check(sums: &Path, base: &str) -> (CheckTotals, Vec<(String, CheckedSum)>) {
    let options = RemoteOptions {
        timeout: Duration::from_secs(60),
        security: Arc::default(),
    };
    let mut results = Vec::new();
    let mut visit = |file: copy::CheckedFile| {
        results.push((String::from_utf8(file.name).unwrap(), file.result));
    };
    let text = fs::read(sums).unwrap();
    let totals = check_sums(&mut &text[..], sums, None, base, &options, &mut visit)
        .await
        .unwrap();
    (totals, results)
}

#[tokio::test(flavor = "multi_thread")]
async fn coreutils_accepts_the_checksums_of_copies_in_all_directions() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let workdir = tempfile::tempdir().unwrap();
    let at = |name: &str| workdir.path().join(name);
    make_tree(&at("from"));
    let local = |name: &str| at(name).to_str().unwrap().to_owned();
    let copies = [
        (local("from"), server.user_url("t"), server.root().join("t")),
        (server.url("t"), local("back"), at("back")),
        (local("from"), local("copy"), at("copy")),
        (
            server.user_url("t"),
            other.user_url("t"),
            other.root().join("t"),
        ),
    ];
    for (n, (source, destination, top)) in copies.into_iter().enumerate() {
        let program = ["sha256sum", "md5sum", "sha512sum", "sha1sum"][n];
        let sums = at(&format!("{}s", program.to_uppercase()));
        let (summary, _) = copy(&[&source], &destination, &writing(&sums)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(accepts(program, &sums, &top), "{program}");
        let (totals, _) = check(&sums, &destination).await;
        assert_eq!((totals.matching, totals.files()), (23, 23), "{destination}");
        assert!(
            accepts(program, &sums, &at("from")),
            "the names are those of the tree"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_relative_to_the_destination() {
    let workdir = tempfile::tempdir().unwrap();
    let at = |name: &str| workdir.path().join(name);
    make_tree(&at("from"));
    fs::write(at("line\nfeed"), "x").unwrap();
    fs::create_dir(at("to")).unwrap();
    let sums = at("SHA256SUMS");
    let names = ["from", "line\nfeed"].map(|name| at(name).to_str().unwrap().to_owned());
    let sources = [names[0].as_str(), names[1].as_str()];
    let (summary, _) = copy(&sources, at("to").to_str().unwrap(), &writing(&sums)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(accepts("sha256sum", &sums, &at("to")));
    let (totals, results) = check(&sums, at("to").to_str().unwrap()).await;
    assert_eq!(totals.matching, 24);
    assert!(results.iter().any(|(name, _)| name == "line\nfeed"));
    assert!(
        results
            .iter()
            .any(|(name, _)| name == "from/d/e/back\\slash")
    );
    // A file with a new name: its sum is that of the part that was copied.
    let part = writing(&sums).with(|o| {
        o.file.offset = Some(1);
        o.file.length = Some(100);
    });
    let (from, to) = (at("from/large"), at("to/part"));
    let (summary, _) = copy(&[from.to_str().unwrap()], to.to_str().unwrap(), &part).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(accepts("sha256sum", &sums, &at("to")));
    assert!(fs::read_to_string(&sums).unwrap().ends_with("  part\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_names_files_that_differ_are_missing_or_cannot_be_read() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let (from, sums) = (
        workdir.path().join("from"),
        workdir.path().join("SHA256SUMS"),
    );
    make_tree(&from);
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("t"), &writing(&sums)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    server.store("t/d/7", b"8");
    let there = server.root().join("t");
    fs::remove_file(there.join("d/8")).unwrap();
    fs::remove_file(there.join("d/9")).unwrap();
    fs::create_dir(there.join("d/9")).unwrap();
    let mut text = fs::read_to_string(&sums).unwrap();
    text.push_str("# a comment\nno checksum\n");
    fs::write(&sums, text).unwrap();
    for base in [server.url("t"), there.to_str().unwrap().to_owned()] {
        let (totals, results) = check(&sums, &base).await;
        let expected = CheckTotals {
            matching: 20,
            differing: 1,
            missing: 1,
            unreadable: 1,
            malformed: 1,
        };
        assert_eq!(totals, expected, "{results:?}");
        let of = |name: &str| results.iter().find(|(n, _)| n == name).unwrap().1.clone();
        assert_eq!(
            (of("d/7"), of("d/8")),
            (CheckedSum::Differs, CheckedSum::Missing)
        );
        assert!(
            matches!(of("d/9"), CheckedSum::Unreadable(_)),
            "a directory"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_writes_the_checksums_of_files_that_it_does_not_copy_too() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let (from, sums) = (
        workdir.path().join("from"),
        workdir.path().join("SHA256SUMS"),
    );
    make_tree(&from);
    let mut options = SyncOptions {
        copy: options(),
        delete: true,
        checksum: false,
    };
    options.copy.tree.recursive = true;
    let sync = async |options: &SyncOptions| {
        let recorder = Arc::new(EventRecorder::default());
        let (from, there) = (from.to_str().unwrap(), server.url("t"));
        let summary = copy::sync(from, &there, options, recorder).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        summary.files
    };
    assert_eq!(sync(&options).await, 23);
    options.copy.write_sums = Some(WriteSums::new(sums.clone(), None));
    fs::write(from.join("d/7"), "longer").unwrap();
    fs::remove_file(from.join("d/8")).unwrap();
    for copied in [1, 0] {
        assert_eq!(sync(&options).await, copied);
        assert!(accepts("sha256sum", &sums, &server.root().join("t")));
        assert_eq!(fs::read_to_string(&sums).unwrap().lines().count(), 22);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_file_never_replaces_a_file_of_the_copy() {
    let workdir = tempfile::tempdir().unwrap();
    let file = workdir.path().join("f");
    fs::write(&file, "1").unwrap();
    let to = workdir.path().join("g");
    for sums in [&file, &to] {
        let (from, to) = (file.to_str().unwrap(), to.to_str().unwrap());
        let (summary, _) = copy(&[from], to, &writing(sums)).await;
        assert_eq!(summary.exit, Exit::Usage);
        let message = summary.first_failure.unwrap().to_string();
        assert!(message.contains("another file"), "{message}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"1");
    assert_eq!(fs::read(&to).unwrap(), b"1");
    assert_eq!(crate::support::file_names(workdir.path()), ["f", "g"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_keeps_the_checksums_of_an_earlier_one() {
    let workdir = tempfile::tempdir().unwrap();
    let [from, to, sums] = ["from", "to", "MD5SUMS"].map(|name| workdir.path().join(name));
    fs::create_dir(&from).unwrap();
    for name in ["a", "b"] {
        fs::write(from.join(name), name).unwrap();
    }
    let options = SyncOptions {
        copy: writing(&sums),
        delete: false,
        checksum: false,
    };
    let sync = async |from: &Path| {
        let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
        let observer = Arc::new(EventRecorder::default());
        copy::sync(from, to, &options, observer).await.exit
    };
    assert_eq!(sync(&from).await, Exit::Done);
    let lines = || {
        let text = fs::read_to_string(&sums).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let earlier = lines();
    assert_eq!(earlier.len(), 2);
    assert_ne!(sync(&from.join("none")).await, Exit::Done);
    assert_eq!(lines(), earlier, "nothing was compared");
    // The copy of one file fails, so that the older one stays.
    fs::write(from.join("a"), "longer").unwrap();
    fs::create_dir(to.join("a.longhaul-partial")).unwrap();
    assert_ne!(sync(&from).await, Exit::Done);
    assert_eq!(fs::read(to.join("a")).unwrap(), b"a");
    assert_eq!(lines(), earlier);
}

#[tokio::test]
async fn checksums_of_a_list_of_pairs_are_refused() {
    let workdir = tempfile::tempdir().unwrap();
    let [from, to, list, sums] =
        ["from", "to", "list", "MD5SUMS"].map(|name| workdir.path().join(name));
    fs::write(&from, "text").unwrap();
    fs::write(&list, format!("{} {}\n", from.display(), to.display())).unwrap();
    let observer = Arc::new(EventRecorder::default());
    let pairs = PairSource::File(list);
    let summary = copy::copy_pairs(&pairs, &writing(&sums), observer).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert!(!to.exists());
}
