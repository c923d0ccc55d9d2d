//! `longhaul advisor serve`.

use rustix::process::Signal;

use crate::hosts::token_file;
use crate::programs::{RunningServer, advisor, longhaul, stderr, stdout, write_settings};

#[test]
fn the_service_says_where_it_listens_and_ends_with_sigterm() {
    let place = tempfile::tempdir().unwrap();
    let server = RunningServer::advisor(place.path(), "");
    assert!(server.address.ip().is_loopback() && server.address.port() != 0);
    assert_eq!(server.terminate().code(), Some(0));
    assert!(place.path().join("paths.sqlite").exists());
}

#[test]
fn wrong_settings_are_a_usage_error_that_names_the_line() {
    let place = tempfile::tempdir().unwrap();
    write_settings(place.path(), "workerz = 3\n");
    let config = place.path().join("advisor.toml");
    let output = advisor(&["serve", "--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("line 3") && text.contains("workers"),
        "{text}"
    );
}

#[test]
fn a_check_tells_everything_that_is_wrong_and_starts_nothing() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("advisor.toml");
    let check = || advisor(&["serve", "--check", "--config", config.to_str().unwrap()]);
    let log = place.path().join("transfers.log");
    let log_table = format!(
        "[[log]]\npath = \"{}\"\nformat = \"longhaul\"\n",
        log.display()
    );
    let tests = "[tests.ping]\nenabled = false\n[tests.bottleneck]\nenabled = false\n[tests.route]\nenabled = false\n";
    write_settings(place.path(), &format!("{tests}{log_table}"));
    let output = check();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains(log.to_str().unwrap()) && said.contains("No such file"),
        "{said}"
    );
    std::fs::write(&log, "").unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        !place.path().join("paths.sqlite").exists(),
        "nothing is made"
    );
    let refused = [
        ("/nowhere/token", "token-file = \"/nowhere/token\"\n"),
        (
            "/nowhere/msmtp",
            "[notify.mail]\nto = [\"noc\"]\nprogram = \"/nowhere/msmtp\"\n",
        ),
    ];
    for (named, settings) in refused {
        write_settings(place.path(), settings);
        let output = check();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    }
}

#[test]
fn an_address_in_use_is_a_local_error_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let first = RunningServer::advisor(place.path(), "");
    let address = first.address.to_string();
    let output = longhaul(&["advisor", "serve", "--listen", &address])
        .env("STATE_DIRECTORY", place.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let text = stderr(&output);
    assert!(
        text.contains(&format!("cannot listen on {address}")),
        "{text}"
    );
}

#[test]
fn sighup_reads_the_clients_again_and_says_what_needs_a_new_start() {
    let place = tempfile::tempdir().unwrap();
    let server = RunningServer::advisor(place.path(), "");
    write_settings(place.path(), "clients = [\"192.0.2.9\"]\nworkers = 2\n");
    server.signal(Signal::HUP);
    server.wait_for_message("they count from the next start");
    server.wait_for_message("the settings were read again");
    write_settings(place.path(), "workers = \"many\"\n");
    server.signal(Signal::HUP);
    server.wait_for_message("the settings stay as they are");
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn an_unknown_path_is_answered_and_becomes_known_by_a_report() {
    let place = tempfile::tempdir().unwrap();
    let token = token_file(place.path());
    let server = RunningServer::advisor(place.path(), &format!("token-file = \"{token}\"\n"));
    let address = server.address.to_string();
    let asked = advisor(&["get", &address, "--client", "192.0.2.77"]);
    let said = stdout(&asked);
    assert_eq!(asked.status.code(), Some(0), "{}", stderr(&asked));
    assert!(
        said.contains("Nothing is known of the path to 192.0.2.77"),
        "{said}"
    );

    let log = place.path().join("iperf3.log");
    std::fs::write(&log, TRANSFERS).unwrap();
    let log = log.to_str().unwrap();
    let refused = advisor(&["import", log, "--server", &address]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let imported = advisor(&["import", log, "--server", &address, "--token-file", &token]);
    assert_eq!(imported.status.code(), Some(0), "{}", stderr(&imported));

    let hosts = stdout(&advisor(&["list", "--server", &address]));
    assert!(hosts.contains("192.0.2.77"), "{hosts}");
    let removed = advisor(&[
        "remove",
        "192.0.2.77",
        "--server",
        &address,
        "--token-file",
        &token,
    ]);
    assert_eq!(removed.status.code(), Some(0), "{}", stderr(&removed));
    let hosts = stdout(&advisor(&["list", "--server", &address]));
    assert!(!hosts.contains("192.0.2.77"), "{hosts}");
    assert_eq!(server.terminate().code(), Some(0));
}

/// An xferlog line: 1 GB in 20 s to 192.0.2.77.
const TRANSFERS: &str =
    "Mon Nov 23 01:00:00 2026 20 192.0.2.77 1000000000 /f b _ o a x ftp 0 * c\n";
