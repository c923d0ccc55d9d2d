//! Verbs of the lab that need no network: output and refusals.

use serde_json::Value;

use crate::harness::{directory, lab, stderr, stdout};
use crate::refusals::assert_refused;

#[test]
fn list_prints_the_experiments() {
    let listed = stdout(&lab(&["list", "--json"]));
    let names: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|experiment| experiment["name"].as_str().unwrap().to_owned())
        .collect();
    for name in ["bbc-5.1", "bbc-5.2", "bbc-5.3", "bbc-5.4", "loopback"] {
        assert!(names.iter().any(|listed| listed == name), "{listed}");
    }
}

#[test]
fn a_simulated_connection_transfers_one_window_per_round_trip() {
    let output = lab(&[
        "sim",
        "--flows",
        "1",
        "--time",
        "5s",
        "--warm-up",
        "2s",
        "--format",
        "json",
    ]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let goodput = report["points"][0]["goodput_mbps"].as_f64().unwrap();
    // 44 segments of 1460 bytes every 24.2 ms.
    assert!((20.9..21.5).contains(&goodput), "{report:#}");
}

#[test]
fn the_report_has_the_command_that_repeats_an_experiment() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let output = lab(&[
        "run",
        "ns2-static",
        "--only",
        "connections=1",
        "--out",
        &path("r"),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = lab(&["report", "--results", &path("r"), "--out", &path("p")]);
    assert_eq!(stdout(&output).trim(), path("p/index.html"));
    let index = std::fs::read_to_string(path("p/index.html")).unwrap();
    assert!(index.contains("href=\"longhauls-own-experiments.html#ns2-static-quick\""));
    let page = std::fs::read_to_string(path("p/longhauls-own-experiments.html")).unwrap();
    assert!(page.contains("longhaul lab run ns2-static --quick --seed"));
    assert!(page.contains("--only connections=1"));
}

#[test]
fn invalid_arguments_are_refused_with_one_line() {
    for (arguments, code, word) in [
        (&["run", "bbc-9"][..], 4, "bbc-9"),
        (&["run", "no/such.toml"], 4, "no/such.toml"),
        (&["run", "bbc-5.1", "--only", "latency=7"], 2, "7"),
        (&["run", "bbc-5.1", "--program", "ftp"], 4, "ftp"),
        (&["report", "--results", "no/where"], 4, "no/where"),
        (&["sim", "--flows", "0"], 2, "--flows"),
        (&["sim", "--rate", "0"], 2, "--rate"),
        (&["sim", "--rate", "100"], 2, "100mbit"),
        (&["sim", "--access-rate", "1"], 2, "--access-rate"),
        (&["sim", "--cross-traffic", "20"], 2, "20mbit"),
        (
            &["sim", "--flows", "4", "--autopar", "eta=0.7"],
            2,
            "--autopar",
        ),
        (&["sim", "--autopar", "eta=0.7"], 2, "mi"),
        (&["sim", "--flows", "mi", "--time", "10s"], 2, "--time"),
        (&["run", "all", "--only", "p=1"], 2, "--only"),
        (&["run", "bbc-5.1", "--budget", "1h"], 2, "--budget"),
        (&["trace", "mars"], 2, "mars"),
    ] {
        assert_refused(&lab(arguments), code, &[word]);
    }
}

#[test]
fn a_seed_without_effect_gives_a_note() {
    let output_text = |more: &[&str]| {
        let mut arguments = vec!["sim", "--seed", "7", "--flows", "mi", "--bytes", "1MB"];
        arguments.extend(more);
        let output = lab(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let note = output_text(&[]);
    assert!(
        note.contains("--seed changes nothing") && note.lines().count() == 1,
        "{note}"
    );
    assert_eq!(output_text(&["--jitter", "12us"]), "");
    assert_eq!(output_text(&["--loss", "0.1%"]), "");
}

#[test]
fn a_dry_run_prints_the_plan_and_creates_nothing() {
    let directory = directory();
    let out = directory.path().join("r");
    let out = out.to_str().unwrap();
    let output = lab(&["run", "ns2-static", "--dry-run", "--out", out]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output_text = stdout(&output);
    assert!(
        output_text.contains("ns2-static (quick): ") && output_text.contains("cells of"),
        "{output_text}"
    );
    let output = lab(&["run", "all", "--dry-run", "--budget", "2h", "--out", out]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output_text = stdout(&output);
    for name in ["ns2-static", "autopar-fig7", "all: "] {
        assert!(
            output_text.lines().any(|line| line.starts_with(name)),
            "{output_text}"
        );
    }
    assert!(!std::path::Path::new(out).exists());
}
