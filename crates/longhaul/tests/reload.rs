//! `longhaul serve` through the program: SIGHUP, messages about invalid settings, and the log of refused
//! logins.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

/// A server with a settings file and a users file.
struct ReloadableServer {
    place: TempDir,
    child: Child,
    address: SocketAddr,
    messages: Receiver<String>,
}

impl ReloadableServer {
    /// Starts a server whose settings file contains `settings`.
    fn start(settings: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("root")).unwrap();
        std::fs::write(place.path().join("settings.toml"), settings).unwrap();
        user(&place, "add", "ann");
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        let mut child = longhaul(&["serve", "--listen", "127.0.0.1:0"])
            .args(["--root", &path("root"), "--users", &path("users")])
            .args(["--config", &path("settings.toml")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let messages = lines(child.stderr.take().unwrap());
        let ready = lines(child.stdout.take().unwrap());
        let line = ready.recv_timeout(PATIENCE).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
        Self {
            place,
            child,
            address,
            messages,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn send_sighup(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::HUP).unwrap();
    }

    /// Waits for a message that contains `text`; returns it and all messages before it.
    fn wait_for_message(&self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.messages.recv_timeout(PATIENCE).unwrap();
            let found = line.contains(text);
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    /// Opens a control connection and reads the greeting.
    fn connect(&self) -> TestControlConnection {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut control = TestControlConnection(BufReader::new(stream));
        control.expect_reply("220");
        control
    }

    /// Tries to log in; returns the reply code.
    fn log_in(&self, user: &str, password: &str) -> (TestControlConnection, String) {
        let mut control = self.connect();
        control.expect_reply_to(&format!("USER {user}"), "331");
        control.send(&format!("PASS {password}"));
        let answer = control.reply();
        (control, answer[..3].to_owned())
    }
}

impl Drop for ReloadableServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct TestControlConnection(BufReader<TcpStream>);

impl TestControlConnection {
    fn send(&mut self, line: &str) {
        let bytes = format!("{line}\r\n");
        self.0.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        while line.as_bytes().get(3) != Some(&b' ') {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "closed");
        }
        line.trim_end().to_owned()
    }

    fn expect_reply(&mut self, code: &str) -> String {
        let reply = self.reply();
        assert!(reply.starts_with(code), "{reply}");
        reply
    }

    fn expect_reply_to(&mut self, line: &str, code: &str) -> String {
        self.send(line);
        self.expect_reply(code)
    }

    fn passive(&mut self) -> TcpStream {
        let reply = self.expect_reply_to("EPSV", "229");
        let port = reply.split('|').nth(3).unwrap().parse().unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap()
    }
}

fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Runs `longhaul user VERB NAME`, with the password `secret-NAME`.
fn user(place: &TempDir, verb: &str, name: &str) {
    let users = place.path().join("users");
    let mut command = longhaul(&["user", verb, "--users", users.to_str().unwrap()]);
    if verb == "add" {
        command.arg("--password-stdin");
    }
    let mut child = command
        .arg(name)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let _ = writeln!(input, "secret-{name}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn sighup_reloads_users_without_affecting_a_transfer() {
    let server = ReloadableServer::start("anonymous = \"ro\"\n");
    let (mut ann, code) = server.log_in("ann", "secret-ann");
    assert_eq!(code, "230");
    ann.expect_reply_to("TYPE I", "200");
    let mut data = ann.passive();
    ann.expect_reply_to("STOR up", "150");
    data.write_all(b"before ").unwrap();
    user(&server.place, "add", "bob");
    user(&server.place, "remove", "ann");
    std::fs::write(server.path("settings.toml"), "").unwrap();
    server.send_sighup();
    server.wait_for_message("settings and users reloaded");
    assert_eq!(server.log_in("bob", "secret-bob").1, "230");
    assert_eq!(server.log_in("ann", "secret-ann").1, "530");
    assert_eq!(server.log_in("anonymous", "x@").1, "530", "still anonymous");
    data.write_all(b"and after").unwrap();
    drop(data);
    ann.expect_reply("226");
    let stored = std::fs::read(server.path("root/up")).unwrap();
    assert_eq!(stored, b"before and after");
}

#[test]
fn sighup_with_an_invalid_file_keeps_the_settings_and_logs_one_line() {
    let server = ReloadableServer::start("anonymous = \"ro\"\n");
    std::fs::write(server.path("settings.toml"), "\nanonimous = \"rw\"\n").unwrap();
    server.send_sighup();
    let messages = server.wait_for_message("reload refused");
    let line = messages.last().unwrap();
    for part in ["line 2", "anonimous", "is \\\"anonymous\\\" meant"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(server.log_in("anonymous", "x@").1, "230");
    // The next reload succeeds and logs no further error.
    std::fs::write(server.path("settings.toml"), "anonymous = \"rw\"\n").unwrap();
    server.send_sighup();
    let messages = server.wait_for_message("settings and users reloaded");
    assert!(
        !messages.iter().any(|line| line.contains("ERROR")),
        "{messages:?}"
    );
}

#[test]
fn sighup_says_why_a_users_file_is_not_taken_over() {
    let server = ReloadableServer::start("anonymous = \"ro\"\n");
    let users = server.path("users");
    let good = std::fs::read_to_string(&users).unwrap();
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&users, PermissionsExt::from_mode(mode)).unwrap();
    };
    std::fs::write(&users, format!("{good}bob:no-hash\n")).unwrap();
    // A settings file with changes is taken over all the same.
    std::fs::write(server.path("settings.toml"), "").unwrap();
    server.send_sighup();
    let refusal = "settings reloaded; users unchanged: ";
    let messages = server.wait_for_message(refusal);
    let line = messages.last().unwrap();
    assert!(line.contains("line 2: a line has five fields"), "{line}");
    assert!(
        !line.contains("run-as") && !line.contains("users: 1"),
        "{line}"
    );
    assert_eq!(server.log_in("ann", "secret-ann").1, "230", "as before");
    assert_eq!(server.log_in("anonymous", "x@").1, "530");
    std::fs::write(&users, &good).unwrap();
    mode(0o644);
    server.send_sighup();
    let messages = server.wait_for_message(refusal);
    let line = messages.last().unwrap();
    assert!(line.contains("run: chmod 600"), "{line}");
    std::fs::remove_file(&users).unwrap();
    server.send_sighup();
    let messages = server.wait_for_message(refusal);
    let line = messages.last().unwrap();
    assert!(line.contains("No such file"), "{line}");
    std::fs::write(&users, &good).unwrap();
    mode(0o600);
    server.send_sighup();
    let messages = server.wait_for_message("settings and users reloaded");
    let line = messages.last().unwrap();
    assert!(line.contains("users: 1"), "{line}");
}

#[test]
fn sighup_warns_of_settings_that_need_a_restart() {
    let server = ReloadableServer::start("");
    let log = server.path("transfers");
    let settings = format!(
        "transfer-log = {:?}\nmax-sessions = 1\n",
        log.to_str().unwrap()
    );
    std::fs::write(server.path("settings.toml"), settings).unwrap();
    server.send_sighup();
    let messages = server.wait_for_message("settings and users reloaded");
    let named = |line: &&String| line.contains("transfer-log") && line.contains("restart");
    assert_eq!(messages.iter().filter(named).count(), 1, "{messages:?}");
    assert!(!log.exists());
    let _only = server.connect();
    let mut refused_session =
        TestControlConnection(BufReader::new(TcpStream::connect(server.address).unwrap()));
    refused_session.expect_reply("421");
}

fn serve(arguments: &[&str]) -> Output {
    longhaul(&["serve", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .output()
        .unwrap()
}

fn one_line(output: &Output) -> String {
    let messages = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(messages.lines().count(), 1, "{messages}");
    messages
}

#[test]
fn an_invalid_file_gives_one_line_that_names_the_cause_once() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let output = serve(&["--users", &path("none"), "--root", &path("")]);
    let messages = one_line(&output);
    assert_eq!(messages.matches("No such file").count(), 1, "{messages}");
    let output = serve(&["--anonymous", "ro", "--config", &path("none")]);
    let messages = one_line(&output);
    assert_eq!(messages.matches("No such file").count(), 1, "{messages}");
    assert_eq!(output.status.code(), Some(2));
    std::fs::write(path("wrong.toml"), "anonymous = \"ro\"\nmax-streems = 4\n").unwrap();
    let messages = one_line(&serve(&["--config", &path("wrong.toml")]));
    assert!(
        messages.contains("line 2") && messages.contains("\"max-streams\" meant"),
        "{messages}"
    );
    let output = longhaul(&["user", "list", "--users", &path("none")])
        .output()
        .unwrap();
    let messages = one_line(&output);
    assert_eq!(messages.matches("No such file").count(), 1, "{messages}");
}

#[test]
fn a_refused_login_logs_a_bounded_line_without_the_password() {
    let server = ReloadableServer::start("");
    let long = format!("eve\u{202e}\u{1b}[2J{}", "x".repeat(500));
    for (user, reason) in [(long.as_str(), "unknown user"), ("ann", "wrong password")] {
        assert_eq!(server.log_in(user, "hush-hush").1, "530");
        let messages = server.wait_for_message("login refused");
        let line = messages.last().unwrap();
        assert!(
            line.contains(reason) && line.contains("127.0.0.1"),
            "{line}"
        );
        assert!(line.len() < 400, "{line}");
        assert!(!line.contains(['\u{202e}', '\u{1b}']), "{line:?}");
        assert!(
            !messages.iter().any(|line| line.contains("hush")),
            "{messages:?}"
        );
    }
}
