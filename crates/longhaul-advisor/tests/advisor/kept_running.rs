//! The service beside a server lives as long as the server, obeys its SIGHUP, and keeps its database where it may write.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::beside_server::{announced_service, serve};
use crate::programs::{RunningServer, advisor, http, longhaul, stdout, wait_for, write_settings};

/// The process beside a server that runs the service: the child of its only child.
fn service_process(server: &RunningServer) -> Pid {
    let child = |parent: Pid| {
        let parent = parent.as_raw_nonzero();
        // proc(5): the children of the thread that started them; all are started by the first thread.
        let path = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(path).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    };
    wait_for("the process of the service", || {
        child(child(server.process())?)
    })
}

#[test]
fn a_service_that_dies_is_started_again_on_its_port() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), "");
    let service = announced_service(&server);
    let first = service_process(&server);
    kill_process(first, Signal::KILL).unwrap();
    server.wait_for_message("the advice service ended; it starts again");
    let (head, _) = wait_for("an answer of the new service", || {
        http(service, "GET /health").ok()
    });
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_ne!(service_process(&server), first);
    assert_eq!(announced_service(&server), service);
    assert_eq!(server.terminate().code(), Some(0));
    http(service, "GET /health").unwrap_err();
}

#[test]
fn sighup_of_the_server_reaches_the_service() {
    let place = tempfile::tempdir().unwrap();
    let server = serve(place.path(), "");
    let service = announced_service(&server).to_string();
    write_settings(place.path(), "clients = [\"192.0.2.9\"]\n");
    server.signal(Signal::HUP);
    server.wait_for_message("the settings were read again clients=1");
    wait_for("the new client", || {
        let hosts = stdout(&advisor(&["list", "--server", &service]));
        hosts.contains("192.0.2.9").then_some(())
    });
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn the_database_of_a_service_that_runs_as_another_account_is_in_a_directory_of_that_account() {
    if !getuid().is_root() {
        eprintln!("SKIPPED: only root may become another account");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(place.path());
    let (state, root) = (place.path().join("state"), place.path().join("root"));
    for directory in [&state, &root] {
        std::fs::create_dir(directory).unwrap();
        open(directory);
    }
    let settings = place.path().join("advisor.toml");
    std::fs::write(&settings, "listen = \"127.0.0.1:0\"\n").unwrap();
    let mut command = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "ro"]);
    command.args(["--run-as", "nobody", "--history", "off"]);
    command.arg("--root").arg(root);
    command.arg("--advisor").arg(settings);
    command.env("STATE_DIRECTORY", &state);
    let server = RunningServer::start(command);
    let (head, body) = http(announced_service(&server), "GET /health").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    let database = std::fs::metadata(state.join("advisor/advisor.sqlite")).unwrap();
    assert_ne!(database.uid(), 0);
    assert_eq!(std::fs::metadata(&state).unwrap().uid(), 0);
    assert_eq!(server.terminate().code(), Some(0));
}
