//! Passwords reach those for whom they are, and no message, log or list of processes has them.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::*;

/// A server that answers PASS with 530 and repeats the line. Returns its address and what it was told.
fn repeating_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let told = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&told);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            connection.write_all(b"220 hello\r\n").unwrap();
            for line in BufReader::new(connection.try_clone().unwrap()).lines() {
                let Ok(line) = line else { break };
                let answer = match line.split(' ').next() {
                    Some("USER") => "331 and the password?\r\n".to_owned(),
                    _ => format!("530-wrong:\r\n530-{line}\r\n530 I said '{line}'.\r\n"),
                };
                lines.lock().unwrap().push(line);
                if connection.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    (address, told)
}

#[test]
fn the_password_of_the_environment_goes_to_the_first_server_alone() {
    let site = Site::new();
    let (other, told) = repeating_server();
    let first = format!("ftp://carol@{}/d/f1", site.address);
    let second = format!("ftp://carol@{}/x", other.replace("127.0.0.1", "localhost"));
    let mut copy = site.longhaul(&["cp", &first, &second]);
    let (code, text) = ending(&copy.env("LONGHAUL_PASSWORD", PASSWORD).output().unwrap());
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("LONGHAUL_PASSWORD is for carol@127.0.0.1"),
        "{text}"
    );
    let told = told.lock().unwrap().join("\n");
    assert!(
        told.contains("USER carol") && !told.contains(PASSWORD),
        "{told}"
    );
    // The first one takes it.
    let mut list = site.longhaul(&["ls", &format!("ftp://carol@{}/d", site.address)]);
    let (code, text) = ending(&list.env("LONGHAUL_PASSWORD", PASSWORD).output().unwrap());
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_password_that_a_server_repeats_is_in_no_message_and_no_log() {
    let site = Site::new();
    let (server, told) = repeating_server();
    let mut list = site.longhaul(&["ls", &format!("ftp://carol@{server}/")]);
    list.env("LONGHAUL_PASSWORD", PASSWORD)
        .env("RUST_LOG", "trace");
    let (code, text) = ending(&list.output().unwrap());
    assert_eq!(code, Some(3), "{text}");
    assert!(told.lock().unwrap().join("\n").contains(PASSWORD));
    assert!(text.contains("I said 'PASS ***'"), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

#[test]
fn a_password_in_a_url_is_not_in_the_list_of_processes() {
    let site = Site::new();
    // It accepts, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("ftp://carol:hush%20hush@{address}/");
    let mut list = site.longhaul(&["ls", &url]).spawn().unwrap();
    let held = listener.accept().unwrap();
    let shown = std::fs::read(format!("/proc/{}/cmdline", list.id())).unwrap();
    list.kill().unwrap();
    list.wait().unwrap();
    drop(held);
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("ftp://carol:***"), "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
}
