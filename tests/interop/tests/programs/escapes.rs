//! Terminal control sequences in the text of a hostile server or client are escaped.

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
use interop::peer;
use interop::require;
use interop::run::{self, FinishedProgram};

/// Clears the screen, sets a title, sets a colour by C1, reverses the text direction, separates lines, and
/// contains invalid UTF-8.
const HOSTILE: &[u8] =
    b"x\x1b[2J\x1b]0;owned\x07\xc2\x9b31m\xe2\x80\xae\xe2\x80\xa8\xef\xbb\xbf\x7f\xe9";

/// Starts a server that sends [`HOSTILE`] in its greeting, its replies and the listing of `/d`.
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
    let mut reply = |code: &str, text: &[u8]| {
        let _ = control.write_all(&[code.as_bytes(), b" ", text, b"\r\n"].concat());
    };
    reply("220", HOSTILE);
    for line in lines.map_while(Result::ok) {
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match (verb, argument) {
            ("USER", _) => reply("331", HOSTILE),
            ("PASS", _) => reply("230", HOSTILE),
            ("TYPE" | "MODE" | "STRU", _) => reply("200", HOSTILE),
            ("CWD", "/d") => reply("250", HOSTILE),
            ("PASV", _) => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                passive = Some(listener);
                let numbers = format!("(127,0,0,1,{},{})", port >> 8, port & 255);
                reply("227", numbers.as_bytes());
            }
            ("LIST", _) => {
                reply("150", HOSTILE);
                let (mut data, _) = passive.take().unwrap().accept().unwrap();
                let entry = [b"-rw-r--r-- 1 u g 5 Nov 20 08:21 ", HOSTILE, b"\r\n"].concat();
                let _ = data.write_all(&entry);
                drop(data);
                reply("226", HOSTILE);
            }
            ("QUIT", _) => reply("221", HOSTILE),
            ("FEAT" | "SITE" | "OPTS" | "EPSV" | "MLST" | "MLSD", _) => reply("502", HOSTILE),
            _ => reply("550", HOSTILE),
        }
    }
}

/// The first character in the output that could control a terminal or hide text.
fn find_unescaped(output: &[u8]) -> Option<String> {
    for chunk in output.utf8_chunks() {
        if !chunk.invalid().is_empty() {
            return Some("invalid UTF-8".to_owned());
        }
        let needs_escape = |c: char| {
            (c.is_control() && !matches!(c, '\n' | '\r'))
                || ('\u{2028}'..='\u{202e}').contains(&c)
                || c == '\u{feff}'
        };
        if let Some(c) = chunk.valid().chars().find(|c| needs_escape(*c)) {
            return Some(format!("{c:?}"));
        }
    }
    None
}

fn verb(arguments: &[&str]) -> FinishedProgram {
    run::run(longhaul().unwrap().args(arguments)).unwrap()
}

#[test]
fn messages_about_a_hostile_server_are_escaped() {
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
        let found = find_unescaped(errors.as_bytes())
            .or_else(|| find_unescaped(finished.stdout_text().as_bytes()));
        assert_eq!(found, None, "{arguments:?}: {errors:?}");
    }
}

#[test]
fn ls_escapes_names_for_a_terminal_only() {
    require!(peer::find_installed("script").map(drop));
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
        assert_eq!(find_unescaped(&output.stdout), None, "{:?}", output.stdout);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("x\\x1b[2J\\x1b]0;owned\\x07"), "{text}");
    }
}

#[test]
fn hostile_client_text_is_escaped_in_the_servers_log() {
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
    assert_eq!(
        find_unescaped(server.log().as_bytes()),
        None,
        "{:?}",
        server.log()
    );
}
