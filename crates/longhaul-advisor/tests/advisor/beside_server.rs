//! `longhaul serve --advisor`: the service beside a server.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::programs::{PATIENCE, RunningServer, longhaul, stderr, write_settings};

/// A server with the service beside it; its settings file names the service's, which has these further settings.
pub(crate) fn serve(place: &Path, advisor: &str) -> RunningServer {
    write_settings(place, advisor);
    let root = place.join("root");
    std::fs::create_dir_all(&root).unwrap();
    let settings = place.join("server.toml");
    let table = format!(
        "[advisor]\nconfig = \"{}\"\n",
        place.join("advisor.toml").display()
    );
    std::fs::write(&settings, table).unwrap();
    let mut command = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"]);
    command.arg("--root").arg(root);
    command.arg("--config").arg(settings);
    command
        .arg("--transfer-log")
        .arg(place.join("transfers.log"));
    RunningServer::start(command)
}

/// Where the service beside a server answers.
pub(crate) fn announced_service(server: &RunningServer) -> SocketAddr {
    let port = announced_port(server.address).unwrap();
    SocketAddr::new(server.address.ip(), port)
}

/// The port of the service in the FEAT reply.
fn announced_port(server: SocketAddr) -> Option<u16> {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut control = BufReader::new(stream);
    let mut line = String::new();
    control.read_line(&mut line).unwrap();
    control.get_mut().write_all(b"FEAT\r\n").unwrap();
    let mut port = None;
    loop {
        line.clear();
        control.read_line(&mut line).unwrap();
        if let Some(text) = line.trim().strip_prefix("ENABLE PORT=") {
            port = text.trim_end_matches(';').parse().ok();
        }
        if line.starts_with("211 ") {
            return port;
        }
    }
}

#[test]
fn the_service_is_announced_and_ends_with_the_server() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), "");
    let service = announced_service(&server);
    TcpStream::connect(service).unwrap();
    assert_eq!(server.terminate().code(), Some(0));
    TcpStream::connect(service).unwrap_err();
}

#[test]
fn the_service_ends_when_the_server_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), "");
    server.wait_for_message("the advice service runs beside the server");
    server.signal(rustix::process::Signal::KILL);
    // The service holds the standard error of the server: it ends when both have ended.
    server.wait_for_end();
}

#[test]
fn a_server_without_the_service_announces_none() {
    let place = tempfile::tempdir().unwrap();
    let mut command = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "ro"]);
    command.arg("--root").arg(place.path());
    let server = RunningServer::start(command);
    assert_eq!(announced_port(server.address), None);
}

#[test]
fn a_service_that_cannot_start_keeps_the_server_from_starting() {
    let place = tempfile::tempdir().unwrap();
    write_settings(place.path(), "workers = 0\n");
    let output = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "ro"])
        .arg("--root")
        .arg(place.path())
        .arg("--advisor")
        .arg(place.path().join("advisor.toml"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let text = stderr(&output);
    assert!(text.contains("workers"), "{text}");
    assert!(text.contains("did not start"), "{text}");
}
