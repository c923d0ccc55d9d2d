//! SIGUSR1 and SIGUSR2, which ask a copy for something, end no verb.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

struct StartedVerb(Child);

impl Drop for StartedVerb {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl StartedVerb {
    fn start(arguments: &[&str], place: &std::path::Path) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(arguments)
            .current_dir(place)
            .env("XDG_STATE_HOME", place)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn first_line(&mut self) -> (String, BufReader<ChildStdout>) {
        let mut output = BufReader::new(self.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        (line, output)
    }

    fn send(&self, signals: &[Signal]) {
        let pid = Pid::from_child(&self.0);
        signals
            .iter()
            .for_each(|signal| kill_process(pid, *signal).unwrap());
    }

    fn end(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

const BOTH: [Signal; 2] = [Signal::USR1, Signal::USR2];

#[test]
fn a_verb_that_waits_for_a_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://{}/f", listener.local_addr().unwrap());
    for verb in [
        &["ls"][..],
        &["stat"],
        &["rm"],
        &["mkdir"],
        &["cksum"],
        &["cp", "-q", "--retries", "0"],
    ] {
        let mut arguments = verb.to_vec();
        arguments.push(&url);
        arguments.extend(verb.contains(&"cp").then_some("copy"));
        let mut running = StartedVerb::start(&arguments, dir.path());
        // It has connected, and waits for the greeting.
        let (mut control, _) = listener.accept().unwrap();
        running.send(&BOTH);
        control.write_all(b"421 Go away.\r\n").unwrap();
        let status = running.end();
        assert_eq!(status.code(), Some(5), "{verb:?}: {status}");
    }
}

#[test]
fn a_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [
        &[
            "serve",
            "--anonymous",
            "ro",
            "--root",
            ".",
            "--listen",
            "127.0.0.1:0",
        ][..],
        &["advisor", "serve", "--listen", "127.0.0.1:0"],
    ];
    for verb in servers {
        let mut server = StartedVerb::start(verb, dir.path());
        let (line, _output) = server.first_line();
        assert!(line.contains("127.0.0.1:"), "{verb:?}: {line}");
        server.send(&BOTH);
        // Signals of one process arrive in the order of their numbers, these two before SIGTERM.
        server.send(&[Signal::TERM]);
        let status = server.end();
        assert_eq!(status.code(), Some(0), "{verb:?}: {status}");
    }
}

#[test]
fn a_command_that_is_run_gets_the_default_back() {
    let dir = tempfile::tempdir().unwrap();
    let script = "kill -USR1 $$; echo survived";
    let mut running = StartedVerb::start(
        &[
            "advisor",
            "exec",
            "-q",
            "--server",
            "127.0.0.1:1",
            "sh",
            "-c",
            script,
        ],
        dir.path(),
    );
    let (line, _output) = running.first_line();
    assert_eq!(line, "");
    assert!(!running.end().success());
}
