//! `longhaul serve` as systemd starts it: a socket that the manager listens on, and messages about each phase.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A manager that passes a socket to the server and reads its messages.
struct Manager {
    place: TempDir,
    socket: UnixDatagram,
    control: std::net::SocketAddr,
    server: Child,
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Manager {
    /// Starts the server; `socket` is its NOTIFY_SOCKET, `environment` more variables.
    fn start(socket: UnixDatagram, address: &str, environment: &[(&str, &str)]) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("settings.toml"), SETTINGS).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = listener.local_addr().unwrap();
        // The number of the process that LISTEN_PID names is known to the shell that becomes it.
        let server = Command::new("sh")
            .args(["-c", r#"LISTEN_PID=$$ exec "$0" "$@" 3<&0 0</dev/null"#])
            .arg(env!("CARGO_BIN_EXE_longhaul"))
            .args(["serve", "--config", "settings.toml"])
            .envs([("LISTEN_FDS", "1"), ("NOTIFY_SOCKET", address)])
            .envs(environment.iter().copied())
            .env_remove("RUST_LOG")
            .current_dir(place.path())
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            place,
            socket,
            control,
            server,
        }
    }

    /// Waits for a message that begins with `text`; other messages are passed over.
    fn expect(&self, text: &str) -> String {
        loop {
            let mut message = [0; 512];
            let length = self.socket.recv(&mut message).unwrap();
            let message = String::from_utf8_lossy(&message[..length]).into_owned();
            if message.starts_with(text) {
                return message;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    fn expect_greeting(&self) {
        let client = TcpStream::connect(self.control).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        assert!(line.starts_with("220"), "{line}");
    }
}

/// The socket of the manager replaces the address of the settings, which could not be bound.
const SETTINGS: &str = "listen = \"192.0.2.1:1\"\nanonymous = \"ro\"\nhistory = \"off\"\n";

#[test]
fn a_manager_passes_the_socket_and_learns_of_start_reload_and_stop() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut manager = Manager::start(socket, path.to_str().unwrap(), &[]);
    manager.expect("READY=1");
    manager.expect_greeting();
    for settings in [SETTINGS, "no settings"] {
        std::fs::write(manager.place.path().join("settings.toml"), settings).unwrap();
        manager.signal(Signal::HUP);
        let reload = manager.expect("RELOADING=1");
        assert!(reload.contains("MONOTONIC_USEC="), "{reload}");
        manager.expect("READY=1");
        manager.expect_greeting();
    }
    manager.signal(Signal::TERM);
    let stop = manager.expect("STOPPING=1");
    assert!(stop.contains("EXTEND_TIMEOUT_USEC="), "{stop}");
    assert!(manager.server.wait().unwrap().success());
}

/// The sandbox forbids new connections to such a socket where the kernel can (Landlock 6).
#[test]
fn an_abstract_socket_and_the_watchdog_work_inside_the_sandbox() {
    let name = format!("longhaul-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    let watchdog = [("WATCHDOG_USEC", "20000")];
    let manager = Manager::start(socket, &format!("@{name}"), &watchdog);
    manager.expect("READY=1");
    manager.expect("WATCHDOG=1");
    manager.expect("WATCHDOG=1");
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    let output = Command::new("sh")
        .args(["-c", r#"LISTEN_PID=$$ exec "$0" serve 3</dev/null"#])
        .arg(env!("CARGO_BIN_EXE_longhaul"))
        .env("LISTEN_FDS", "1")
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{message}");
    assert!(message.contains("Accept=no"), "{message}");
}
