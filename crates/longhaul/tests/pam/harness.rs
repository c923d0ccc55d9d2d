//! A server that asks PAM, in a mount namespace with services, accounts and password hashes of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tempfile::TempDir;

/// Limit for every wait; a module that hangs is given up after 30 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The earliest answer to a wrong password, whatever is wrong.
pub(crate) const REFUSAL_TIME: Duration = Duration::from_secs(2);
pub(crate) const PASSWORD: &str = "correct horse";
/// Of [`PASSWORD`] (crypt(5)).
pub(crate) const HASH: &str = "$6$saltsalt$hRM5XZ86KXEw9UOmjigeVqFgULtFB2sgpC9lXQDfMib3Zgw7mEiUvBJI2EplzfAqxL5Vvwp2scFtv/uamSo5z0";

/// Accounts: people, one of whom has expired, and one of the system.
pub(crate) const ACCOUNTS: &str = "root:x:0:0::/root:/bin/sh
daemon:x:2:2::/:/bin/sh
nobody:x:65534:65534::/:/usr/sbin/nologin
ann:x:5001:5001::/:/bin/sh
old:x:5002:5002::/:/bin/sh
hang:x:5003:5003::/:/bin/sh
crash:x:5004:5004::/:/bin/sh
";
pub(crate) const UNIX: &str = "auth required pam_unix.so\naccount required pam_unix.so\n";

/// A script for pam_exec(8): it hangs or crashes for the accounts of these names, and knows one password.
pub(crate) const ASK: &str = r#"#!/bin/sh
password=$(tr -d '\000')
echo "$PAM_SERVICE $PAM_USER $PAM_RHOST" >>PLACE/asked
case "$PAM_USER" in
hang) exec sleep SECONDS ;;
crash) kill -ABRT $PPID; sleep 1; exit 1 ;;
esac
[ "$password" = "correct horse" ]
"#;

pub(crate) fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .env_remove("RUST_LOG")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off");
    command
}

/// A folder with what replaces files of `/etc`.
pub(crate) struct SystemFiles(TempDir);

impl SystemFiles {
    /// With services `unix` and `ask`; `None`: this system or this account cannot test PAM.
    pub(crate) fn new() -> Option<Self> {
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `longhaul serve` with these arguments, in a namespace with these files; `before` is a command there.
    pub(crate) fn serve(&self, before: &str, arguments: &[&str]) -> Command {
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
    pub(crate) fn refused(&self, before: &str, arguments: &[&str]) -> (Output, String) {
        let root = self.path("root");
        let mut all = vec!["--root", root.to_str().unwrap()];
        all.extend(arguments);
        let output = self.serve(before, &all).output().unwrap();
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        (output, text)
    }
}

/// How long a program of a module sleeps: more than anybody waits, and by it a test finds its own.
pub(crate) fn hanging_seconds() -> String {
    (100_000 + u64::from(std::process::id())).to_string()
}

pub(crate) fn skip(why: &str) {
    let required = std::env::var_os("LONGHAUL_REQUIRE_PEERS").is_some_and(|value| value == "1");
    assert!(!required, "{why}, and nothing may be skipped");
    eprintln!("SKIPPED: PAM: {why}");
}

/// A server that asks PAM.
pub(crate) struct PamServer {
    pub(crate) files: SystemFiles,
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl PamServer {
    pub(crate) fn start(service: &str, arguments: &[&str]) -> Option<Self> {
        let files = SystemFiles::new()?;
        let root = files.path("root");
        Some(Self::start_at(files, &root, service, arguments))
    }

    pub(crate) fn start_at(
        files: SystemFiles,
        root: &Path,
        service: &str,
        arguments: &[&str],
    ) -> Self {
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

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.files.path("log")).unwrap()
    }

    /// The reply to PASS in a session of its own, and how long it took.
    pub(crate) fn log_in(&self, user: &str, password: &str) -> (u16, Duration) {
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
    pub(crate) fn refuses(&self, user: &str, password: &str, reason: &str) {
        let (code, took) = self.log_in(user, password);
        let log = self.log();
        assert_eq!(code, 530, "{user}: {log}");
        assert!(took >= REFUSAL_TIME, "{user}: {took:?}");
        let line = log.lines().last().unwrap();
        let is_told = line.contains("login refused") && line.contains(reason);
        assert!(is_told && line.contains(user), "{reason}: {line}");
        assert!(!log.contains(password), "{log}");
    }

    pub(crate) fn url(&self, user: &str, path: &str) -> String {
        let password = PASSWORD.replace(' ', "%20");
        format!("ftp://{user}:{password}@{}/{path}", self.address)
    }

    pub(crate) fn server(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The process that asks PAM.
    pub(crate) fn checker(&self) -> Pid {
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
pub(crate) fn processes() -> impl Iterator<Item = (Pid, String, String)> {
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
pub(crate) fn memory_contains(process: Pid, wanted: &[u8]) -> bool {
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

/// Whether the program of a module that hangs runs.
pub(crate) fn is_hanging() -> bool {
    let hanging = format!("sleep {}", hanging_seconds());
    processes().any(|(_, _, command)| command.trim_end() == hanging)
}

pub(crate) fn wait_until(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}
