//! A confined server as a session that has taken it over would find it: a probe runs on a thread of the
//! server. (Landlock and seccomp hold for the thread that enters them, and for those that it starts.)

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "everything in this crate is a test"
)]

mod serving;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkdirat, renameat};
use rustix::process::Pid;
use server::ReloadRequests;
use server::config::{Anonymous, SandboxMode, ServerConfig};
use server::sandbox::{self, FileAccess};
use socket2::{Domain, Protocol, Socket, Type};

/// Findings of the probe: the error of each attempt, `None` for one that succeeded.
#[derive(Debug, PartialEq, Eq)]
struct ProbeResults {
    read_outside: Option<ErrorKind>,
    write_outside: Option<ErrorKind>,
    list_outside: Option<ErrorKind>,
    link_outside: Option<ErrorKind>,
    program: Option<i32>,
    raw_socket: Option<i32>,
    packet_socket: Option<i32>,
    signal: Option<i32>,
    write_in_root: Option<ErrorKind>,
    move_in_root: Option<ErrorKind>,
}

/// `other`: another process.
fn probe(secret: &Path, root: &Path, other: Pid) -> ProbeResults {
    let kind = |result: std::io::Result<()>| result.err().map(|error| error.kind());
    let number = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    let socket = |domain, kind, protocol| Socket::new_raw(domain, kind, protocol).map(drop);
    let signal = rustix::process::test_kill_process(other);
    // The standard library makes and renames files by calls that are not permitted.
    mkdirat(CWD, root.join("dir"), Mode::RWXU).unwrap();
    let write_in_root = kind(std::fs::write(root.join("probe"), "x"));
    let moved = renameat(CWD, root.join("probe"), CWD, root.join("dir/probe"));
    ProbeResults {
        read_outside: kind(std::fs::read(secret.join("f")).map(drop)),
        write_outside: kind(std::fs::write(secret.join("new"), "x")),
        list_outside: kind(std::fs::read_dir(secret).map(drop)),
        link_outside: kind(std::fs::hard_link(secret.join("f"), root.join("link"))),
        program: number(Command::new("/bin/true").status().map(drop)),
        raw_socket: number(socket(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))),
        packet_socket: number(socket(Domain::from(libc::AF_PACKET), Type::RAW, None)),
        signal: number(signal.map_err(Into::into)),
        write_in_root,
        move_in_root: kind(moved.map_err(Into::into)),
    }
}

/// Logs in as anonymous and has the server rename a file.
fn use_server(address: SocketAddr) {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut expect = |line: &str, code: &str| {
        if !line.is_empty() {
            (&stream)
                .write_all(format!("{line}\r\n").as_bytes())
                .unwrap();
        }
        let reply = replies.find(|reply| {
            reply
                .as_ref()
                .is_ok_and(|r| r.as_bytes().get(3) == Some(&b' '))
        });
        let reply = reply.expect("a reply").unwrap();
        assert!(reply.starts_with(code), "{line}: {reply}");
    };
    expect("", "220");
    expect("USER anonymous", "331");
    expect("PASS x@", "230");
    expect("SIZE f", "213");
    expect("MKD d", "257");
    expect("RNFR f", "350");
    expect("RNTO d/f", "250");
}

#[test]
fn a_session_that_takes_the_server_over_reaches_no_foreign_file_program_or_packet() {
    if !sandbox::can_confine_files() {
        eprintln!("SKIPPED: this kernel cannot confine files (Landlock)");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for folder in ["root", "secret"] {
        std::fs::create_dir(path(folder)).unwrap();
        std::fs::write(path(folder).join("f"), folder).unwrap();
    }
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        root: path("root"),
        anonymous: Some(Anonymous::Rw),
        sandbox: SandboxMode::Required,
        ..ServerConfig::default()
    };
    let (secret, root) = (path("secret"), path("root"));
    let parent = rustix::process::getppid().expect("a parent");
    let confined = std::thread::spawn(move || {
        let access = FileAccess::of_server(&config, None);
        sandbox::enter(config.sandbox, &access).unwrap();
        let (announcement, shutdown, server) =
            serving::start_server(config, ReloadRequests::never());
        let found = probe(&secret, &root, parent);
        use_server(announcement.address);
        shutdown.request();
        server.join().unwrap().unwrap();
        found
    });
    let refused = Some(ErrorKind::PermissionDenied);
    let unknown = Some(libc::ENOSYS);
    let found = confined.join().unwrap();
    assert_eq!(
        found,
        ProbeResults {
            read_outside: refused,
            write_outside: refused,
            list_outside: refused,
            // link(2) itself is not permitted.
            link_outside: Some(ErrorKind::Unsupported),
            program: unknown,
            raw_socket: unknown,
            packet_socket: unknown,
            signal: unknown,
            write_in_root: None,
            move_in_root: None,
        }
    );
    assert_eq!(std::fs::read(path("root/d/f")).unwrap(), b"root");
}
