//! The JSON interface, live updates, and health.

use std::io::{BufRead, BufReader, Write};

use advisor::config::{LogSource, StoreUrl};
use advisor::hosts::HostSource;
use advisor::http::ServerLimits;
use advisor::log_reader::format::TransferLogFormat;
use advisor::service::log_feed::LogFeed;
use enable::client::EnableClient;
use enable::method;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, TestService, until};

#[test]
fn advice_of_the_caller_and_of_a_named_client() {
    let service = TestService::start();
    service.measured("127.0.0.1", 1.0, 1000.0);
    let own = service.get("/api/v1/advice?bytes=1000000").json();
    assert_eq!(
        (&own["client"], &own["bdp_bytes"]),
        (&json!("127.0.0.1"), &json!(125_000))
    );
    let other = service
        .get("/api/v1/advice?client=2001:db8::1&must_set_buffer=true")
        .json();
    assert_eq!(
        (&other["client"], &other["confidence"]),
        (&json!("2001:db8::1"), &json!(0.0))
    );
    let info = service.get("/api/v1/net-info").json();
    assert_eq!(info["rtt"]["latest"], 0.001);
    let qos = service
        .get("/api/v1/qos?purpose=background&rate_bps=5")
        .json();
    assert_eq!(qos["class"], "LE");
    for wrong in [
        "advice?bytes=-1",
        "advice?bytes=many",
        "qos?purpose=x",
        "advice?client=a%20b",
        "paths?limit=x",
    ] {
        let answer = service.get(&format!("/api/v1/{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.json()["error"].is_string(), "{wrong}");
    }
}

#[test]
fn reads_leave_nothing_behind() {
    let service = TestService::start();
    for path in [
        "net-info?client=192.0.2.1",
        "qos?client=192.0.2.2",
        "paths/192.0.2.3",
        "paths/192.0.2.4/history",
        "net-info",
        "qos",
    ] {
        service.get(&format!("/api/v1/{path}"));
    }
    let asking = EnableClient::new(&service.address.to_string(), PATIENCE).unwrap();
    for method in [method::GET_NET_INFO, method::GET_QOS] {
        let arguments = vec![json!("data"), json!("192.0.2.5")];
        asking.call(&method, arguments).unwrap();
    }
    assert_eq!(service.advisor.hosts(), []);
    // A question for a transfer makes its client known.
    service.get("/api/v1/advice?client=192.0.2.6");
    assert_eq!(service.advisor.addresses().len(), 1);
}

#[test]
fn questions_without_the_token_displace_no_client_that_was_added() {
    let service = TestService::with(ServerLimits::default(), |config| config.max_clients = 3);
    service.measured("192.0.2.1", 1.0, 100.0);
    let added = service
        .advisor
        .add_host("192.0.2.2".parse().unwrap(), HostSource::Api);
    assert_eq!(added, Ok(true));
    for last in 10..60 {
        service.get(&format!("/api/v1/advice?client=192.0.2.{last}"));
    }
    let known: Vec<String> = service
        .advisor
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(known, ["192.0.2.1", "192.0.2.2", "192.0.2.59"]);
    assert!(
        service
            .advisor
            .facts("192.0.2.1".parse().unwrap())
            .is_some()
    );
}

#[test]
fn paths_are_listed_searched_and_shown() {
    let service = TestService::start();
    for last in 1..=9 {
        service.measured(&format!("192.0.2.{last}"), f64::from(last), 100.0);
    }
    service.measured("2001:db8::7", 7.0, 100.0);
    let list = service.get("/api/v1/paths?limit=3&offset=2").json();
    assert_eq!(list["total"], 10);
    let clients: Vec<_> = list["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| &path["client"])
        .collect();
    assert_eq!(clients, ["192.0.2.3", "192.0.2.4", "192.0.2.5"]);
    let found = service.get("/api/v1/paths?search=DB8").json();
    assert_eq!(
        (&found["total"], &found["paths"][0]["client"]),
        (&json!(1), &json!("2001:db8::7"))
    );
    let path = service.get("/api/v1/paths/192.0.2.4").json();
    assert_eq!(path["quantities"]["rtt"]["latest"], 0.004);
    assert_eq!(
        (&path["host"]["source"], &path["transfers"]),
        (&json!("log"), &json!(0))
    );
    service
        .advisor
        .transfer_started("192.0.2.4".parse().unwrap());
    assert_eq!(
        service.get("/api/v1/paths/192.0.2.4").json()["transfers"],
        1
    );
    assert_eq!(service.get("/api/v1/paths/192.0.2.200").status, 404);
    let questions = service.advisor.counters().questions;
    assert_eq!(questions, 0, "to look at paths is no question about them");
}

#[test]
fn history_is_read_from_the_database() {
    let service = TestService::start();
    for milliseconds in [5.0, 6.0, 7.0] {
        service.measured("192.0.2.4", milliseconds, 100.0);
    }
    let path = "/api/v1/paths/192.0.2.4/history";
    let read = |query: &str| service.get(&format!("{path}?{query}"));
    let points = || {
        read("quantity=rtt&since=1h").json()["points"]
            .as_array()
            .unwrap()
            .len()
    };
    until("the history is written", || points() == 3);
    assert_eq!(
        read("points=2").json()["points"].as_array().unwrap().len(),
        2
    );
    let none = read("since=2999-01-01T00:00:00Z").json();
    assert_eq!(none["points"], json!([]));
    for wrong in ["quantity=speed", "since=soon", "points=-1"] {
        assert_eq!(read(wrong).status, 400, "{wrong}");
    }
    assert_eq!(service.get("/api/v1/paths/192.0.2.99/history").status, 404);
}

#[test]
fn hosts_and_reports_are_changed_with_the_token_alone() {
    let service = TestService::start();
    let unasked = service.request(
        "POST /api/v1/hosts HTTP/1.1\n",
        b"{\"client\": \"192.0.2.1\"}",
    );
    assert_eq!(unasked.status, 401);
    // A browser that saw `Basic` would keep the token.
    assert!(
        unasked.head.contains("www-authenticate: bearer"),
        "{}",
        unasked.head
    );
    for (method, path) in [
        ("DELETE", "/api/v1/hosts/192.0.2.1"),
        ("PUT", "/api/v1/hosts/192.0.2.1/tests"),
        ("POST", "/api/v1/hosts/192.0.2.1/tests/ping"),
        ("POST", "/api/v1/report"),
    ] {
        let refused = service.request(&format!("{method} {path} HTTP/1.1\n"), b"{}");
        assert_eq!(refused.status, 401, "{method} {path}");
    }
    assert!(service.advisor.hosts().is_empty());
    let added = service
        .change("POST", "/api/v1/hosts", "{\"client\": \"192.0.2.1\"}")
        .json();
    assert_eq!(added, json!({ "changed": true, "client": "192.0.2.1" }));
    let tests = "/api/v1/hosts/192.0.2.1/tests";
    assert_eq!(service.change("PUT", tests, "{\"ping\": true}").status, 200);
    let hosts = service.get("/api/v1/hosts").json();
    assert_eq!(hosts["hosts"][0]["tests"], json!({ "ping": true }));
    let often = "{\"ping\": \"90s\"}";
    assert_eq!(service.change("PUT", tests, often).status, 200);
    let path = service.get("/api/v1/paths/192.0.2.1").json();
    assert_eq!(path["host"]["tests"], json!({ "ping": "90s" }));
    for wrong in [
        "{\"ping\": \"1ms\"}",
        "{\"ping\": \"often\"}",
        "{\"ping\": null}",
    ] {
        let refused = service.change("PUT", tests, wrong);
        assert_eq!(refused.status, 400, "{wrong}");
        assert!(refused.body.contains("ping: "), "{}", refused.body);
    }
    assert_eq!(
        service.change("POST", &format!("{tests}/ping"), "").status,
        200
    );
    assert_eq!(
        service.change("POST", &format!("{tests}/pong"), "").status,
        400
    );
    let report = "{\"client\": \"192.0.2.1\", \"values\": {\"goodput\": 5e7}}";
    assert_eq!(service.change("POST", "/api/v1/report", report).status, 200);
    for wrong in ["", "{", "[]", "{\"values\": {\"x\": 1}}", "{\"values\": 1}"] {
        assert_eq!(
            service.change("POST", "/api/v1/report", wrong).status,
            400,
            "{wrong}"
        );
    }
    let removed = service
        .change("DELETE", "/api/v1/hosts/192.0.2.1", "")
        .json();
    assert_eq!(removed["changed"], true);
    assert_eq!(service.get("/api/v1/hosts").json()["total"], 0);
    assert_eq!(service.change("PATCH", "/api/v1/hosts", "").status, 405);
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let service = TestService::start();
    let head = format!(
        "POST /api/v1/hosts HTTP/1.1\nAuthorization: Bearer {}\nSec-Fetch-Site: cross-site\n",
        crate::harness::TOKEN
    );
    let refused = service.request(&head, b"{\"client\": \"192.0.2.1\"}");
    assert_eq!(refused.status, 403, "{refused:?}");
    // Nor does the server permit other sites to read.
    assert!(
        !service
            .get("/api/v1/paths")
            .head
            .contains("access-control-allow")
    );
}

#[test]
fn live_updates_tell_of_measurements_and_transfers() {
    let limits = ServerLimits {
        subscribers: 1,
        ..ServerLimits::default()
    };
    let service = TestService::with(limits, |_| {});
    let mut stream = service.connect();
    stream
        .write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("retry:")));
    let second = service.get("/api/v1/events");
    assert_eq!(second.status, 503, "{second:?}");
    service.measured("192.0.2.1", 5.0, 100.0);
    let next = |mut lines: &mut dyn Iterator<Item = String>, name: &str| -> Value {
        let name = format!("event: {name}");
        assert!((&mut lines).any(|line| line == name));
        let data = lines.next().unwrap();
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
    };
    let path = next(&mut lines, "path");
    assert_eq!(
        (&path["client"], &path["advice"]["rtt_seconds"]),
        (&json!("192.0.2.1"), &json!(0.005))
    );
    service
        .advisor
        .transfer_started("192.0.2.1".parse().unwrap());
    assert_eq!(next(&mut lines, "path")["transfers"], 1);
    service.advisor.transfer_ended("192.0.2.1".parse().unwrap());
    assert_eq!(next(&mut lines, "path")["transfers"], 0);
    service.advisor.remove_host("192.0.2.1".parse().unwrap());
    assert_eq!(next(&mut lines, "forgotten")["client"], "192.0.2.1");
    drop(lines);
    until("the place is free", || {
        let mut stream = service.connect();
        stream
            .write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.contains("200")
    });
}

#[test]
fn health_is_ok_with_a_database_and_degraded_without() {
    let service = TestService::start();
    until("the database is open", || {
        service.get("/health").status == 200
    });
    assert_eq!(service.get("/health").json()["status"], "ok");
    drop(service);
    let nowhere = |config: &mut advisor::config::AdvisorConfig| {
        config.store = StoreUrl::Sqlite("/proc/nowhere/paths.sqlite".into());
    };
    let service = TestService::with(ServerLimits::default(), nowhere);
    let health = service.get("/health");
    assert_eq!(
        (health.status, &health.json()["status"]),
        (503, &json!("degraded"))
    );
    let reasons = || service.get("/health").json()["reasons"].to_string();
    until("the cause is told", || {
        reasons().contains("the database is unavailable: nothing is kept beyond memory (")
    });
    assert!(reasons().contains("/proc/nowhere"), "{}", reasons());
    // It answers all the same.
    service.measured("127.0.0.1", 1.0, 1000.0);
    assert_eq!(service.get("/api/v1/advice").json()["bdp_bytes"], 125_000);
    assert_eq!(
        service.get("/api/v1/paths/127.0.0.1/history").json()["points"],
        json!([])
    );
}

#[test]
fn a_missing_log_makes_the_service_degraded_until_it_exists() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("transfers.log");
    let service = TestService::with(ServerLimits::default(), |config| {
        config.log.push(LogSource {
            path: log.clone(),
            format: TransferLogFormat::Longhaul,
        });
    });
    let _feed = LogFeed::start(&service.advisor).unwrap();
    let reasons = || service.get("/health").json()["reasons"].to_string();
    let expected = format!("the log {}: the file does not exist", log.display());
    until("the missing log is told", || reasons().contains(&expected));
    assert_eq!(service.get("/health").status, 503);
    std::fs::write(&log, "").unwrap();
    until("the log is read", || service.get("/health").status == 200);
}

#[test]
fn a_test_that_was_asked_for_tells_its_end() {
    let service = TestService::start();
    service.change("POST", "/api/v1/hosts", r#"{"client": "192.0.2.1"}"#);
    let details = || service.get("/api/v1/paths/192.0.2.1").json();
    assert_eq!(details()["asked_tests"], json!({}), "nobody asked");
    let asked = service.change("POST", "/api/v1/hosts/192.0.2.1/tests/ping", "");
    assert_eq!(asked.status, 200, "{asked:?}");
    until("it ended", || {
        details()["asked_tests"]["ping"]["state"] == "failed"
    });
    let why = details()["asked_tests"]["ping"]["why"].to_string();
    assert!(why.starts_with("\"no answer within"), "{why}");
    service.measured("192.0.2.2", 1.0, 1.0);
    let other = service.get("/api/v1/paths/192.0.2.2").json();
    assert_eq!(other["asked_tests"], json!({}));
}

#[test]
fn a_test_that_the_budget_never_covers_is_refused_with_the_setting_to_change() {
    let service = TestService::with(ServerLimits::default(), |config| {
        config.bytes_per_hour = 1500;
    });
    service.change("POST", "/api/v1/hosts", r#"{"client": "192.0.2.1"}"#);
    let refused = service.change("POST", "/api/v1/hosts/192.0.2.1/tests/ping", "");
    assert_eq!(refused.status, 400);
    let error = refused.json()["error"].to_string();
    assert!(
        error.contains("bytes-per-hour") && error.contains("1.00 kB"),
        "{error}"
    );
}

#[test]
fn the_description_is_served() {
    let service = TestService::start();
    let description = service.get("/api/v1/openapi.json");
    assert!(description.head.contains("application/json"));
    assert!(description.json()["paths"]["/api/v1/advice"]["get"].is_object());
}
