//! `longhaul serve --metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::programs::{RunningServer, http, longhaul, stderr, wait_for};

/// The dashboard for Grafana.
const DASHBOARD: &str = include_str!("../../../../docs/grafana-server.json");
/// Bytes of the file that is fetched, and of the one that is stored.
const FETCHED: usize = 3 << 20;
const STORED: usize = 1 << 20;

/// A server with a file, and where it answers monitors.
fn serve(place: &Path) -> (RunningServer, SocketAddr) {
    std::fs::create_dir(place.join("root")).unwrap();
    std::fs::write(place.join("root/f"), vec![7; FETCHED]).unwrap();
    let mut command = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"]);
    command.args(["--history", "off", "--metrics", "127.0.0.1:0", "--root"]);
    command.arg(place.join("root"));
    let server = RunningServer::start(command);
    let line = server.wait_for_message("metrics at ");
    let address = line.strip_prefix("metrics at http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap().parse().unwrap();
    (server, address)
}

fn cp(source: String, destination: String, exit: i32) {
    let output = longhaul(&["cp", "-q", "--no-history", "--advisor", "off"])
        .args([source, destination])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(exit), "{}", stderr(&output));
}

/// The samples of a server: name with labels, and value.
fn samples(monitor: SocketAddr) -> BTreeMap<String, f64> {
    let (head, text) = http(monitor, "GET /metrics").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

#[test]
fn the_metrics_move_by_what_was_transferred() {
    let place = tempfile::tempdir().unwrap();
    let (server, monitor) = serve(place.path());
    let before = samples(monitor);
    let local = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let remote = |name: &str| format!("ftp://{}/{name}", server.address);
    std::fs::write(local("g"), vec![8; STORED]).unwrap();
    cp(remote("f"), local("copy"), 0);
    cp(local("g"), remote("g"), 0);
    // A session ends a moment after its client.
    let after = wait_for("the end of all sessions", || {
        Some(samples(monitor)).filter(|now| now["longhaul_server_sessions"] == 0.0)
    });
    let moved = |name: &str| {
        let name = format!("longhaul_server_{name}");
        after[&name] - before[&name]
    };
    let fetched = "payload_bytes_total{direction=\"retrieve\"}";
    let stored = "payload_bytes_total{direction=\"store\"}";
    assert_eq!(moved(fetched), FETCHED as f64);
    assert_eq!(moved(stored), STORED as f64);
    for direction in ["retrieve", "store"] {
        let label = format!("direction=\"{direction}\"");
        assert!(moved(&format!("transfers_total{{{label},result=\"ok\"}}")) >= 1.0);
        assert_eq!(
            moved(&format!("transfers_total{{{label},result=\"error\"}}")),
            0.0
        );
        assert_eq!(moved(&format!("transfers_running{{{label}}}")), 0.0);
        let seconds = moved(&format!("transfer_seconds_total{{{label}}}"));
        let limited = format!("longhaul_server_limiter_seconds_total{{{label},");
        let by_limiter = after.iter().filter(|(name, _)| name.starts_with(&limited));
        let sum: f64 = by_limiter.map(|(_, seconds)| seconds).sum();
        assert!(
            seconds > 0.0 && (seconds - sum).abs() < 1e-6,
            "{seconds} {sum}"
        );
    }
    assert!(moved("sessions_started_total") >= 2.0);
    assert!(moved("logins_total{result=\"ok\"}") >= 2.0);
    assert_eq!(moved("logins_total{result=\"refused\"}"), 0.0);
    let url = format!("ftp://nobody:wrong@{}/f", server.address);
    cp(url, local("none"), 3);
    let refused = samples(monitor)["longhaul_server_logins_total{result=\"refused\"}"];
    assert!(refused >= 1.0, "{refused}");
}

#[test]
fn the_health_page_says_that_the_server_accepts_sessions() {
    let place = tempfile::tempdir().unwrap();
    let (_server, monitor) = serve(place.path());
    let (head, body) = http(monitor, "GET /health").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(health["status"], "ok");
    let (head, body) = http(monitor, "HEAD /health").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.is_empty(),
        "{body}"
    );
    let (head, _) = http(monitor, "GET /etc/passwd").unwrap();
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let (head, _) = http(monitor, "POST /metrics").unwrap();
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
}

#[test]
fn the_health_page_says_that_the_server_drains() {
    let place = tempfile::tempdir().unwrap();
    let (server, monitor) = serve(place.path());
    let large = std::fs::File::create(place.path().join("root/large")).unwrap();
    large.set_len(256 << 20).unwrap();
    // Nobody reads its output, so the transfer does not end.
    let mut copy = longhaul(&["cp", "-q", "--no-history", "--advisor", "off"])
        .args([&format!("ftp://{}/large", server.address), "-"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let running = "longhaul_server_transfers_running{direction=\"retrieve\"}";
    wait_for("the transfer", || {
        (samples(monitor)[running] == 1.0).then_some(())
    });
    server.signal(Signal::TERM);
    let (head, body) = wait_for("the server to drain", || {
        let answer = http(monitor, "GET /health").unwrap();
        (!answer.0.starts_with("HTTP/1.1 200 ")).then_some(answer)
    });
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(health["status"], "draining");
    copy.kill().unwrap();
    copy.wait().unwrap();
    server.wait_for_end();
    http(monitor, "GET /health").unwrap_err();
}

#[test]
fn the_dashboard_of_servers_shows_metrics_that_are_exported() {
    let place = tempfile::tempdir().unwrap();
    let (server, monitor) = serve(place.path());
    let copy = place.path().join("copy").to_str().unwrap().to_owned();
    cp(format!("ftp://{}/f", server.address), copy, 0);
    let limiter = "longhaul_server_limiter_seconds_total";
    let text = wait_for("the limiter of a transfer", || {
        let text = http(monitor, "GET /metrics").unwrap().1;
        text.contains(&format!("{limiter}{{")).then_some(text)
    });
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut used = BTreeSet::new();
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        used.extend(words.filter(|word| word.starts_with("longhaul_")));
    }
    let names = text.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<_> = names
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    assert_eq!(used, exported);
}
