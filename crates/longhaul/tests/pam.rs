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

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use security::x509::CertifiedKey;
use tempfile::TempDir;

/// Limit for every wait; a module that hangs is given up after 30 s.
const PATIENCE: Duration = Duration::from_secs(120);
/// The earliest answer to a wrong password, whatever is wrong.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
const PASSWORD: &str = "correct horse";
/// Of [`PASSWORD`] (crypt(5)).
const HASH: &str = "$6$saltsalt$hRM5XZ86KXEw9UOmjigeVqFgULtFB2sgpC9lXQDfMib3Zgw7mEiUvBJI2EplzfAqxL5Vvwp2scFtv/uamSo5z0";

/// Accounts: people, one of whom has expired, and one of the system.
const ACCOUNTS: &str = "root:x:0:0::/root:/bin/sh
daemon:x:2:2::/:/bin/sh
nobody:x:65534:65534::/:/usr/sbin/nologin
ann:x:5001:5001::/:/bin/sh
old:x:5002:5002::/:/bin/sh
hang:x:5003:5003::/:/bin/sh
crash:x:5004:5004::/:/bin/sh
";
const UNIX: &str = "auth required pam_unix.so\naccount required pam_unix.so\n";

/// A script for pam_exec(8): it hangs or crashes for the accounts of these names, and knows one password.
const ASK: &str = r#"#!/bin/sh
password=$(tr -d '\000')
echo "$PAM_SERVICE $PAM_USER $PAM_RHOST" >>PLACE/asked
case "$PAM_USER" in
hang) exec sleep SECONDS ;;
crash) kill -ABRT $PPID; sleep 1; exit 1 ;;
esac
[ "$password" = "correct horse" ]
"#;

fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .env_remove("RUST_LOG")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off");
    command
}

/// A folder with what replaces files of `/etc`.
struct SystemFiles(TempDir);

impl SystemFiles {
    /// With services `unix` and `ask`; `None`: this system or this account cannot test PAM.
    fn new() -> Option<Self> {
        let can_mount = Command::new("unshare").args(["-m", "true"]).status();
        if !can_mount.is_ok_and(|status| status.success()) {
            skip("no mount namespace: this needs root");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let files = Self(place);
        let ask = files.path("ask");
        let script = ASK.replace("PLACE", files.0.path().to_str().unwrap());
        fs::write(&ask, script.replace("SECONDS", &hanging_seconds())).unwrap();
        fs::set_permissions(&ask, fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["pam.d", "root"] {
            fs::create_dir(files.path(folder)).unwrap();
        }
        for open in ["root", "."] {
            let mode = fs::Permissions::from_mode(0o777);
            fs::set_permissions(files.path(open), mode).unwrap();
        }
        fs::write(files.path("root/f"), "content").unwrap();
        let exec = format!(
            "auth required pam_exec.so expose_authtok quiet {}\naccount required pam_permit.so\n",
            ask.display()
        );
        for (service, rules) in [("unix", UNIX), ("ask", &exec), ("other", UNIX)] {
            fs::write(files.path("pam.d").join(service), rules).unwrap();
        }
        fs::write(files.path("passwd"), ACCOUNTS).unwrap();

        let shadow: String = ACCOUNTS
            .lines()
            .map(|line| {
                let name = line.split(':').next().unwrap();
                // shadow(5): the eighth field is the day on which the account expires.
                let expires = if name == "old" { "1" } else { "" };
                let hash = if name == "nobody" { "*" } else { HASH };
                format!("{name}:{hash}:19000:0:99999:7::{expires}:\n")
            })
            .collect();
        fs::write(files.path("shadow"), shadow).unwrap();
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(files.path("shadow"), private).unwrap();
        Some(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `longhaul serve` with these arguments, in a namespace with these files; `before` is a command there.
    fn serve(&self, before: &str, arguments: &[&str]) -> Command {
        let mount = "mount --bind $0/pam.d /etc/pam.d && mount --bind $0/passwd /etc/passwd && \
                     mount --bind $0/shadow /etc/shadow";
        let mut command = Command::new("unshare");
        command
            .args(["-m", "--propagation", "private", "sh", "-c"])
            .arg(format!("{mount} && {before} && exec \"$@\""))
            .arg(self.0.path())
            .arg(env!("CARGO_BIN_EXE_longhaul"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env_remove("RUST_LOG");
        command
    }

    /// The output of a server that ends by itself.
    fn refused(&self, before: &str, arguments: &[&str]) -> (Output, String) {
        let root = self.path("root");
        let mut all = vec!["--root", root.to_str().unwrap()];
        all.extend(arguments);
        let output = self.serve(before, &all).output().unwrap();
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        (output, text)
    }
}

/// How long a program of a module sleeps: more than anybody waits, and by it a test finds its own.
fn hanging_seconds() -> String {
    (100_000 + u64::from(std::process::id())).to_string()
}

fn skip(why: &str) {
    let required = std::env::var_os("LONGHAUL_REQUIRE_PEERS").is_some_and(|value| value == "1");
    assert!(!required, "{why}, and nothing may be skipped");
    eprintln!("SKIPPED: PAM: {why}");
}

/// A server that asks PAM.
struct PamServer {
    files: SystemFiles,
    child: Child,
    address: String,
}

impl PamServer {
    fn start(service: &str, arguments: &[&str]) -> Option<Self> {
        let files = SystemFiles::new()?;
        let root = files.path("root");
        Some(Self::start_at(files, &root, service, arguments))
    }

    fn start_at(files: SystemFiles, root: &Path, service: &str, arguments: &[&str]) -> Self {
        let mut all = vec!["--pam", service, "--run-as", "nobody", "--root"];
        all.push(root.to_str().unwrap());
        all.extend(arguments);
        let log = fs::File::create(files.path("log")).unwrap();
        let mut child = files
            .serve("true", &all)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut ready).unwrap();
        let log = fs::read_to_string(files.path("log")).unwrap();
        let address = ready.trim().strip_prefix("listening on ").expect(&log);
        Self {
            address: address.to_owned(),
            files,
            child,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path("log")).unwrap()
    }

    /// The reply to PASS in a session of its own, and how long it took.
    fn log_in(&self, user: &str, password: &str) -> (u16, Duration) {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut replies = BufReader::new(stream.try_clone().unwrap());
        let mut reply = || loop {
            let mut line = String::new();
            replies.read_line(&mut line).unwrap();
            if line.as_bytes().get(3) != Some(&b'-') {
                return line[..3].parse::<u16>().unwrap();
            }
        };
        assert_eq!(reply(), 220);
        let mut to = stream;
        to.write_all(format!("USER {user}\r\n").as_bytes()).unwrap();
        assert_eq!(reply(), 331);
        let begin = Instant::now();
        to.write_all(format!("PASS {password}\r\n").as_bytes())
            .unwrap();
        (reply(), begin.elapsed())
    }

    /// Refused, for this reason in the log.
    fn refuses(&self, user: &str, password: &str, reason: &str) {
        let (code, took) = self.log_in(user, password);
        let log = self.log();
        assert_eq!(code, 530, "{user}: {log}");
        assert!(took >= REFUSAL_TIME, "{user}: {took:?}");
        let line = log.lines().last().unwrap();
        let is_told = line.contains("login refused") && line.contains(reason);
        assert!(is_told && line.contains(user), "{reason}: {line}");
        assert!(!log.contains(password), "{log}");
    }

    fn url(&self, user: &str, path: &str) -> String {
        let password = PASSWORD.replace(' ', "%20");
        format!("ftp://{user}:{password}@{}/{path}", self.address)
    }

    fn server(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The process that asks PAM.
    fn checker(&self) -> Pid {
        let parent = self.server().as_raw_nonzero().to_string();
        let found = processes().find(|(_, stat, command)| {
            // proc(5): the parent is the second word behind the name in parentheses.
            let behind = stat.rsplit(')').next().unwrap_or_default();
            behind.split_whitespace().nth(1) == Some(&parent) && command.contains("pam-checker")
        });
        found.expect("a process that asks PAM").0
    }
}

impl Drop for PamServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All processes, with their `stat` and their command lines.
fn processes() -> impl Iterator<Item = (Pid, String, String)> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            Some((Pid::from_raw(pid)?, stat, command))
        })
}

/// Whether the memory of a process has these bytes.
fn memory_contains(process: Pid, wanted: &[u8]) -> bool {
    let folder = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    let maps = fs::read_to_string(folder.join("maps")).unwrap();
    let mut memory = fs::File::open(folder.join("mem")).unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    maps.lines()
        .filter(|line| line.contains(" rw"))
        .any(|line| {
            let range = line.split_whitespace().next().unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let mut part = vec![0; usize::try_from(hex(end) - hex(start)).unwrap()];
            // A mapping may have gone since.
            let read = memory.seek(SeekFrom::Start(hex(start)));
            read.is_ok()
                && memory.read_exact(&mut part).is_ok()
                && part.windows(wanted.len()).any(|window| window == wanted)
        })
}

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
    let Some(server) = PamServer::start("ask", &[]) else {
        return;
    };
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| server.log_in("hang", PASSWORD));
        let hanging = format!("sleep {}", hanging_seconds());
        let asleep = || processes().any(|(_, _, command)| command.trim_end() == hanging);
        let begin = Instant::now();
        while !asleep() {
            assert!(begin.elapsed() < PATIENCE, "{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server.refuses("crash", PASSWORD, "PAM: a module crashed: signal 6");
        assert_eq!(server.log_in("ann", PASSWORD).0, 230);
        assert_eq!(hung.join().unwrap().0, 530);
        let log = server.log();
        assert!(
            log.contains("PAM: no answer within 30 s: a module hangs"),
            "{log}"
        );
        assert!(!asleep(), "what the module started has ended");
    });
    assert_eq!(server.log_in("ann", PASSWORD).0, 230);
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
fn without_the_process_that_asks_pam_the_server_serves_on() {
    let Some(server) = PamServer::start("unix", &["--anonymous", "ro"]) else {
        return;
    };
    assert_eq!(server.log_in("ann", PASSWORD).0, 230);
    kill_process(server.checker(), Signal::KILL).unwrap();
    server.refuses("ann", PASSWORD, "restart the server");
    assert_eq!(server.log_in("anonymous", "x").0, 230);
}
