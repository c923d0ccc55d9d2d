//! Receipts of copies: written, signed, and compared with the files later.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use security::x509::CertifiedKey;

fn longhaul(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).current_dir(directory);
    command.output().unwrap()
}

/// Exit code and standard output.
fn verify(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = longhaul(directory, &[&["verify"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

fn tree(directory: &Path) {
    fs::create_dir_all(directory.join("tree/sub")).unwrap();
    fs::write(directory.join("tree/a"), "a").unwrap();
    fs::write(directory.join("tree/sub/b"), "b\n").unwrap();
    fs::write(directory.join("tree/empty"), "").unwrap();
    let name = OsStr::from_bytes(b"tree/\xff");
    fs::write(directory.join(name), "bytes").unwrap();
}

#[test]
fn a_receipt_shows_later_which_files_are_those_of_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    let copied = longhaul(
        directory,
        &["cp", "-q", "-r", "--receipt", "r", "tree", "copy"],
    );
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(verify(directory, &["r"]), (Some(0), String::new()));
    // The working directory does not matter, and another copy of the tree is as good.
    assert_eq!(
        verify(Path::new("/"), &[directory.join("r").to_str().unwrap()]).0,
        Some(0)
    );
    fs::rename(directory.join("copy"), directory.join("moved")).unwrap();
    assert_eq!(verify(directory, &["r"]).0, Some(4));
    assert_eq!(verify(directory, &["r", "moved"]), (Some(0), String::new()));
    fs::write(directory.join("moved/a"), "A").unwrap();
    assert_eq!(
        verify(directory, &["r", "moved"]),
        (Some(6), "a: FAILED\n".to_owned())
    );
}

#[test]
fn a_single_file_and_a_sync_have_receipts_of_what_they_moved() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    let copied = longhaul(
        directory,
        &["cp", "-q", "--receipt", "one", "tree/a", "b.dat"],
    );
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(
        verify(directory, &["-v", "one"]),
        (Some(0), "b.dat: OK\n".to_owned())
    );
    let sync = ["sync", "-q", "--receipt", "r", "tree", "copy"];
    assert!(longhaul(directory, &sync).status.success());
    fs::write(directory.join("tree/new"), "new").unwrap();
    assert!(longhaul(directory, &sync).status.success());
    assert_eq!(
        verify(directory, &["-v", "r"]),
        (Some(0), "new: OK\n".to_owned())
    );
}

#[test]
fn a_sync_that_moved_nothing_has_a_receipt_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    let sync = ["sync", "-q", "--receipt", "r", "tree", "copy"];
    assert!(longhaul(directory, &sync).status.success());
    assert!(longhaul(directory, &sync).status.success());
    let verified = longhaul(directory, &["verify", "r"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(said.contains("moved no files"), "{said}");
}

#[test]
fn a_receipt_says_how_the_server_has_shown_itself() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    let day = Duration::from_secs(24 * 3600);
    let credential = CertifiedKey::self_signed(&["127.0.0.1".to_owned()], day).unwrap();
    let key = credential.key().private_key_to_pem_pkcs8().unwrap();
    for (name, bytes) in [
        ("cert.pem", credential.leaf().to_pem().unwrap()),
        ("cert.der", credential.leaf().to_der().unwrap()),
        ("key.pem", key),
    ] {
        fs::write(directory.join(name), bytes).unwrap();
    }
    fs::set_permissions(directory.join("key.pem"), Permissions::from_mode(0o600)).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "ro"])
        .args(["--root", "tree", "--cert", "cert.pem", "--key", "key.pem"])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut ready).unwrap();
    let address = ready.trim().strip_prefix("listening on ").unwrap();
    let url = format!("ftps://{address}/a");
    let copy = [
        "cp",
        "-q",
        "--ca",
        "cert.pem",
        "--receipt",
        "r",
        &url,
        "copy",
    ];
    let copied = longhaul(directory, &copy);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let sum = longhaul(directory, &["cksum", "-a", "sha256", "cert.der"]).stdout;
    let sum = String::from_utf8(sum).unwrap();
    let sum = sum.split_whitespace().next().unwrap();
    let receipt = fs::read_to_string(directory.join("r")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for part in [
        format!(r#""servers":{{"{address}":{{"software":"longhaul {version} "#),
        format!(r#""certificate_sha256":"{sum}"}}}}"#),
    ] {
        assert!(receipt.contains(&part), "{part} {receipt}");
    }
    assert_eq!(verify(directory, &["r"]), (Some(0), String::new()));
}

#[test]
fn a_key_that_is_not_there_is_noticed_before_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    let copy = ["cp", "-q", "-r", "--receipt", "r"];
    let signed = ["--receipt-key", "nokey", "tree", "copy"];
    let refused = longhaul(directory, &[&copy[..], &signed].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(!directory.join("copy").exists());
}

#[test]
fn what_an_earlier_run_has_copied_is_in_the_receipt_too() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    // A directory in the way of one file: the run fails, and the next one goes on.
    fs::create_dir_all(directory.join("copy/tree/a/x")).unwrap();
    let copy = [
        "cp",
        "-q",
        "-r",
        "--journal",
        "j",
        "--receipt",
        "r",
        "tree/",
        "copy",
    ];
    assert_eq!(longhaul(directory, &copy).status.code(), Some(1));
    let partial = fs::read_to_string(directory.join("r")).unwrap();
    assert!(partial.contains(r#""failed":1"#), "{partial}");
    fs::remove_dir_all(directory.join("copy/tree/a")).unwrap();
    let again = longhaul(directory, &copy);
    assert!(again.status.success(), "{again:?}");
    let receipt = fs::read_to_string(directory.join("r")).unwrap();
    assert_eq!(receipt.matches("by an earlier run").count(), 3, "{receipt}");
    assert_eq!(receipt.matches(r#""line":"file""#).count(), 4, "{receipt}");
    assert_eq!(verify(directory, &["r"]), (Some(0), String::new()));
}

#[test]
fn a_receipt_that_was_changed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    tree(directory);
    let [key, other] = ["key", "other"].map(|name| {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", name])
            .current_dir(directory)
            .status();
        assert!(made.unwrap().success());
        fs::read_to_string(directory.join(format!("{name}.pub"))).unwrap()
    });
    let copy = [
        "cp",
        "-q",
        "-r",
        "--receipt",
        "r",
        "--receipt-key",
        "key",
        "tree/",
        "copy",
    ];
    let copied = longhaul(directory, &copy);
    assert!(copied.status.success(), "{copied:?}");
    fs::write(directory.join("signers"), format!("me@example.org {key}")).unwrap();
    fs::write(directory.join("others"), format!("you@example.org {other}")).unwrap();
    let signed = ["--allowed-signers", "signers", "r"];
    assert_eq!(verify(directory, &["r"]).0, Some(0));
    assert_eq!(verify(directory, &signed).0, Some(0));
    assert_eq!(
        verify(directory, &["--allowed-signers", "others", "r"]).0,
        Some(6)
    );
    // A run that writes no receipt does not sign that of another copy.
    let signature = directory.join("r.sig");
    fs::remove_file(&signature).unwrap();
    let refused = [
        "cp",
        "-q",
        "--receipt",
        "r",
        "--receipt-key",
        "key",
        "-",
        "-",
    ];
    assert_ne!(longhaul(directory, &refused).status.code(), Some(0));
    assert!(!signature.exists());
    assert!(longhaul(directory, &copy).status.success());
    let receipt = fs::read_to_string(directory.join("r")).unwrap();
    fs::write(
        directory.join("r"),
        receipt.replace("\"bytes\":1", "\"bytes\":2"),
    )
    .unwrap();
    assert_eq!(verify(directory, &["r"]).0, Some(6), "signed, and not this");
    assert_eq!(verify(directory, &signed).0, Some(6));
    fs::remove_file(directory.join("r.sig")).unwrap();
    assert_eq!(verify(directory, &signed).0, Some(6), "not signed");
    let cut = receipt.lines().take(2).collect::<Vec<_>>().join("\n");
    fs::write(directory.join("r"), cut).unwrap();
    assert_eq!(verify(directory, &["r"]).0, Some(6), "cut off");
    fs::write(directory.join("r"), "a  b\n").unwrap();
    assert_eq!(verify(directory, &["r"]).0, Some(2), "no receipt");
}
