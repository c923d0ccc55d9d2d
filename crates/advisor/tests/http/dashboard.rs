//! Metrics, and the dashboard that shows them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::TestService;

/// The dashboard for Grafana.
const DASHBOARD: &str = include_str!("../../../../docs/grafana-advisor.json");

/// Names of all metrics that a service exports whose paths are known.
fn exported(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names = samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned());
    names.collect()
}

fn metrics_text() -> String {
    let service = TestService::start();
    service.measured("192.0.2.1", 5.0, 100.0);
    let report = "{\"client\": \"192.0.2.1\", \"values\": {\"goodput\": 5e7, \"reverse_goodput\": 2e7, \"loss\": 0.01}}";
    for _ in 0..5 {
        service.change("POST", "/api/v1/report", report);
    }
    let call = "<methodCall><methodName>system.listMethods</methodName></methodCall>";
    service.request("POST / HTTP/1.1\n", call.as_bytes());
    let answer = service.get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0")
    );
    answer.body
}

#[test]
fn metrics_are_in_the_text_format() {
    let text = metrics_text();
    assert!(text.ends_with("# EOF\n"));
    let mut described = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert!(described.insert(name.to_owned()), "described twice: {name}");
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            let name = sample.split('{').next().unwrap();
            let family = name.strip_suffix("_total").unwrap_or(name);
            assert!(described.contains(family), "{line}");
            assert!(name.starts_with("longhaul_advisor_"), "{line}");
        }
    }
    for expected in [
        "longhaul_advisor_path_rtt_seconds{client=\"192.0.2.1\"} 0.005",
        "longhaul_advisor_path_bandwidth_bits_per_second{client=\"192.0.2.1\"} 100000000.0",
        "longhaul_advisor_path_download_bits_per_second{client=\"192.0.2.1\"} 100000000.0",
        "longhaul_advisor_path_upload_bits_per_second{client=\"192.0.2.1\"} 20000000.0",
        "longhaul_advisor_calls_total{method=\"system.listMethods\"} 1",
        "longhaul_advisor_http_requests_total{route=\"POST /api/v1/report\",status=\"200\"} 5",
        "longhaul_advisor_clients 1.0",
    ] {
        assert!(
            text.lines().any(|line| line == expected),
            "{expected} is not in:\n{text}"
        );
    }
}

#[test]
fn labels_are_bounded() {
    let service = TestService::start();
    for number in 0..1000_u32 {
        let client = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
        service.measured(&client.to_string(), 5.0, 100.0);
    }
    for number in 0..300 {
        service.get(&format!("/no/such/path/{number}"));
        service.request(&format!("VERB{number} /health HTTP/1.1\n"), b"");
    }
    let text = service.get("/metrics").body;
    assert_eq!(text.matches("path_rtt_seconds{client=").count(), 200);
    assert!(text.matches("http_requests_total{").count() < 10, "{text}");
}

#[test]
fn metrics_can_be_switched_off() {
    let service = TestService::with(Default::default(), |config| config.metrics = false);
    assert_eq!(service.get("/metrics").status, 404);
    assert_eq!(service.get("/api/v1/tests").status, 200);
}

#[test]
fn the_dashboard_shows_metrics_that_are_exported() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let exported = exported(&metrics_text());
    let mut used = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            names(target["expr"].as_str().unwrap(), &mut used);
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        names(
            variable["query"]["query"].as_str().unwrap_or_default(),
            &mut used,
        );
    }
    let unknown: Vec<_> = used.difference(&exported).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
    assert!(used.len() > 15, "{used:?}");
}

/// Adds the names of metrics in an expression.
fn names(expression: &str, found: &mut BTreeSet<String>) {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    found.extend(
        words
            .filter(|word| word.starts_with("longhaul_"))
            .map(str::to_owned),
    );
}

#[test]
fn the_dashboard_has_the_fields_that_grafana_requires() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["title"].is_string() && dashboard["uid"].as_str().unwrap().len() <= 40);
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    assert!(dashboard["id"].is_null(), "Grafana chooses the number");
    assert!(dashboard["time"]["from"].is_string() && dashboard["time"]["to"].is_string());
    let mut ids = BTreeSet::new();
    let mut places = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let kind = panel["type"].as_str().unwrap();
        assert!(
            ["timeseries", "stat", "table", "row"].contains(&kind),
            "{kind}"
        );
        assert!(panel["title"].is_string(), "{panel}");
        let place = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(place[0] + place[2] <= 24, "wider than the grid: {panel}");
        places.push(place);
        if kind == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${source}", "{panel}");
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{panel}"
        );
        for target in panel["targets"].as_array().unwrap() {
            assert!(
                target["refId"].is_string() && target["expr"].is_string(),
                "{panel}"
            );
        }
    }
    for (number, one) in places.iter().enumerate() {
        for other in &places[number + 1..] {
            let apart = |axis: usize, length: usize| {
                one[axis] + one[length] <= other[axis] || other[axis] + other[length] <= one[axis]
            };
            assert!(
                apart(0, 2) || apart(1, 3),
                "panels overlap: {one:?} {other:?}"
            );
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let source = variables
        .iter()
        .find(|variable| variable["name"] == "source")
        .unwrap();
    assert_eq!(
        (&source["type"], &source["query"]),
        (&"datasource".into(), &"prometheus".into())
    );
}
