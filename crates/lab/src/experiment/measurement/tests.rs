use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::experiment::cell::{CellTask, Process};
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

/// A `longhaul` whose `lab net` and `lab cell` are `script`; the job's directory is `$DIR`.
struct Fake {
    directory: TempDir,
    longhaul: PathBuf,
    prepared: Prepared,
}

fn fake(network: bool, script: &str) -> Fake {
    let directory = tempfile::tempdir().unwrap();
    let longhaul = directory.path().join("longhaul");
    let text = format!("#!/bin/sh\nDIR={}\n{script}\n", directory.path().display());
    std::fs::write(&longhaul, text).unwrap();
    std::fs::set_permissions(&longhaul, std::fs::Permissions::from_mode(0o755)).unwrap();
    let job = CellTask {
        lab: None,
        servers: Vec::new(),
        client: Process {
            host: "a".into(),
            argv: vec!["x".into(), "a b".into()],
        },
        limit_seconds: 10,
        directory: directory.path().to_owned(),
        record: Vec::new(),
    };
    Fake {
        longhaul,
        prepared: Prepared {
            mark: directory.path().to_owned(),
            job,
            topology: network.then(|| directory.path().join("topology.toml")),
            bytes: 1_000_000,
            cut: false,
            received: None,
            trace: Some(directory.path().join("trace")),
            variables: [("rtt".to_owned(), "25".to_owned())].into(),
        },
        directory,
    }
}

const DONE: &str = r#"echo '{"seconds": 0.5, "cpu_seconds": 0.02, "settings": {"a: k": "v"}}' > $DIR/outcome.json"#;

/// An experiment that measures `measure`.
fn definition(measure: &str) -> Definition {
    let unit = built_in_unit(measure).unwrap_or("ms");
    let text = format!(
        r#"
title = "T"
kind = "loopback"
measure = "{measure}"
unit = "{unit}"
programs = {{ full = ["x"], quick = ["x"] }}
repetitions = {{ full = 1, quick = 1 }}
limit = {{ full = 1, quick = 1 }}
[across]
key = "p"
label = "streams"
full = ["1"]
quick = ["1"]
[[also]]
measure = "hue"
label = "hue"
unit = "nm"
[[also]]
measure = "efficiency"
label = "per byte of buffer"
unit = "Mbit/s/B"
[[also]]
measure = "retransmits"
label = "segments sent again"
unit = "segments"
[[also]]
measure = "memory"
label = "the sender's memory"
unit = "B"
[[also]]
measure = "useless"
label = "per nothing"
unit = "Mbit/s"
[ratios]
efficiency = {{ of = "goodput", to = "buffer" }}
turns = {{ of = "wall", to = "{{2*rtt}}" }}
useless = {{ of = "goodput", to = "hue" }}
[[series]]
title = "Window"
unit = "kB"
scale = 0.001
where = {{ sample = "stream" }}
lines = {{ window = "window" }}
"#
    );
    Definition::parse("x.toml", &text).unwrap()
}

fn entrant() -> Entrant {
    Entrant {
        key: "x".to_owned(),
        program: ProgramDefinition::parse("x.toml", PROGRAM).unwrap(),
        binaries: Default::default(),
        variant: None,
    }
}

/// In a thread of its own, whose signals are held back.
fn measured(fake: &Fake, measure: &str, first: bool) -> Result<Made, LabError> {
    let definition = definition(measure);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let runs = Runs {
                longhaul: &fake.longhaul,
                definition: &definition,
                interrupts: &Interrupts::hold().unwrap(),
                first,
            };
            match run(&runs, &entrant(), &fake.prepared, 7)? {
                Run::Made(made) => Ok(*made),
                Run::Interrupted => panic!("no signal was sent"),
            }
        });
        run.join().unwrap()
    })
}

fn measure(fake: &Fake, measure: &str) -> Result<Made, LabError> {
    measured(fake, measure, true)
}

#[test]
fn values_come_from_the_clock_or_the_output() {
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
        let made = measure(&fake, name).unwrap();
        let measured = made.sample.value.unwrap();
        assert!((measured - value).abs() < 1e-9, "{name}: {measured}");
        assert!(made.sample.invalid.is_empty() && !made.sample.spoiled);
        assert_eq!(made.sample.command, "x 'a b'");
        assert_eq!(made.sample.limited_by.as_deref(), Some("loss"));
        assert_eq!(made.settings["a: k"], "v");
    }
    let odd = measure(&fake, "colour").unwrap().sample;
    assert_eq!(
        (odd.value, odd.invalid),
        (None, vec!["its output has no colour".to_owned()])
    );
}

#[test]
fn further_measures_are_those_that_the_program_has() {
    let output = r#"printf '{"buffer": 8, "retransmits": 5}\n' > $DIR/client.out"#;
    let trace = r#"printf '{"sample": "stream", "time": 0.5, "window": 64000}\n' > $DIR/trace"#;
    let log = r#"printf '{"memory": 1}\n{"memory": 96}\n' > $DIR/log"#;
    let fake = fake(false, &format!("{DONE}\n{output}\n{trace}\n{log}"));
    let made = measure(&fake, "wall").unwrap();
    let also = [("efficiency", 2.0), ("memory", 96.0), ("retransmits", 5.0)];
    let also = also.map(|(measure, value)| (measure.to_owned(), value));
    assert_eq!(made.sample.also, also.into());
    let [series] = made.series.as_slice() else {
        panic!("{:?}", made.series);
    };
    assert_eq!((series.times[0], series.values[0]), (0.5, 64.0));
}

#[test]
fn what_grows_with_the_file_is_left_out_where_others_move_a_larger_one() {
    let output = r#"printf '{"buffer": 8, "retransmits": 5}\n' > $DIR/client.out"#;
    let mut fake = fake(false, &format!("{DONE}\n{output}"));
    fake.prepared.cut = true;
    let sample = measure(&fake, "goodput").unwrap().sample;
    assert_eq!((sample.value, sample.seconds), (Some(16.0), 0.5));
    assert_eq!(sample.also, [("efficiency".to_owned(), 2.0)].into());
}

#[test]
fn a_file_that_is_not_whole_is_a_failure() {
    let mut fake = fake(false, DONE);
    let sink = fake.directory.path().join("received");
    std::fs::write(&sink, "short").unwrap();
    fake.prepared.received = Some(sink);
    let sample = measure(&fake, "goodput").unwrap().sample;
    assert_eq!(sample.value, None);
    assert_eq!(sample.invalid, ["received 5 of 1000000 bytes"]);
}

#[test]
fn a_network_that_could_not_keep_up_spoils_the_run_but_not_the_value() {
    let report = r#"echo '{"seconds": 1, "emulator_cpu": 1, "foreign_cpu": 0, "stolen_cpu": 0,
        "overruns": 0, "invalid": ["late"], "notes": [], "directions": []}' > $DIR/report.json"#;
    let made = measure(&fake(true, &format!("{DONE}\n{report}\nexit 9")), "wall").unwrap();
    assert_eq!(made.sample.value, Some(500.0));
    assert_eq!(made.sample.invalid, ["late"]);
    assert!(made.sample.spoiled);
    let silent = measure(&fake(true, DONE), "wall").unwrap();
    assert_eq!(silent.sample.invalid, ["the network left no report"]);
}

#[test]
fn refusals_end_the_experiment_and_other_failures_are_samples() {
    let refuse = |code: u8| {
        let script = format!("echo 'longhaul lab: no TUN' >&2; exit {code}");
        measure(&fake(false, &script), "wall")
    };
    assert!(matches!(refuse(2), Err(LabError::Usage(why)) if why == "no TUN"));
    assert!(matches!(refuse(3), Err(LabError::Refused(_))));
    assert!(matches!(refuse(4), Err(LabError::NotFound(_))));
    assert!(matches!(refuse(7), Err(LabError::Busy(_))));
    let topology = fake(true, "echo $DIR/topology.toml: line 3: no >&2; exit 2");
    assert!(matches!(
        measure(&topology, "wall"),
        Err(LabError::Usage(why)) if why == "[network], filled in: line 3: no"
    ));
    let later = fake(false, "echo busy >&2; exit 7");
    let sample = measured(&later, "wall", false).unwrap().sample;
    assert_eq!(sample.invalid, ["busy"]);
    let sample = refuse(8).unwrap().sample;
    assert_eq!(
        (sample.value, sample.invalid),
        (None, vec!["no TUN".to_owned()])
    );
}

#[test]
fn the_lab_is_asked_for_the_network_and_the_seed() {
    let fake = fake(true, "echo \"$@\" > $DIR/words");
    let directory = fake.directory.path().display();
    for (first, wait) in [(true, ""), (false, "--wait ")] {
        measured(&fake, "wall", first).unwrap();
        let words = std::fs::read_to_string(fake.directory.path().join("words")).unwrap();
        assert_eq!(
            words.trim(),
            format!(
                "lab net --quiet --topology {directory}/topology.toml --seed 7 --report \
                 {directory}/report.json {wait}-- {directory}/longhaul lab cell {directory}/job.json"
            )
        );
    }
}

#[test]
fn a_signal_ends_what_runs() {
    let fake = fake(false, "sleep 60 & wait");
    let definition = definition("wall");
    let thread = std::thread::spawn(move || {
        // The signal goes to this thread alone, where it is held back.
        let interrupts = Interrupts::hold().unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        let runs = Runs {
            longhaul: &fake.longhaul,
            definition: &definition,
            interrupts: &interrupts,
            first: true,
        };
        let run = run(&runs, &entrant(), &fake.prepared, 7);
        assert!(matches!(run, Ok(Run::Interrupted)));
        assert!(interrupts.came());
        // Taken here, so that it does not end the test.
        let mut held = nix::sys::signal::SigSet::empty();
        held.add(nix::sys::signal::Signal::SIGTERM);
        held.wait().unwrap();
    });
    thread.join().unwrap();
}
