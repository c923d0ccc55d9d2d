use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::experiment::arrival_check::ArrivalCheck;
use crate::experiment::cell::{CellTask, HostCommand};
use crate::experiment::definition::{VariantDefinition, built_in_unit};
use crate::experiment::program::ProgramDefinition;

const PROGRAM: &str = r#"
label = "X"
[client]
host = "a"
argv = ["x"]
[reads]
rtt = { after = "time=" }
buffer = { json = "buffer" }
limited_by = { json = "limited_by" }
memory = { json = "memory", file = "log" }
retransmits = { json = "retransmits" }
"#;

const EXPERIMENT: &str = r#"
title = "T"
kind = "loopback"
programs = { full = ["x"], quick = ["x"] }
repetitions = { full = 1, quick = 1 }
limit = { full = 1, quick = 1 }
across = { key = "p", label = "streams", full = ["1"], quick = ["1"] }
also = [
{ measure = "hue", label = "hue", unit = "nm" },
{ measure = "efficiency", label = "per byte of buffer", unit = "Mbit/s/B" },
{ measure = "retransmits", label = "segments sent again", unit = "segments" },
{ measure = "memory", label = "the sender's memory", unit = "B" },
{ measure = "useless", label = "per nothing", unit = "Mbit/s" },
]
[ratios]
efficiency = { of = "goodput", to = "buffer" }
turns = { of = "wall", to = "{2*rtt}" }
useless = { of = "goodput", to = "hue" }
[[series]]
title = "Window"
unit = "kB"
scale = 0.001
sample = "stream"
lines = { window = "window" }
"#;

/// A prepared run and a program of the lab that is a shell script, in which `$DIR` is the job's directory.
struct FakeLab {
    directory: TempDir,
    lab_program: PathBuf,
    prepared: PreparedRun,
}

fn fake(network: bool, script: &str) -> FakeLab {
    let directory = tempfile::tempdir().unwrap();
    let lab_program = directory.path().join("longhaul-lab");
    let text = format!("#!/bin/sh\nDIR={}\n{script}\n", directory.path().display());
    std::fs::write(&lab_program, text).unwrap();
    std::fs::set_permissions(&lab_program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let task = CellTask {
        lab: None,
        servers: Vec::new(),
        client: HostCommand {
            host: "a".into(),
            argv: vec!["x".into(), "a b".into()],
        },
        limit_seconds: 10,
        directory: directory.path().to_owned(),
        record: Vec::new(),
    };
    let prepared = PreparedRun {
        mark: directory.path().to_owned(),
        task,
        topology: network.then(|| directory.path().join("topology.toml")),
        bytes: 1_000_000,
        is_cut: false,
        files: 50,
        arrival: None,
        variables: [("rtt".to_owned(), "25".to_owned())].into(),
    };
    FakeLab {
        directory,
        lab_program,
        prepared,
    }
}

const DONE: &str = r#"echo '{"seconds": 0.5, "cpu_seconds": 0.02, "settings": {"a: k": "v"}}' > $DIR/outcome.json"#;

impl FakeLab {
    /// Makes a run that measures `measure`, in a thread whose signals are blocked. `None`: it was
    /// interrupted.
    fn run(
        &self,
        measure: &str,
        is_first: bool,
        before: fn(),
    ) -> Result<Option<FinishedRun>, LabError> {
        let unit = built_in_unit(measure).unwrap_or("ms");
        let text = format!("measure = \"{measure}\"\nunit = \"{unit}\"\n{EXPERIMENT}");
        let definition = ExperimentDefinition::parse("x.toml", &text).unwrap();
        let participant = Participant {
            key: "x".to_owned(),
            program: ProgramDefinition::parse("x.toml", PROGRAM).unwrap(),
            binaries: Default::default(),
            variant: VariantDefinition::default(),
        };
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let maker = RunMaker {
                    lab_program: &self.lab_program,
                    definition: &definition,
                    interrupts: &Interrupts::block().unwrap(),
                    is_first,
                };
                before();
                let finished = maker.run(&participant, &self.prepared, 7);
                if maker.interrupts.has_signal() {
                    // The signal is consumed here, so that it does not end the test.
                    let held = nix::sys::signal::SigSet::from(nix::sys::signal::Signal::SIGTERM);
                    held.wait().unwrap();
                }
                finished
            });
            run.join().unwrap()
        })
    }

    fn measure(&self, measure: &str) -> Result<FinishedRun, LabError> {
        Ok(self.run(measure, true, || {})?.expect("no signal was sent"))
    }
}

#[test]
fn values_are_measured_by_the_lab_or_read_from_the_output() {
    let output =
        r#"printf 'time=3 ms\ntime=5 ms\n{"limited_by": "loss", "buffer": 8}\n' > $DIR/client.out"#;
    let fake = fake(false, &format!("{DONE}\n{output}"));
    for (name, value) in [
        ("goodput", 16.0),
        ("wall", 500.0),
        ("seconds", 0.5),
        ("cpu_per_gigabyte", 20.0),
        ("rtt", 4.0),
        ("turns", 10.0),
    ] {
        let FinishedRun {
            record, settings, ..
        } = fake.measure(name).unwrap();
        assert!(
            (record.value.unwrap() - value).abs() < 1e-9,
            "{name}: {record:?}"
        );
        assert!(record.invalid.is_empty() && !record.spoiled);
        assert_eq!((&*record.command, &*settings["a: k"]), ("x 'a b'", "v"));
        assert_eq!(record.limited_by.as_deref(), Some("loss"));
    }
    let unknown = fake.measure("colour").unwrap().record;
    assert_eq!(
        (unknown.value, unknown.invalid),
        (None, vec!["its output has no colour".to_owned()])
    );
}

#[test]
fn further_measures_are_omitted_where_they_cannot_be_compared() {
    let output = r#"printf '{"buffer": 8, "retransmits": 5}\n' > $DIR/client.out"#;
    let trace = r#"printf '{"sample": "stream", "time": 0.5, "window": 64000}\n' > $DIR/trace"#;
    let log = r#"printf '{"memory": 1}\n{"memory": 96}\n' > $DIR/log"#;
    let mut fake = fake(false, &format!("{DONE}\n{output}\n{trace}\n{log}"));
    let made = fake.measure("wall").unwrap();
    let also = [("efficiency", 2.0), ("memory", 96.0), ("retransmits", 5.0)];
    let mut also: BTreeMap<String, f64> = also.map(|(k, v)| (k.to_owned(), v)).into();
    assert_eq!(made.record.also, also);
    assert_eq!(
        (made.series[0].times[0], made.series[0].values[0]),
        (0.5, 64.0)
    );
    // Values that grow with the file cannot be compared where others move a larger one.
    fake.prepared.is_cut = true;
    also.remove("retransmits");
    assert_eq!(fake.measure("wall").unwrap().record.also, also);
}

#[test]
fn an_incomplete_file_is_a_failure() {
    let mut fake = fake(false, DONE);
    let sink = fake.directory.path().join("received");
    std::fs::write(&sink, "short").unwrap();
    fake.prepared.arrival = Some(ArrivalCheck::Size {
        received: sink,
        bytes: 1_000_000,
    });
    let record = fake.measure("goodput").unwrap().record;
    assert_eq!(record.value, None);
    assert_eq!(record.invalid, ["received 5 of 1000000 bytes"]);
}

#[test]
fn a_network_that_could_not_keep_up_makes_the_run_invalid_but_keeps_its_value() {
    let report = r#"echo '{"seconds": 1, "emulator_cpu": 1, "foreign_cpu": 0, "stolen_cpu": 0,
        "overruns": 0, "invalid": ["late"], "notes": [], "directions": []}' > $DIR/report.json"#;
    let late = fake(true, &format!("{DONE}\n{report}\nexit 9"));
    let record = late.measure("wall").unwrap().record;
    assert_eq!((record.value, record.spoiled), (Some(500.0), true));
    assert_eq!(record.invalid, ["late"]);
    let silent = fake(true, DONE).measure("wall").unwrap().record;
    assert_eq!(silent.invalid, ["the network left no report"]);
}

#[test]
fn refusals_are_errors_and_other_failures_are_runs_without_a_value() {
    let refuse = |code: u8| {
        let script = format!("echo 'longhaul lab: no TUN' >&2; exit {code}");
        fake(false, &script).measure("wall")
    };
    assert!(matches!(refuse(2), Err(LabError::Usage(why)) if why == "no TUN"));
    assert!(matches!(refuse(3), Err(LabError::Refused(_))));
    assert!(matches!(refuse(4), Err(LabError::NotFound(_))));
    assert!(matches!(refuse(7), Err(LabError::Busy(_))));
    let record = refuse(8).unwrap().record;
    assert_eq!(
        (record.value, record.invalid),
        (None, vec!["no TUN".to_owned()])
    );
    let topology = fake(true, "echo $DIR/topology.toml: line 3: no >&2; exit 2");
    let error = topology.measure("wall").unwrap_err().to_string();
    assert_eq!(error, "[network], expanded: line 3: no");
    let later = fake(false, "echo busy >&2; exit 7").run("wall", false, || {});
    assert_eq!(later.unwrap().unwrap().record.invalid, ["busy"]);
}

#[test]
fn lab_net_is_started_with_the_topology_and_the_seed() {
    let fake = fake(true, "echo \"$@\" > $DIR/words");
    let directory = fake.directory.path().display();
    for (is_first, wait) in [(true, ""), (false, "--wait ")] {
        fake.run("wall", is_first, || {}).unwrap();
        let words = read_text(&fake.directory.path().join("words"));
        let expected = format!(
            "net --quiet --topology {directory}/topology.toml --seed 7 --report \
             {directory}/report.json {wait}-- {directory}/longhaul-lab cell {directory}/job.json"
        );
        assert_eq!(words.trim(), expected);
    }
}

#[test]
fn a_signal_ends_the_run() {
    let raise = || nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
    let run = fake(false, "sleep 60 & wait").run("wall", true, raise);
    assert!(run.unwrap().is_none());
}
