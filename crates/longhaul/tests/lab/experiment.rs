//! One cell of a built-in experiment.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{LONGHAUL, LabTestGuard, directory, is_installed, read, stderr};

/// Whether this sample is invalid because other programs used the machine.
fn is_disturbed_by_other_programs(sample: &Value) -> bool {
    let reasons = sample["invalid"].as_array().unwrap();
    let outside = |reason: &Value| {
        let text = reason.as_str().unwrap();
        text.starts_with("programs outside the lab used ") || text.contains("quieter machine")
    };
    !reasons.is_empty() && reasons.iter().any(outside)
}

#[test]
fn a_cell_of_experiment_bbc_5_2_has_a_plausible_rate() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let output = Command::new(LONGHAUL)
        .args(["lab", "run", "bbc-5.2", "--quick", "--repetitions", "1"])
        .args(["--only", "latency=50", "--only", "p=4", "--out", "."])
        .args(["--program", "longhaul", "--program", "globus"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = read(&directory.path().join("bbc-5.2-quick.json"));
    let results: Value = serde_json::from_str(&text).unwrap();
    let cells = results["cells"].as_array().unwrap();
    let globus = is_installed("globus-url-copy") && is_installed("globus-gridftp-server");
    assert_eq!(cells.len(), 1 + usize::from(globus), "{text}");
    for cell in cells {
        assert_eq!(cell["at"]["latency"], "50");
        assert_eq!(cell["at"]["p"], "4");
        let samples = cell["samples"].as_array().unwrap();
        // Earlier samples were invalid and were repeated.
        let last = samples
            .last()
            .unwrap_or_else(|| panic!("no sample: {cell:#}"));
        if is_disturbed_by_other_programs(last) {
            assert!(cell["median"].is_null(), "no result: {cell:#}");
            continue;
        }
        assert_eq!(last["invalid"], Value::Array(Vec::new()), "{cell:#}");
        // A quiet machine gets 280 to 300 Mbit/s; slow start takes most of the time.
        let rate = last["value"].as_f64().unwrap();
        assert!((100.0..500.0).contains(&rate), "{cell:#}");
        assert_eq!(cell["median"].as_f64(), Some(rate), "{cell:#}");
    }
}
