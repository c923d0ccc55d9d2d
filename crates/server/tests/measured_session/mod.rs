//! A session with a server in this process, whose memory is measured.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// Peak resident memory of this process, bytes.
pub(crate) fn most_resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Sends a command; its reply, which must begin with `code`.
pub(crate) fn ask(control: &mut BufReader<TcpStream>, line: &str, code: &str) -> String {
    let bytes = format!("{line}\r\n");
    control.get_mut().write_all(bytes.as_bytes()).unwrap();
    next(control, code)
}

/// The next line, which must begin with `code`.
pub(crate) fn next(control: &mut BufReader<TcpStream>, code: &str) -> String {
    let mut reply = String::new();
    control.read_line(&mut reply).unwrap();
    assert!(reply.starts_with(code), "{reply}");
    reply
}
