//! Output of the remote file verbs.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

/// A server of `root`, and its address.
fn serve(root: &Path) -> (Child, String) {
    let mut server = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"])
        .arg("--root")
        .arg(root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let address = ready.trim().strip_prefix("listening on ").unwrap();
    (server, address.to_owned())
}

#[test]
fn a_dry_run_of_rm_prints_what_would_be_deleted() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("d")).unwrap();
    std::fs::write(root.path().join("d/f"), "x").unwrap();
    let (mut server, address) = serve(root.path());
    let url = format!("ftp://{address}/d");
    let outputs = [
        &["rm", "-rn", &url][..],
        &["rm", "-r", "-n", "--json", &url],
    ]
    .map(|arguments| longhaul(arguments).output().unwrap());
    let refused = longhaul(&["rm", "--json", &url]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let texts = outputs.map(|output| String::from_utf8(output.stdout).unwrap());
    let expected = format!("would delete ftp://{address}/d\nwould delete ftp://{address}/d/f\n");
    assert_eq!(texts[0], expected);
    let last: serde_json::Value = serde_json::from_str(texts[1].lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["type"]),
        (&"would_delete".into(), &"file".into())
    );
    assert_eq!(refused.status.code(), Some(2), "--json is for --dry-run");
    assert!(root.path().join("d/f").exists());
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = longhaul(arguments).env("TZ", "UTC-2").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// `d/a.dat` (12 345 bytes), `d/b.dat`, `d/c.log`, `d/sub/x.dat`, `d/sub/deep/y`.
fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("d/sub/deep")).unwrap();
    for (name, size) in [
        ("a.dat", 12_345),
        ("b.dat", 1),
        ("c.log", 0),
        ("sub/x.dat", 2),
        ("sub/deep/y", 3),
    ] {
        let file = std::fs::File::create(root.join("d").join(name)).unwrap();
        file.set_len(size).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_764_000_000);
        file.set_modified(time).unwrap();
    }
}

#[test]
fn ls_lists_what_a_pattern_stands_for_and_trees() {
    let root = tempfile::tempdir().unwrap();
    make_tree(root.path());
    std::os::unix::fs::symlink("..", root.path().join("d/sub/loop")).unwrap();
    let (mut server, address) = serve(root.path());
    let url = |path: &str| format!("ftp://{address}/{path}");
    let names = |arguments: &[&str]| {
        let (code, text, errors) = run(arguments);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{arguments:?}");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&["ls", &url("d/*.dat")]), ["a.dat", "b.dat"]);
    assert_eq!(names(&["ls", &url("d/{c,a}.*")]), ["a.dat", "c.log"]);
    assert_eq!(names(&["ls", &url("d/s*")]), ["sub"]);
    let below = ["sub", "sub/deep", "sub/deep/y", "sub/loop", "sub/x.dat"];
    assert_eq!(names(&["ls", "-r", &url("d/s*")]), below);
    assert_eq!(
        names(&["ls", "-r", &url("d/sub")]),
        ["deep", "deep/y", "loop", "x.dat"]
    );
    let missing = run(&["ls", &url("d/*.none")]);
    let wanted = run(&["ls", &url("d/{a,z}.dat")]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(missing.0, Some(4));
    assert!(missing.2.contains("nothing matches"), "{}", missing.2);
    assert_eq!(wanted.0, Some(4));
    assert!(wanted.2.contains("z.dat"), "{}", wanted.2);
}

#[test]
fn long_listings_have_aligned_columns_and_local_times() {
    let root = tempfile::tempdir().unwrap();
    make_tree(root.path());
    let (mut server, address) = serve(root.path());
    let pattern = format!("ftp://{address}/d/*.dat");
    let [plain, human, json] = [&["-l"][..], &["-lh"], &["-l", "--json"]].map(|flags| {
        let (code, text, _) = run(&[&["ls"], flags, &[&pattern]].concat());
        assert_eq!(code, Some(0));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let shown = run(&["stat", "-h", &format!("ftp://{address}/d/a.dat")]).1;
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(
        plain[0].ends_with(" 12345 2025-11-24 18:00 a.dat"),
        "{plain:?}"
    );
    assert!(
        plain[1].ends_with("     1 2025-11-24 18:00 b.dat"),
        "{plain:?}"
    );
    assert!(
        human[0].ends_with(" 12.3 kB 2025-11-24 18:00 a.dat"),
        "{human:?}"
    );
    assert_eq!(human[0].find("2025"), human[1].find("2025"));
    assert!(shown.contains(" 12.3 kB 2025-11-24 18:00 "), "{shown}");
    let entry: serde_json::Value = serde_json::from_str(&json[0]).unwrap();
    assert_eq!(entry["size"], 12_345);
    assert_eq!(entry["modified"], "20251124160000");
    assert_eq!(entry["url_name"], "a.dat");
}

#[test]
fn rm_deletes_what_a_pattern_stands_for_and_goes_on_after_a_failure() {
    let root = tempfile::tempdir().unwrap();
    make_tree(root.path());
    let (mut server, address) = serve(root.path());
    let url = |path: &str| format!("ftp://{address}/{path}");
    let shown = run(&["rm", "-n", &url("d/*.dat")]);
    let deleted = run(&["rm", &url("d/{b,a}.dat")]);
    let left = || {
        let entries = std::fs::read_dir(root.path().join("d")).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let after_pattern = left();
    std::fs::write(root.path().join("d/z"), "").unwrap();
    // `sub` is a directory, which needs -r.
    let partly = run(&["rm", &url("d/*")]);
    let after_all = left();
    let nothing = run(&["rm", &url("d/*.dat")]);
    let tree = run(&["rm", "-r", &url("d/s*")]);
    let alone = run(&["rm", &url("d")]);
    server.kill().unwrap();
    server.wait().unwrap();
    let expected = ["a.dat", "b.dat"].map(|name| format!("would delete {}\n", url("d/") + name));
    assert_eq!((shown.0, shown.1), (Some(0), expected.concat()));
    assert_eq!(deleted, (Some(0), String::new(), String::new()));
    assert_eq!(after_pattern, ["c.log", "sub"]);
    assert_eq!(partly.0, Some(1), "{partly:?}");
    assert!(partly.2.contains("rm -r"), "{partly:?}");
    assert_eq!(after_all, ["sub"]);
    assert_eq!(nothing.0, Some(4), "{nothing:?}");
    assert_eq!(tree.0, Some(0), "{tree:?}");
    assert!(left().is_empty());
    assert_eq!(
        alone.0,
        Some(2),
        "the failure of the only file is that of the command"
    );
}

#[test]
fn a_file_that_is_named_like_a_pattern_comes_first() {
    let root = tempfile::tempdir().unwrap();
    for name in ["[ab]", "a", "b"] {
        std::fs::write(root.path().join(name), "").unwrap();
    }
    let (mut server, address) = serve(root.path());
    let url = format!("ftp://{address}/[ab]");
    let listed = run(&["ls", &url]);
    let deleted = run(&["rm", &url]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(listed.1, "[ab]\n");
    assert_eq!(deleted.0, Some(0));
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
}

#[test]
fn a_full_standard_output_exits_with_7() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("f"), "x").unwrap();
    let (mut server, address) = serve(root.path());
    let (directory, file) = (format!("ftp://{address}/"), format!("ftp://{address}/f"));
    let calls = [
        vec!["ls", &directory],
        vec!["ls", "--json", &directory],
        vec!["stat", &file],
        vec!["cksum", &file],
        vec!["rm", "-n", &file],
    ];
    let exit = |arguments: &[&str], out: Stdio| {
        let output = longhaul(arguments).stdout(out).output().unwrap();
        output.status.code()
    };
    let codes: Vec<_> = calls
        .iter()
        .map(|call| {
            let full = std::fs::File::options().write(true).open("/dev/full");
            (exit(call, Stdio::null()), exit(call, full.unwrap().into()))
        })
        .collect();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(codes, [(Some(0), Some(7)); 5]);
}
