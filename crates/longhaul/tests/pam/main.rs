//! `longhaul serve --pam` with the PAM of this system. The server runs in a mount namespace with services, accounts
//! and password hashes of its own in `/etc`, which needs root: otherwise the tests print `SKIPPED`, and fail with
//! `LONGHAUL_REQUIRE_PEERS=1`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise"
)]

mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use security::x509::CertifiedKey;

use harness::*;

#[test]
fn accounts_of_the_system_log_in_with_their_passwords() {
    let Some(server) = PamServer::start("unix", &[]) else {
        return;
    };
    let (url, copy) = (server.url("ann", "f"), server.files.path("copy"));
    let copied = longhaul()
        .args(["cp", "-q"])
        .arg(url)
        .arg(&copy)
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?} {}", server.log());
    assert_eq!(fs::read_to_string(&copy).unwrap(), "content");
    // PAM-authenticated users may write unless `pam-rights` says otherwise.
    let stored = longhaul()
        .args(["cp", "-q"])
        .arg(&copy)
        .arg(server.url("ann", "new"))
        .output()
        .unwrap();
    assert!(stored.status.success(), "{stored:?}");
    server.refuses("ann", "wrong horse", "PAM: Authentication failure");
    server.refuses("old", PASSWORD, "PAM: account: ");
}

#[test]
fn a_password_of_the_system_needs_tls_where_others_do() {
    let Some(files) = SystemFiles::new() else {
        return;
    };
    let day = Duration::from_secs(24 * 3600);
    let credential = CertifiedKey::self_signed(&["127.0.0.1".to_owned()], day).unwrap();
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    fs::write(&cert, credential.leaf().to_pem().unwrap()).unwrap();
    fs::write(&key, credential.key().private_key_to_pem_pkcs8().unwrap()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (root, cert) = (files.path("root"), cert.to_str().unwrap().to_owned());
    let arguments = ["--tls", "required", "--cert", &cert, "--key"];
    let arguments = [&arguments[..], &[key.to_str().unwrap()]].concat();
    let server = PamServer::start_at(files, &root, "ask", &arguments);
    let stream = TcpStream::connect(&server.address).unwrap();
    let mut replies = BufReader::new(&stream).lines().map(Result::unwrap);
    assert!(replies.next().unwrap().starts_with("220"));
    (&stream).write_all(b"USER ann\r\n").unwrap();
    assert!(replies.next().unwrap().starts_with("530"));
    (&stream).write_all(b"PASS correct horse\r\n").unwrap();
    assert!(replies.next().unwrap().starts_with("503"));
    assert!(!server.files.path("asked").exists());
    let copied = longhaul()
        .args(["cp", "-q", "--ca", &cert])
        .arg(server.url("ann", "f").replace("ftp:", "ftps:"))
        .arg(server.files.path("copy"))
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?} {}", server.log());
    assert!(server.files.path("asked").exists());
}

#[test]
fn root_system_accounts_and_strangers_are_refused_before_pam_is_asked() {
    let Some(server) = PamServer::start("ask", &["--pam-rights", "ro"]) else {
        return;
    };
    server.refuses("root", PASSWORD, "user ID 0, below pam-min-uid (1000)");
    server.refuses("daemon", PASSWORD, "user ID 2, below pam-min-uid (1000)");
    server.refuses("stranger", PASSWORD, "the system has no such account");
    assert!(!server.files.path("asked").exists());
    assert_eq!(server.log_in("ann", PASSWORD).0, 230);
    let asked = fs::read_to_string(server.files.path("asked")).unwrap();
    assert_eq!(asked, "ask ann 127.0.0.1\n");
    let stored = longhaul()
        .args(["cp", "-q", "--retries", "0"])
        .arg(server.files.path("asked"))
        .arg(server.url("ann", "new"))
        .output()
        .unwrap();
    assert_eq!(stored.status.code(), Some(3), "{stored:?}");
}

#[test]
fn a_name_of_the_users_file_is_checked_there_alone() {
    let Some(files) = SystemFiles::new() else {
        return;
    };
    let users = files.path("users");
    let mut added = longhaul()
        .args(["user", "add", "--password-stdin", "--users"])
        .args([users.as_os_str(), "ann".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = added.stdin.take().unwrap();
    input.write_all(b"battery staple\n").unwrap();
    drop(input);
    assert!(added.wait().unwrap().success());
    let root = files.path("root");
    let users = users.to_str().unwrap().to_owned();
    let arguments = ["--users", &users, "--deny-users", "crash"];
    let server = PamServer::start_at(files, &root, "ask", &arguments);
    assert_eq!(server.log_in("ann", "battery staple").0, 230);
    server.refuses("ann", PASSWORD, "wrong password");
    assert!(!server.files.path("asked").exists());
    assert_eq!(server.log_in("old", PASSWORD).0, 230, "PAM knows others");
    fs::write(server.files.path("ask"), "#!/bin/sh\nexit 0\n").unwrap();
    server.refuses("crash", PASSWORD, "deny-users");
}

#[test]
fn a_module_that_hangs_or_crashes_ends_one_login() {
    let Some(mut server) = PamServer::start("ask", &[]) else {
        return;
    };
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| server.log_in("hang", PASSWORD));
        wait_until(is_hanging);
        server.refuses("crash", PASSWORD, "PAM: a module crashed: signal 6");
        assert_eq!(server.log_in("ann", PASSWORD).0, 230);
        assert_eq!(hung.join().unwrap().0, 530);
        let log = server.log();
        let is_told = log.contains("PAM: no answer within 30 s: a module hangs");
        assert!(is_told, "{log}");
        assert!(!is_hanging(), "what the module started has ended");
    });
    assert_eq!(server.log_in("ann", PASSWORD).0, 230);
    // Without a reply: the server ends meanwhile.
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .write_all(b"USER hang\r\nPASS correct horse\r\n")
        .unwrap();
    wait_until(is_hanging);
    server.child.kill().unwrap();
    wait_until(|| !is_hanging());
}

#[test]
fn guesses_are_delayed_as_those_at_the_users_file() {
    let Some(server) = PamServer::start("ask", &[]) else {
        return;
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(server.log_in("ann", "wrong horse").0, 530));
        }
    });
    // Those beyond the free failures wait, for seconds; without delays all would be answered after 2 s.
    assert!(
        begin.elapsed() >= Duration::from_secs(4),
        "{:?}",
        begin.elapsed()
    );
    let asked = fs::read_to_string(server.files.path("asked")).unwrap();
    assert_eq!(asked.lines().count(), 6);
}

#[test]
fn a_service_without_rules_grants_nothing() {
    let Some(server) = PamServer::start("unix", &[]) else {
        return;
    };
    let (output, text) = server
        .files
        .refused("true", &["--pam", "gone", "--run-as", "nobody"]);
    assert!(!output.status.success());
    assert!(text.contains("create /etc/pam.d/gone"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let check = ["--pam", "gone", "--run-as", "nobody", "--check"];
    let (output, text) = server.files.refused("true", &check);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("create /etc/pam.d/gone"), "{text}");
    // PAM itself would apply the rules of the service `other`, which know the password.
    fs::remove_file(server.files.path("pam.d/unix")).unwrap();
    server.refuses("ann", PASSWORD, "PAM has no service unix");
}

#[test]
fn a_server_that_could_read_the_hashes_itself_or_has_no_pam_does_not_start() {
    let Some(files) = SystemFiles::new() else {
        return;
    };
    for check in [&[][..], &["--check"]] {
        let arguments = [&["--pam", "unix"], check].concat();
        let (output, text) = files.refused("true", &arguments);
        assert!(!output.status.success());
        assert!(text.contains("--pam needs --run-as"), "{text}");
        let hidden = "for f in $(find /lib /usr/lib -name 'libpam.so.0'); do mount --bind /dev/null $f; done";
        let arguments = [&arguments[..], &["--run-as", "nobody"]].concat();
        let (output, text) = files.refused(hidden, &arguments);
        assert!(!output.status.success());
        assert!(text.contains("install PAM"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn the_process_that_serves_has_no_access_to_the_hashes() {
    let Some(files) = SystemFiles::new() else {
        return;
    };
    let server = PamServer::start_at(files, Path::new("/etc"), "unix", &["--sandbox", "required"]);
    let target = server.files.path("copy");
    let copy = |name: &str| {
        let url = server.url("ann", name);
        let mut command = longhaul();
        command
            .args(["cp", "-q", "--retries", "0"])
            .arg(url)
            .arg(&target);
        command.output().unwrap()
    };
    assert!(copy("passwd").status.success());
    let refused = copy("shadow");
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let hash = HASH.as_bytes();
    assert!(!memory_contains(server.server(), hash));
    let status = format!("/proc/{}/status", server.server().as_raw_nonzero());
    let status = fs::read_to_string(status).unwrap();
    assert!(status.contains("\nUid:\t65534\t65534\t65534"), "{status}");
    assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
    assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
}

#[test]
fn a_server_that_loses_the_process_that_asks_pam_ends_with_an_error() {
    let Some(mut server) = PamServer::start("unix", &["--anonymous", "ro"]) else {
        return;
    };
    assert_eq!(server.log_in("ann", PASSWORD).0, 230);
    kill_process(server.checker(), Signal::KILL).unwrap();
    let status = server.child.wait().unwrap();
    let log = server.log();
    assert_eq!(status.code(), Some(7), "{log}");
    let last = log.lines().last().unwrap();
    assert!(
        last.contains("the process that asks PAM has ended"),
        "{log}"
    );
    assert!(last.contains("start it again"), "{log}");
}
