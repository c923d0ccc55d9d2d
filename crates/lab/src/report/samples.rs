//! Sample results for the unit tests of the report.

use serde_json::{Value, json};

use super::figure::Panel;
use crate::experiment::results::ExperimentResults;

/// Labels of a panel's lines, in their order.
pub(super) fn labels<'a>(panel: &'a Panel<'_>) -> Vec<&'a str> {
    panel.lines.iter().map(|line| line.label.as_str()).collect()
}

/// Results of two programs, two stream counts and two latencies, with three runs for each cell. Cells
/// are in the order of program, row, column; their medians are 100, 200, ... 800.
pub(super) fn two_by_two() -> ExperimentResults {
    let points = [("1", "1"), ("1", "50"), ("8", "1"), ("8", "50")];
    let places = ["longhaul", "guc"]
        .into_iter()
        .flat_map(|p| points.map(|(row, column)| (p, row, column)));
    let medians = (1..).map(|number| f64::from(number) * 100.0);
    let cells = places
        .zip(medians)
        .map(|((program, row, column), median)| cell(program, row, column, median));
    let results = json!({
        "experiment": "bbc-5.1",
        "title": "Parallel streams against latency",
        "source": "BBC WHP 178, table 5.1",
        "mode": "quick",
        "started": "2026-11-20T13:55:00Z",
        "seconds": 724.0,
        "seed": 7,
        "environment": {"kernel": "6.18.0", "cpus": 2, "versions": {}, "sysctls": {}},
        "unit": "Mbit/s",
        "higher_is_better": true,
        "across": axis("latency", "one-way latency", "ms", &["1", "50"]),
        "down": axis("streams", "parallel streams", "", &["1", "8"]),
        "programs": [
            {"key": "longhaul", "label": "longhaul"},
            {"key": "guc", "label": "globus-url-copy"},
        ],
        "cells": cells.collect::<Vec<Value>>(),
        "notes": [],
    });
    serde_json::from_value(results).unwrap()
}

/// [`two_by_two`] with a third program that chooses the number of streams itself: its row is `auto`,
/// its medians are 900 and 1000.
pub(super) fn with_auto() -> ExperimentResults {
    let mut results = two_by_two();
    let (key, label) = ("longhaul-auto", "longhaul, which chooses");
    let program = json!({"key": key, "label": label});
    results
        .programs
        .push(serde_json::from_value(program).unwrap());
    results
        .down
        .as_mut()
        .unwrap()
        .values
        .push("auto".to_owned());
    for (column, median) in [("1", 900.0), ("50", 1000.0)] {
        let cell = cell(key, "auto", column, median);
        results.cells.push(serde_json::from_value(cell).unwrap());
    }
    results
}

/// [`two_by_two`] with a further measure, a time of 1 s for each 100 Mbit/s, and with the window over
/// time of the first cell.
pub(super) fn with_more() -> ExperimentResults {
    let mut results = serde_json::to_value(two_by_two()).unwrap();
    let time = json!({"key": "seconds", "label": "time", "unit": "s", "higher_is_better": false});
    results["also"] = json!([time]);
    results["charts"] = json!([{"title": "Window and flight size", "unit": "kB"}]);
    for cell in results["cells"].as_array_mut().unwrap() {
        let seconds = |value: &Value| value.as_f64().unwrap() / 100.0;
        let median = seconds(&cell["median"]);
        cell["also"] = json!({"seconds": {"median": median, "half_width": 0.5, "paper": null}});
        for run in cell["samples"].as_array_mut().unwrap() {
            run["also"] = json!({"seconds": seconds(&run["value"])});
        }
    }
    let times = [0.2, 0.4, 0.6];
    results["cells"][0]["series"] = json!([
        {"chart": 0, "line": "window", "run": 0, "times": times, "values": [64.0, 128.0, 512.0]},
        {"chart": 0, "line": "flight size", "run": 0, "times": times, "values": [10.0, 90.0, 500.0]},
    ]);
    serde_json::from_value(results).unwrap()
}

fn axis(key: &str, label: &str, unit: &str, values: &[&str]) -> Value {
    json!({"key": key, "label": label, "unit": unit, "values": values, "logarithmic": false})
}

fn cell(program: &str, row: &str, column: &str, median: f64) -> Value {
    let run = |factor: f64| {
        json!({
            "value": median * factor, "invalid": [], "seconds": 8.0, "bytes": 67_108_864, "seed": 7,
            "cpu_seconds": 0.4, "command": format!("{program} -p {row}"), "limited_by": null,
        })
    };
    json!({
        "program": program,
        "at": {"streams": row, "latency": column},
        "median": median,
        "half_width": median / 20.0,
        "paper": (program == "guc").then_some(median / 1.25),
        "samples": [run(0.97), run(1.0), run(1.02)],
    })
}
