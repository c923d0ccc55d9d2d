//! The words of a hostile server reach a terminal only as text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use interop::longhaul::binary::longhaul;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::need;
use interop::peer;
use interop::run::{self, FinishedProgram};

/// Clears the screen, sets a title, colours by C1, turns the direction, separates lines, is no UTF-8.
const HOSTILE: &[u8] =
    b"x\x1b[2J\x1b]0;owned\x07\xc2\x9b31m\xe2\x80\xae\xe2\x80\xa8\xef\xbb\xbf\x7f\xe9";

/// Puts HOSTILE into the banner, every refusal, and the names of the directory `/d`.
fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for control in listener.incoming().flatten() {
            std::thread::spawn(move || talk(control));
        }
    });
    address
}

fn talk(mut control: TcpStream) {
    let lines = BufReader::new(control.try_clone().unwrap()).lines();
    let mut passive: Option<TcpListener> = None;
    let mut tell = |code: &str, text: &[u8]| {
        let _ = control.write_all(&[code.as_bytes(), b" ", text, b"\r\n"].concat());
    };
    tell("220", HOSTILE);
    for line in lines.map_while(Result::ok) {
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match (verb, argument) {
            ("USER", _) => tell("331", HOSTILE),
            ("PASS", _) => tell("230", HOSTILE),
            ("TYPE" | "MODE" | "STRU", _) => tell("200", HOSTILE),
            ("CWD", "/d") => tell("250", HOSTILE),
            ("PASV", _) => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                passive = Some(listener);
                let numbers = format!("(127,0,0,1,{},{})", port >> 8, port & 255);
                tell("227", numbers.as_bytes());
            }
            ("LIST", _) => {
                tell("150", HOSTILE);
                let (mut data, _) = passive.take().unwrap().accept().unwrap();
                let entry = [b"-rw-r--r-- 1 u g 5 Nov 20 08:21 ", HOSTILE, b"\r\n"].concat();
                let _ = data.write_all(&entry);
                drop(data);
                tell("226", HOSTILE);
            }
            ("QUIT", _) => tell("221", HOSTILE),
            ("FEAT" | "SITE" | "OPTS" | "EPSV" | "MLST" | "MLSD", _) => tell("502", HOSTILE),
            _ => tell("550", HOSTILE),
        }
    }
}

/// Whether something in the output could act on a terminal or hide what it is.
fn acts(output: &[u8]) -> Option<String> {
    for chunk in output.utf8_chunks() {
        if !chunk.invalid().is_empty() {
            return Some("bytes that are no text".to_owned());
        }
        let unfit = |c: char| {
            (c.is_control() && !matches!(c, '\n' | '\r'))
                || ('\u{2028}'..='\u{202e}').contains(&c)
                || c == '\u{feff}'
        };
        if let Some(c) = chunk.valid().chars().find(|c| unfit(*c)) {
            return Some(format!("{c:?}"));
        }
    }
    None
}

fn verb(arguments: &[&str]) -> FinishedProgram {
    run::run(longhaul().unwrap().args(arguments)).unwrap()
}

#[test]
fn no_message_about_a_hostile_server_acts_on_a_terminal() {
    let server = start();
    let url = |path: &str| format!("ftp://{server}/{path}");
    let to = tempfile::tempdir().unwrap();
    let to = to.path().to_str().unwrap();
    let hostile = url("d/%1b%5b2J%e2%80%ae%9b%e9");
    for arguments in [
        &["stat", &hostile][..],
        &["rm", &hostile],
        &["rm", "-r", &hostile],
        &["mkdir", &hostile],
        &["mv", &hostile, &url("b")],
        &["cksum", &hostile],
        &["cp", "--retries", "0", "--why", &hostile, to],
        &["cp", "-r", "--retries", "0", &url("d"), to],
        &["cp", "--retries", "0", "/etc/hostname", &hostile],
        &["cp", "--retries", "0", "--json", &hostile, to],
    ] {
        let finished = verb(arguments);
        let errors = finished.stderr_text();
        let found = acts(errors.as_bytes()).or_else(|| acts(finished.stdout_text().as_bytes()));
        assert_eq!(found, None, "{arguments:?}: {errors:?}");
    }
}

#[test]
fn ls_escapes_names_on_a_terminal_and_keeps_them_for_a_program() {
    need!(peer::find_installed("script").map(drop));
    let url = format!("ftp://{}/d/", start());
    let command = longhaul().unwrap();
    let output = Command::new(command.get_program())
        .args(["ls", &url])
        .output()
        .unwrap();
    assert_eq!(output.stdout, [HOSTILE, b"\n"].concat(), "as from ls(1)");
    for option in ["", "-l"] {
        let typed = format!("{} ls {option} {url}", command.get_program().display());
        let output = Command::new("script")
            .args(["-qec", &typed, "/dev/null"])
            .output()
            .unwrap();
        assert_eq!(acts(&output.stdout), None, "{:?}", output.stdout);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("x\\x1b[2J\\x1b]0;owned\\x07"), "{text}");
    }
}

#[test]
fn the_servers_log_is_lines_of_text_whatever_clients_say() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut control = TcpStream::connect(server.address()).unwrap();
    let mut replies = BufReader::new(control.try_clone().unwrap());
    let mut reply = || {
        let mut line = Vec::new();
        replies.read_until(b'\n', &mut line).unwrap();
    };
    reply();
    for verb in [&b"USER "[..], b"SITE CLIENTINFO ", b"CLNT ", b"CWD "] {
        control
            .write_all(&[verb, HOSTILE, b"\r\n"].concat())
            .unwrap();
        reply();
    }
    drop(control);
    assert_eq!(acts(server.log().as_bytes()), None, "{:?}", server.log());
}
