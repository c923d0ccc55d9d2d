//! Directory trees, patterns, several sources.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use copy::{CopyEvent, CopyOptions, Exit};

use crate::support::{EndToEndServer, copy, file_names, options};

fn recursive() -> CopyOptions {
    options().with(|o| o.tree.recursive = true)
}

/// Four hundred small files, with blanks, UTF-8 and deep directories.
fn create_tree(top: &Path) {
    for n in 0..400 {
        let directory = match n % 4 {
            0 => top.to_owned(),
            1 => top.join("with blank"),
            2 => top.join("ünïcode/日本"),
            _ => top.join("a/b/c/d/e/f/g/h"),
        };
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file {n}")), n.to_string()).unwrap();
    }
    fs::create_dir_all(top.join("empty")).unwrap();
}

/// Every path below `top` with its content; directories have none.
fn tree_content(top: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            if path.is_dir() {
                found.push((name, None));
                pending.push(path);
            } else {
                found.push((name, Some(fs::read(&path).unwrap())));
            }
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_telnet_bytes_arrive_unchanged() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let (from, back) = (workdir.path().join("tree"), workdir.path().join("back"));
    fs::create_dir(&from).unwrap();
    // A server that drops or halves the 255s would turn one name into another, or into an unused
    // one.
    let file_names: [&[u8]; 6] = [
        b"a\xff",
        b"a\xff\xff",
        b"a\xff\xff\xff\xff",
        b"b\xff\xfdxy",
        b"c\xff\xf4z",
        b"\xff\xfaq",
    ];
    let bytes = |name: &[u8]| std::ffi::OsStr::from_bytes(name).to_owned();
    for name in file_names {
        fs::write(from.join(bytes(name)), name).unwrap();
    }
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("t"), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    let (summary, _) = copy(&[&server.url("t")], back.to_str().unwrap(), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    for top in [server.root().join("t"), back] {
        assert_eq!(fs::read_dir(&top).unwrap().count(), file_names.len());
        for name in file_names {
            assert_eq!(fs::read(top.join(bytes(name))).unwrap(), name, "{name:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_files_survive_a_round_trip() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let (from, back) = (workdir.path().join("tree"), workdir.path().join("back"));
    fs::create_dir(&from).unwrap();
    create_tree(&from);
    let began = std::time::Instant::now();
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("t"), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.files, 400);
    let (summary, _) = copy(&[&server.url("t")], back.to_str().unwrap(), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.files, summary.failed), (400, 0));
    assert!(
        tree_content(&from) == tree_content(&back),
        "the trees differ"
    );
    println!("800 files took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_copied_between_servers() {
    let (a, b) = (EndToEndServer::start().await, EndToEndServer::start().await);
    a.store("t/x y/1", b"one");
    a.store("t/2", b"two");
    fs::create_dir(b.root().join("there")).unwrap();
    let (summary, _) = copy(&[&a.user_url("t")], &b.user_url("there"), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(tree_content(&a.root().join("t")) == tree_content(&b.root().join("there/t")));
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_and_several_sources_are_copied() {
    let server = EndToEndServer::start().await;
    for name in ["a1", "a2", "b1", ".a3", "x[1]"] {
        server.store(name, name.as_bytes());
    }
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().to_str().unwrap();
    let (summary, _) = copy(&[&server.url("a*")], to, &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(workdir.path()), ["a1", "a2"]);
    let (summary, _) = copy(
        &[&server.url("x%5B1%5D"), &server.url("b1")],
        to,
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(workdir.path()), ["a1", "a2", "b1", "x[1]"]);
    let (summary, _) = copy(&[&server.url("z*")], to, &options()).await;
    assert_eq!(summary.exit, Exit::NotFound);
    let (summary, _) = copy(&[&server.url("a*")], &format!("{to}/one"), &options()).await;
    assert_eq!(summary.exit, Exit::Usage);
    let missing = server.url("missing");
    let (summary, events) = copy(&[&server.url("a1"), &missing], to, &options()).await;
    assert_eq!(summary.exit, Exit::Partial);
    assert_eq!(events.count(|e| matches!(e, CopyEvent::Failed { .. })), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn braces_in_local_and_remote_sources_stand_for_several_names() {
    let server = EndToEndServer::start().await;
    let local = tempfile::tempdir().unwrap();
    let names = ["a1.nc", "a2.h5", "b.nc", "c.txt", "{x,y}", "x"];
    for name in names {
        server.store(name, b"1");
        fs::write(local.path().join(name), b"1").unwrap();
    }
    let local_url = |name: &str| local.path().join(name).to_str().unwrap().to_owned();
    let remote_url = |name: &str| server.url(name);
    for at in [&local_url as &dyn Fn(&str) -> String, &remote_url] {
        for (pattern, expected) in [
            ("a*.{nc,h5}", &["a1.nc", "a2.h5"][..]),
            ("{a{1.nc,2.h5},c.txt}", &["a1.nc", "a2.h5", "c.txt"]),
            // Something matches, if not every alternative.
            ("*.{nc,none}", &["a1.nc", "b.nc"]),
            // A file of that very name, as a shell leaves it when it is quoted.
            ("{x,y}", &["{x,y}"]),
            (r"\{x,y\}", &["{x,y}"]),
        ] {
            let workdir = tempfile::tempdir().unwrap();
            let to = format!("{}/", workdir.path().display());
            let (summary, _) = copy(&[&at(pattern)], &to, &options()).await;
            assert_eq!(
                summary.exit,
                Exit::Done,
                "{pattern}: {:?}",
                summary.first_failure
            );
            assert_eq!(file_names(workdir.path()), expected, "{pattern}");
        }
        let workdir = tempfile::tempdir().unwrap();
        let to = format!("{}/", workdir.path().display());
        let (summary, _) = copy(&[&at("{c.txt,gone.txt}")], &to, &options()).await;
        assert_eq!(summary.exit, Exit::NotFound, "a name in braces must exist");
        assert!(
            summary
                .first_failure
                .unwrap()
                .to_string()
                .contains("gone.txt")
        );
        assert_eq!(file_names(workdir.path()), [""; 0]);
    }
}

/// Paths of the files below a directory.
fn file_paths(top: &Path) -> Vec<String> {
    let content = tree_content(top).into_iter();
    let files = content.filter(|(_, content)| content.is_some());
    files.map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slashes_at_the_end_mean_the_same_as_for_cp() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let at = |name: &str| workdir.path().join(name);
    for top in [at("t"), server.root().join("t")] {
        fs::create_dir(&top).unwrap();
        fs::write(top.join("f"), "1").unwrap();
    }
    let mut n = 0;
    for exists in [false, true] {
        for (from_end, to_end) in [("", ""), ("/", ""), ("", "/"), ("/", "/")] {
            n += 1;
            let new = |kind: &str| format!("{kind}{n}");
            for path in [
                at(&new("cp")),
                at(&new("local")),
                at(&new("get")),
                server.root().join(new("put")),
            ] {
                if exists {
                    fs::create_dir(path).unwrap();
                }
            }
            let local = |name: &str, end: &str| format!("{}{end}", at(name).display());
            let url = |name: &str, end: &str| server.url(&format!("{name}{end}"));
            let mut cp = std::process::Command::new("cp");
            cp.arg("-r")
                .arg(local("t", from_end))
                .arg(local(&new("cp"), to_end));
            assert!(cp.status().unwrap().success());
            let expected = file_paths(&at(&new("cp")));
            for (from, to, there) in [
                (
                    local("t", from_end),
                    local(&new("local"), to_end),
                    at(&new("local")),
                ),
                (
                    url("t", from_end),
                    local(&new("get"), to_end),
                    at(&new("get")),
                ),
                (
                    local("t", from_end),
                    url(&new("put"), to_end),
                    server.root().join(new("put")),
                ),
            ] {
                let (summary, _) = copy(&[&from], &to, &recursive()).await;
                assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
                assert_eq!(file_paths(&there), expected, "{from} {to} {exists}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn special_files_are_reported_and_skipped() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let top = workdir.path().join("t");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("f"), "x").unwrap();
    std::os::unix::fs::symlink("/", top.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    let (summary, _) = copy(&[top.to_str().unwrap()], &server.url("t"), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.files, summary.skipped), (1, 2));
    assert_eq!(file_names(&server.root().join("t")), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn destination_directories_are_created() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    fs::write(&from, "x").unwrap();
    let (summary, _) = copy(&[from.to_str().unwrap()], &server.url("n/e/w/"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(server.read("n/e/w/f"), b"x");
    let to = format!("{}/n/e/w/", workdir.path().display());
    let (summary, _) = copy(&[&server.url("n/e/w/f")], &to, &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(fs::read(format!("{to}f")).unwrap(), b"x");
}

/// Makes on the server: `keep/f`, and `t/` with a file, a directory, and links inside and out of
/// it.
fn create_linked_tree(server: &EndToEndServer) {
    use std::os::unix::fs::symlink;
    server.store("keep/f", b"keep");
    server.store("t/f", b"1");
    server.store("t/ lead ", b"2");
    server.store("t/sub/g", b"3");
    let t = server.root().join("t");
    symlink("../keep", t.join("out")).unwrap();
    symlink("/", t.join("sub/loop")).unwrap();
    symlink("f", t.join("same")).unwrap();
    symlink("gone", t.join("dangling")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_tree_removes_its_links_and_nothing_outside() {
    let server = EndToEndServer::start().await;
    create_linked_tree(&server);
    let options = copy::RemoteOptions {
        timeout: std::time::Duration::from_secs(60),
        security: std::sync::Arc::default(),
    };
    let preview = preview(&server.url("t"), &options).await;
    let expected = [
        "/t",
        "/t/ lead ",
        "/t/dangling",
        "/t/f",
        "/t/out",
        "/t/same",
        "/t/sub",
        "/t/sub/g",
        "/t/sub/loop",
    ];
    assert_eq!(preview, expected);
    assert_eq!(
        file_names(&server.root()),
        ["keep", "t"],
        "nothing is removed"
    );
    copy::remove(&server.url("t"), true, &options)
        .await
        .unwrap();
    assert_eq!(file_names(&server.root()), ["keep"]);
    assert_eq!(server.read("keep/f"), b"keep");
    // Removing a link removes only the link, also when it is dangling.
    for target in ["keep", "gone"] {
        std::os::unix::fs::symlink(target, server.root().join("l")).unwrap();
        copy::remove(&server.url("l"), true, &options)
            .await
            .unwrap();
        assert_eq!(file_names(&server.root()), ["keep"]);
    }
    assert_eq!(server.read("keep/f"), b"keep");
}

/// The paths that the recursive removal of `url` would delete.
async fn preview(url: &str, options: &copy::RemoteOptions) -> Vec<String> {
    let mut paths = Vec::new();
    let mut visit = |entry: copy::RemoteEntry| {
        paths.push(String::from_utf8(entry.name).unwrap());
        std::ops::ControlFlow::Continue(())
    };
    copy::preview_removal(url, true, options, &mut visit)
        .await
        .unwrap();
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn the_preview_of_a_removal_refuses_what_the_removal_refuses() {
    let server = EndToEndServer::start().await;
    server.store("d/f", b"1");
    let options = copy::RemoteOptions {
        timeout: std::time::Duration::from_secs(60),
        security: std::sync::Arc::default(),
    };
    let mut visit = |_| panic!("nothing would be removed");
    for (path, exit) in [
        ("", Exit::Usage),
        ("d", Exit::Usage),
        ("none", Exit::NotFound),
    ] {
        let previewed = copy::preview_removal(&server.url(path), false, &options, &mut visit).await;
        assert_eq!(previewed.unwrap_err().exit(), exit, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_followed_or_copied_only_when_requested() {
    let server = EndToEndServer::start().await;
    create_linked_tree(&server);
    let workdir = tempfile::tempdir().unwrap();
    let with = |links| recursive().with(|o| o.tree.symlinks = links);
    let to = |name: &str| workdir.path().join(name).display().to_string();
    let skipped = workdir.path().join("skip");
    let (summary, events) = copy(&[&server.url("t")], &to("skip"), &recursive()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.files, summary.skipped), (3, 4));
    assert_eq!(file_names(&skipped), [" lead ", "f", "sub"]);
    let mentions_links = |e: &CopyEvent| matches!(e, CopyEvent::Skipped { reason, .. } if reason.contains("--links"));
    assert_eq!(events.count(mentions_links), 4, "one notice a link");

    let followed = workdir.path().join("follow");
    let follow = with(copy::SymlinkPolicy::Follow);
    let (summary, _) = copy(&[&server.url("t")], &to("follow"), &follow).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(file_names(&followed), [" lead ", "f", "out", "same", "sub"]);
    assert_eq!(fs::read(followed.join("out/f")).unwrap(), b"keep");
    assert_eq!(fs::read(followed.join("same")).unwrap(), b"1");

    let copied = workdir.path().join("copy");
    let keep = with(copy::SymlinkPolicy::Copy);
    let (summary, _) = copy(&[&server.url("t")], &to("copy"), &keep).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(
        file_names(&copied),
        [" lead ", "dangling", "f", "same", "sub"]
    );
    let target = |name: &str| fs::read_link(copied.join(name)).unwrap();
    assert_eq!(target("same"), Path::new("f"));
    assert_eq!(target("dangling"), Path::new("gone"));

    // Copied back to a server twice: an existing link is replaced.
    for _ in 0..2 {
        let from = format!("{}/.", to("copy"));
        let (summary, _) = copy(&[&from], &server.url("back"), &keep).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        let back = server.root().join("back");
        assert_eq!(fs::read_link(back.join("same")).unwrap(), Path::new("f"));
        assert_eq!(
            fs::read_link(back.join("dangling")).unwrap(),
            Path::new("gone")
        );
        assert_eq!(fs::read(back.join(" lead ")).unwrap(), b"2");
    }
}
