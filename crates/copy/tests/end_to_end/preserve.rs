//! Permissions and times that copies keep.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use copy::{
    CopyEvent, CopyOptions, Exit, PairSource, Preserve, PreservedTimes, SparseFiles, SyncOptions,
};

use crate::support::{EndToEndServer, EventRecorder, copy, options};

const LONG_AGO: u64 = 1_500_000_000;

fn keeping(preserve: Preserve) -> CopyOptions {
    options().with(|o| {
        o.tree.recursive = true;
        o.file.preserve = preserve;
    })
}

const ALL: Preserve = Preserve {
    times: PreservedTimes::FilesAndDirectories,
    modes: true,
    hard_links: true,
};

fn set(path: &Path, mode: u32, seconds: u64) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A tree of small files and a large one, a read-only directory, and a program that runs as its owner.
fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("d/read-only")).unwrap();
    let files = [
        ("d/a", 0o600),
        ("d/b", 0o755),
        ("d/read-only/c", 0o444),
        ("setuid", 0o4711),
        ("plain", 0o644),
        ("large", 0o640),
    ];
    for (seconds, (name, mode)) in (LONG_AGO..).zip(files) {
        let path = top.join(name);
        let length = if name == "large" { 17 << 20 } else { 100 };
        fs::write(&path, vec![7; length]).unwrap();
        set(&path, mode, seconds);
    }
    set(&top.join("d/read-only"), 0o555, LONG_AGO + 10);
    set(&top.join("d"), 0o750, LONG_AGO + 11);
    set(top, 0o711, LONG_AGO + 12);
}

/// Permissions and times below and at `top`.
fn metadata(top: &Path) -> Vec<(String, u32, i64)> {
    let names = [
        "",
        "d",
        "d/a",
        "d/b",
        "d/read-only",
        "d/read-only/c",
        "setuid",
        "plain",
        "large",
    ];
    let of = |name: &str| {
        let meta = fs::metadata(top.join(name)).unwrap();
        (name.to_owned(), meta.mode() & 0o7777, meta.mtime())
    };
    names.into_iter().map(of).collect()
}

/// Permissions and times of a copy, which has no setuid bit.
fn expected(top: &Path) -> Vec<(String, u32, i64)> {
    let all = metadata(top).into_iter();
    all.map(|(name, mode, time)| (name, mode & 0o777, time))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_and_times_are_kept_in_all_directions() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let workdir = tempfile::tempdir().unwrap();
    let (from, back, local) = (
        workdir.path().join("from"),
        workdir.path().join("back"),
        workdir.path().join("local"),
    );
    make_tree(&from);
    let copies = [
        (
            from.to_str().unwrap().to_owned(),
            local.to_str().unwrap().to_owned(),
            local.clone(),
        ),
        (
            from.to_str().unwrap().to_owned(),
            server.user_url("t"),
            server.root().join("t"),
        ),
        (
            server.url("t"),
            back.to_str().unwrap().to_owned(),
            back.clone(),
        ),
        (
            server.user_url("t"),
            other.user_url("t"),
            other.root().join("t"),
        ),
    ];
    for (source, destination, there) in copies {
        let (summary, events) = copy(&[&source], &destination, &keeping(ALL)).await;
        assert_eq!(
            summary.exit,
            Exit::Done,
            "{source}: {:?}",
            summary.first_failure
        );
        let mut warnings = events.warnings();
        // Servers do not tell which names are hard links.
        warnings.retain(|text| !text.contains("hard links"));
        assert_eq!(warnings, [""; 0], "{source} {destination}");
        assert_eq!(metadata(&there), expected(&from), "{source} {destination}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_times_of_files_are_kept_by_default_and_nothing_with_none() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("from");
    make_tree(&from);
    let source = from.to_str().unwrap();
    let is_old = |path: &Path| fs::metadata(path).unwrap().mtime() < 1_600_000_000;
    for (name, preserve) in [
        ("default", Preserve::default()),
        (
            "none",
            Preserve {
                times: PreservedTimes::None,
                ..Preserve::default()
            },
        ),
    ] {
        let local = workdir.path().join(name);
        for (destination, there) in [
            (server.url(name), server.root().join(name)),
            (local.to_str().unwrap().to_owned(), local.clone()),
        ] {
            let (summary, _) = copy(&[source], &destination, &keeping(preserve)).await;
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            for file in ["d/a", "large"] {
                assert_eq!(
                    is_old(&there.join(file)),
                    name == "default",
                    "{destination}"
                );
            }
            assert!(!is_old(&there.join("d")));
            let mode = fs::metadata(there.join("d/b")).unwrap().mode();
            assert_eq!(mode & 0o111, 0, "the umask decides");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_keeps_the_times_of_directories_after_it_has_deleted() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("from");
    make_tree(&from);
    server.store("t/d/extra", b"x");
    let options = SyncOptions {
        copy: keeping(ALL),
        delete: true,
        checksum: false,
    };
    for copied in [6, 0] {
        let recorder = Arc::new(EventRecorder::default());
        let (source, there) = (from.to_str().unwrap(), server.url("t"));
        let summary = copy::sync(source, &there, &options, recorder.clone()).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.files, copied);
        assert!(!server.root().join("t/d/extra").exists());
        assert_eq!(metadata(&server.root().join("t")), expected(&from));
        let warned = |event: &CopyEvent| matches!(event, CopyEvent::Warning(_));
        assert_eq!(recorder.count(warned), 0);
    }
}

/// `a`, `d/b` and `d/c` are names of one file; so are `x` and `y`.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_pairs_changes_directories_at_their_own_servers() {
    let servers = [EndToEndServer::start().await, EndToEndServer::start().await];
    let workdir = tempfile::tempdir().unwrap();
    let mut pairs = String::new();
    for (n, server) in (0_u32..).zip(&servers) {
        let from = workdir.path().join(n.to_string());
        fs::create_dir_all(from.join("d")).unwrap();
        fs::write(from.join("d/file"), "text").unwrap();
        set(&from.join("d"), 0o700 | n, LONG_AGO + u64::from(n));
        // Directories of the other server, which are none of the copy.
        server.store(&format!("t{}/d/other", 1 - n), b"other");
        let there = server.url(&format!("t{n}"));
        let _ = writeln!(pairs, "{} {there}", from.to_str().unwrap());
    }
    let list = workdir.path().join("pairs");
    fs::write(&list, pairs).unwrap();
    let list = PairSource::File(list);
    let summary = copy::copy_pairs(&list, &keeping(ALL), Arc::new(EventRecorder::default())).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    for (n, server) in (0_u32..).zip(&servers) {
        let copied = fs::metadata(server.root().join(format!("t{n}/d"))).unwrap();
        let kept = (copied.mode() & 0o777, copied.mtime());
        assert_eq!(
            kept,
            (0o700 | n, i64::try_from(LONG_AGO).unwrap() + i64::from(n))
        );
        let other = fs::metadata(server.root().join(format!("t{}/d", 1 - n))).unwrap();
        assert!(other.mtime() > 1_600_000_000, "server {n}");
    }
}

fn make_linked_tree(top: &Path) {
    fs::create_dir_all(top.join("d")).unwrap();
    fs::write(top.join("a"), "one file").unwrap();
    fs::hard_link(top.join("a"), top.join("d/b")).unwrap();
    fs::hard_link(top.join("a"), top.join("d/c")).unwrap();
    fs::write(top.join("x"), "other").unwrap();
    fs::hard_link(top.join("x"), top.join("y")).unwrap();
    fs::write(top.join("alone"), "alone").unwrap();
}

/// Names of files at `top`, each group with those of one file.
fn links(top: &Path) -> Vec<Vec<String>> {
    let mut groups = std::collections::BTreeMap::<u64, Vec<String>>::new();
    for name in ["a", "alone", "d/b", "d/c", "x", "y"] {
        let inode = fs::metadata(top.join(name)).unwrap().ino();
        groups.entry(inode).or_default().push(name.to_owned());
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort();
    groups
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_links_of_a_tree_stay_hard_links() {
    let workdir = tempfile::tempdir().unwrap();
    let at = |name: &str| workdir.path().join(name);
    make_linked_tree(&at("from"));
    let (from, to) = (at("from"), at("to"));
    let (summary, events) = copy(
        &[from.to_str().unwrap()],
        to.to_str().unwrap(),
        &keeping(ALL),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.files, events.warnings().len()), (6, 0));
    assert_eq!(summary.bytes, 18, "each file is copied once");
    assert_eq!(links(&to), links(&from));
    assert_eq!(links(&to).len(), 3);
    // Without the option each name is a file.
    let apart = at("apart");
    let default = keeping(Preserve::default());
    let (summary, _) = copy(&[from.to_str().unwrap()], apart.to_str().unwrap(), &default).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(links(&apart).len(), 6);
    // A sync makes links of them, and only once; a changed file stays one file.
    let options = SyncOptions {
        copy: keeping(ALL),
        delete: true,
        checksum: false,
    };
    for files in [3, 0] {
        let observer = Arc::new(EventRecorder::default());
        let (from, apart) = (from.to_str().unwrap(), apart.to_str().unwrap());
        let summary = copy::sync(from, apart, &options, observer).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!((summary.files, summary.deleted), (files, 0));
        assert_eq!(links(Path::new(apart)), links(&at("from")));
    }
    fs::write(from.join("d/c"), "changed content").unwrap();
    let observer = Arc::new(EventRecorder::default());
    let (source, there) = (from.to_str().unwrap(), apart.to_str().unwrap());
    let summary = copy::sync(source, there, &options, observer).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 3));
    assert_eq!(links(&apart), links(&from));
    assert_eq!(fs::read(apart.join("a")).unwrap(), b"changed content");
    assert!(
        crate::support::file_names(&apart)
            .iter()
            .all(|n| !n.contains("partial"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_name_is_never_given_to_a_file_of_another_source() {
    let workdir = tempfile::tempdir().unwrap();
    let [one, two, to, list] = ["one", "two", "to", "list"].map(|name| workdir.path().join(name));
    for (tree, text) in [(&one, "text 1"), (&two, "text 2")] {
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join("first"), text).unwrap();
        set(&tree.join("first"), 0o644, LONG_AGO);
    }
    // Listed after its first name, whose place another file has.
    fs::hard_link(two.join("first"), two.join("d/further")).unwrap();
    let lines = [&one, &two].map(|from| format!("{} {}", from.display(), to.display()));
    fs::write(&list, lines.join("\n")).unwrap();
    let observer = Arc::new(EventRecorder::default());
    let list = PairSource::File(list);
    let summary = copy::copy_pairs(&list, &keeping(ALL), observer).await;
    assert_eq!((summary.exit, summary.failed), (Exit::Partial, 1));
    assert_eq!(fs::read(to.join("first")).unwrap(), b"text 1");
    assert_eq!(fs::read(to.join("d/further")).unwrap(), b"text 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_name_leaves_unfinished_files_alone() {
    let workdir = tempfile::tempdir().unwrap();
    let (from, to) = (workdir.path().join("from"), workdir.path().join("to"));
    make_linked_tree(&from);
    fs::create_dir_all(to.join("from")).unwrap();
    // That of a file `link-y` of another copy.
    let unfinished = to.join("from/link-y.longhaul-partial");
    fs::write(&unfinished, "half").unwrap();
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let (summary, _) = copy(&[from], to, &keeping(ALL)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(fs::read(&unfinished).unwrap(), b"half");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_name_is_never_given_to_an_older_file() {
    let workdir = tempfile::tempdir().unwrap();
    let (from, to) = (workdir.path().join("from"), workdir.path().join("to"));
    make_linked_tree(&from);
    let keep_existing = keeping(ALL).with(|o| o.file.keep_existing = true);
    // The copy of the first name fails, or keeps what is there.
    for (options, exit, failed) in [
        (keeping(ALL), Exit::Partial, 1),
        (keep_existing, Exit::Done, 0),
    ] {
        let there = to.join("from");
        let _ = fs::remove_dir_all(&there);
        fs::create_dir_all(there.join("d")).unwrap();
        let names = ["a", "d/b", "d/c"].map(|name| there.join(name));
        fs::write(there.join("a"), "old file").unwrap();
        if failed > 0 {
            fs::create_dir(there.join("a.longhaul-partial")).unwrap();
        }
        let (summary, _) = copy(&[from.to_str().unwrap()], to.to_str().unwrap(), &options).await;
        assert_eq!((summary.exit, summary.failed), (exit, failed));
        let texts = names.map(|name| fs::read_to_string(name).unwrap());
        let copies = texts.iter().filter(|text| *text == "one file").count();
        assert_eq!(copies, 2, "{texts:?}");
        assert_eq!(texts[0], "old file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_hard_links_gets_each_name_and_a_warning() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("from");
    make_linked_tree(&from);
    let (summary, events) = copy(&[from.to_str().unwrap()], &server.url("t"), &keeping(ALL)).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 6));
    let warnings = events.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("hard links"),
        "{warnings:?}"
    );
    assert_eq!(server.read("t/d/c"), b"one file");
    assert_eq!(links(&server.root().join("t")).len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_are_kept_made_or_filled_as_asked() {
    const LENGTH: usize = 24 << 20;
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let at = |name: &str| workdir.path().join(name);
    // Data at both ends of a block, and in between; a hole at the end.
    let (holes, full) = (at("holes"), at("full"));
    let mut content = vec![0; LENGTH];
    for offset in [0, 5 << 20, (9 << 20) + 1234] {
        content[offset..offset + 70_000].fill(7);
    }
    fs::write(&full, &content).unwrap();
    let sparse = fs::File::create(&holes).unwrap();
    for offset in [0, 5 << 20, (9 << 20) + 1234] {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 70_000], offset).unwrap();
    }
    sparse.set_len(LENGTH as u64).unwrap();
    server.store("f", &content);
    let local = |path: &Path| path.to_str().unwrap().to_owned();
    let url = server.url("f");
    for (source, sparse, has_holes) in [
        (local(&holes), SparseFiles::Auto, true),
        (local(&full), SparseFiles::Auto, false),
        (local(&holes), SparseFiles::Never, false),
        (local(&full), SparseFiles::Always, true),
        (url.clone(), SparseFiles::Always, true),
        (url, SparseFiles::Auto, false),
    ] {
        let to = at("to");
        for parallelism in [copy::Parallelism::Fixed(1), copy::Parallelism::Fixed(3)] {
            let options = options().with(|o| {
                o.file.sparse = sparse;
                o.streams.parallelism = parallelism;
                o.file.verify = copy::VerifyMode::With(proto::checksum::ChecksumAlgorithm::Sha256);
            });
            let (summary, _) = copy(&[&source], to.to_str().unwrap(), &options).await;
            let text = format!("{source} {sparse:?} {parallelism:?}");
            assert_eq!(
                summary.exit,
                Exit::Done,
                "{text}: {:?}",
                summary.first_failure
            );
            assert_eq!(summary.bytes, LENGTH as u64);
            assert!(fs::read(&to).unwrap() == content, "{text}");
            let allocated = fs::metadata(&to).unwrap().blocks() * 512;
            // A file system may compress, or share blocks.
            assert!(!has_holes || allocated < 2 << 20, "{text}: {allocated}");
            let filled = fs::metadata(&full).unwrap().blocks() * 512;
            let may_share = sparse == SparseFiles::Never && allocated < 2 << 20;
            assert!(
                has_holes || allocated >= filled || may_share,
                "{text}: {allocated}"
            );
            fs::remove_file(&to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_replaced_keeps_its_permissions_unless_others_are_kept() {
    let server = EndToEndServer::start().await;
    let (from, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tree = from.path().join("t");
    make_tree(&tree);
    let replaced = |top: &Path| {
        fs::create_dir_all(top.join("t/d/read-only")).unwrap();
        for name in ["d/a", "d/b", "d/read-only/c", "setuid", "plain", "large"] {
            fs::write(top.join("t").join(name), "old").unwrap();
            set(&top.join("t").join(name), 0o4620, LONG_AGO);
        }
    };
    let modes = |top: &Path| -> Vec<u32> {
        let all = metadata(&top.join("t")).into_iter();
        let files = all.filter(|(name, ..)| top.join("t").join(name).is_file());
        files.map(|(_, mode, _)| mode).collect()
    };
    replaced(&server.root());
    replaced(here.path());
    let source = tree.display().to_string();
    let both = [
        (server.url(""), server.root()),
        (here.path().display().to_string(), here.path().to_owned()),
    ];
    let plain = keeping(Preserve::default());
    for (to, top) in &both {
        let (summary, _) = copy(&[&source], to, &plain).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(modes(top), [0o620; 6], "{to}");
    }
    replaced(here.path());
    let (summary, _) = copy(&[&server.url("t")], &both[1].0, &plain).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(modes(here.path()), [0o620; 6]);
    for (to, top) in &both {
        let (summary, _) = copy(&[&source], to, &keeping(ALL)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(modes(top), [0o600, 0o755, 0o444, 0o711, 0o644, 0o640]);
    }
}
