//! Single cells of built-in experiments.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{INVALID, LONGHAUL_LAB, LabTestGuard, directory, is_installed, read, stderr};

/// Whether this sample is invalid because other programs used the machine.
fn is_disturbed_by_other_programs(sample: &Value) -> bool {
    let reasons = sample["invalid"].as_array().unwrap();
    let outside = |reason: &Value| {
        let text = reason.as_str().unwrap();
        text.starts_with("programs outside the lab used ") || text.contains("quieter machine")
    };
    !reasons.is_empty() && reasons.iter().any(outside)
}

/// The cells of a quick run of an experiment with these further arguments.
fn cells(experiment: &str, arguments: &[&str]) -> Vec<Value> {
    let directory = directory();
    let output = Command::new(LONGHAUL_LAB)
        .args(["run", experiment, "--quick", "--repetitions", "1"])
        .args(["--out", "."])
        .args(arguments)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // On a busy machine cells may have no valid run.
    let ended = matches!(output.status.code(), Some(0 | INVALID));
    assert!(ended, "{}", stderr(&output));
    let text = read(&directory.path().join(format!("{experiment}-quick.json")));
    let results: Value = serde_json::from_str(&text).unwrap();
    results["cells"].as_array().unwrap().clone()
}

/// The last sample of a cell; earlier ones were invalid and were repeated. `None`: the machine was too busy for
/// a result.
fn valid_sample(cell: &Value) -> Option<&Value> {
    let samples = cell["samples"].as_array().unwrap();
    let last = samples
        .last()
        .unwrap_or_else(|| panic!("no sample: {cell:#}"));
    if is_disturbed_by_other_programs(last) {
        assert!(cell["median"].is_null(), "no result: {cell:#}");
        return None;
    }
    assert_eq!(last["invalid"], Value::Array(Vec::new()), "{cell:#}");
    Some(last)
}

#[test]
fn a_cell_of_experiment_bbc_5_2_has_a_plausible_rate() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let at = ["--only", "latency=50", "--only", "p=4"];
    let programs = ["--program", "longhaul", "--program", "globus"];
    let cells = cells("bbc-5.2", &[at, programs].concat());
    let globus = is_installed("globus-url-copy") && is_installed("globus-gridftp-server");
    assert_eq!(cells.len(), 1 + usize::from(globus), "{cells:#?}");
    for cell in &cells {
        assert_eq!(cell["at"]["latency"], "50");
        assert_eq!(cell["at"]["p"], "4");
        let Some(sample) = valid_sample(cell) else {
            continue;
        };
        // A quiet machine gets 280 to 300 Mbit/s; slow start takes most of the time.
        let rate = sample["value"].as_f64().unwrap();
        assert!((100.0..500.0).contains(&rate), "{cell:#}");
        assert_eq!(cell["median"].as_f64(), Some(rate), "{cell:#}");
    }
}

/// The advice service of a host that knows nothing measures the path to another one.
#[test]
fn a_cell_of_experiment_enable_estimators_is_near_the_path_as_set() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let at = ["--only", "path=100M 20ms", "--program", "idle"];
    let cells = cells("enable-estimators", &at);
    assert_eq!(cells.len(), 1, "{cells:#?}");
    let Some(sample) = valid_sample(&cells[0]) else {
        return;
    };
    // A quiet machine is within 1 %.
    let bandwidth = sample["value"].as_f64().unwrap();
    assert!((-20.0..20.0).contains(&bandwidth), "{sample:#}");
    let rtt = cells[0]["also"]["rtt_error"]["median"].as_f64().unwrap();
    assert!((-2.0..20.0).contains(&rtt), "{cells:#?}");
}

/// Route metrics by `advisor enforce` make a program faster that knows nothing of them, until they are removed.
#[test]
fn cells_of_experiment_enable_enforce_differ_by_the_route_metrics() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let unpacked = std::env::var_os("LONGHAUL_PEERS")
        .is_some_and(|peers| Path::new(&peers).join("vsftpd/usr/sbin/vsftpd").is_file());
    if !is_installed("curl") || !(unpacked || is_installed("vsftpd")) {
        return;
    }
    let cells = cells("enable-enforce", &["--only", "path=180 ms"]);
    assert_eq!(cells.len(), 3, "{cells:#?}");
    let rates: Option<Vec<f64>> = cells
        .iter()
        .map(|cell| valid_sample(cell)?["value"].as_f64())
        .collect();
    let Some([before, enforced, undone]) = rates.as_deref() else {
        return;
    };
    assert!(enforced > before && enforced > undone, "{cells:#?}");
}
