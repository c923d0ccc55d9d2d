//! One run of one program: starting the process that makes it, and reading the results that it leaves.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::cell::CellOutcome;
use super::definition::program::TRACE_FILE;
use super::definition::{self, ExperimentDefinition, reading, template};
use super::plan::Participant;
use super::preparation::PreparedRun;
use super::process::{self, Interrupts, WaitEnd, leftovers};
use super::results::{RunRecord, TimeSeries};
use crate::LabError;
use emulator::NetReport;
use proto::printable::shell_word;
use units::Exit;

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct FinishedRun {
    /// The record of the run, valid or not.
    pub(crate) record: RunRecord,
    /// The hosts' kernel settings (`HOST: KEY` → value), if they were requested.
    pub(crate) settings: BTreeMap<String, String>,
    /// The charts' lines, read from the client's trace.
    pub(crate) series: Vec<TimeSeries>,
}

/// The time beyond the client's limit for building and removing the network, and for waiting until
/// another lab ends.
const NETWORK_ALLOWANCE: Duration = Duration::from_secs(600);

/// Makes the runs of an experiment.
#[derive(Debug)]
pub(crate) struct RunMaker<'a> {
    /// The program whose verbs `net` and `cell` make the run.
    pub(crate) lab_program: &'a Path,
    pub(crate) definition: &'a ExperimentDefinition,
    pub(crate) interrupts: &'a Interrupts,
    /// Whether another running lab is an error: it is before the first run, unless the user asked to wait.
    /// Later runs always wait for it.
    pub(crate) is_first: bool,
}

impl RunMaker<'_> {
    /// Makes a run in a fresh process, and in a fresh network if the experiment has one, and reads its
    /// results. `None`: the user wants to stop.
    ///
    /// # Errors
    /// The lab cannot run at all: a file has a mistake, a privilege is missing, or, before the first run,
    /// another lab is running. All other failures are runs without a value.
    pub(crate) fn run(
        &self,
        participant: &Participant,
        prepared: &PreparedRun,
        seed: u64,
    ) -> Result<Option<FinishedRun>, LabError> {
        // The run ends when this pipe closes, which the kernel does also when this process is killed.
        let (lifeline, alive) =
            std::io::pipe().map_err(|e| LabError::system("cannot make a pipe", e))?;
        let mut child = self.start(prepared, seed, lifeline)?;
        let limit = Duration::from_secs(u64::from(prepared.task.limit_seconds));
        let deadline = Instant::now() + limit + NETWORK_ALLOWANCE;
        let wait = process::wait(&mut child, deadline, Some(self.interrupts.fd()))
            .map_err(|e| LabError::system("cannot observe the lab", e))?;
        let code = match wait {
            WaitEnd::Ended(status) => status.code(),
            WaitEnd::Late => {
                stop(prepared, &mut child)?;
                None
            }
            WaitEnd::Interrupted => {
                stop(prepared, &mut child)?;
                return Ok(None);
            }
        };
        drop(alive);
        let outcome = self.outcome(prepared, code)?;
        let output = RunOutput {
            participant,
            definition: self.definition,
            prepared,
            printed: read_text(&prepared.task.client_output()),
            outcome,
        };
        Ok(Some(output.into_finished_run(seed)))
    }

    /// Starts `lab cell`, inside `lab net` if there is a network. It leads a process group of its own, so
    /// that a terminal's Ctrl-C reaches only the experiment, which then terminates the run in order.
    fn start(
        &self,
        prepared: &PreparedRun,
        seed: u64,
        lifeline: std::io::PipeReader,
    ) -> Result<Child, LabError> {
        let path = prepared.task.directory.join("job.json");
        let errors = error_file(prepared);
        let failed =
            |path: &Path, e| LabError::system(format!("cannot write {}", path.display()), e);
        let job = serde_json::to_vec(&prepared.task).map_err(|e| failed(&path, e.into()))?;
        std::fs::write(&path, job).map_err(|e| failed(&path, e))?;
        let mut command = Command::new(self.lab_program);
        if let Some(topology) = &prepared.topology {
            command
                .args(["net", "--quiet", "--topology"])
                .arg(topology)
                .args(["--seed", &seed.to_string(), "--report"])
                .arg(report_file(prepared))
                .args((!self.is_first).then_some("--wait"))
                .arg("--")
                .arg(self.lab_program);
        }
        command
            .arg("cell")
            .arg(&path)
            .process_group(0)
            .env(leftovers::MARK, &prepared.mark)
            .stdin(lifeline)
            .stdout(Stdio::null())
            .stderr(File::create(&errors).map_err(|e| failed(&errors, e))?)
            .spawn()
            .map_err(|e| {
                LabError::system(format!("cannot start {}", self.lab_program.display()), e)
            })
    }

    /// Reads the outcome that the process wrote. If it wrote none, its exit code and its last line tell why.
    fn outcome(&self, prepared: &PreparedRun, code: Option<i32>) -> Result<CellOutcome, LabError> {
        const USAGE: i32 = Exit::Usage as i32;
        const REFUSED: i32 = Exit::Refused as i32;
        const NOT_FOUND: i32 = Exit::NotFound as i32;
        const LOCAL: i32 = Exit::Local as i32;
        let observed = std::fs::read(prepared.task.outcome_file()).ok();
        if let Some(outcome) = observed.and_then(|json| serde_json::from_slice(&json).ok()) {
            return Ok(outcome);
        }
        let errors = read_text(&error_file(prepared));
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        let last = last.unwrap_or("the lab printed no message");
        let mut why = last
            .strip_prefix("longhaul lab: ")
            .unwrap_or(last)
            .to_owned();
        if let Some(topology) = &prepared.topology {
            // The user wrote the table [network] of an experiment and does not know this generated file.
            why = why.replace(&topology.display().to_string(), "[network], expanded");
        }
        match code {
            Some(USAGE) => Err(LabError::Usage(why)),
            Some(REFUSED) => Err(LabError::Refused(why)),
            Some(NOT_FOUND) => Err(LabError::NotFound(why)),
            Some(LOCAL) if self.is_first => Err(LabError::Busy(why)),
            Some(_) => Ok(CellOutcome::failed(why)),
            None => Ok(CellOutcome::failed(format!("the run did not end: {why}"))),
        }
    }
}

fn error_file(prepared: &PreparedRun) -> PathBuf {
    prepared.task.directory.join("lab.err")
}

fn report_file(prepared: &PreparedRun) -> PathBuf {
    prepared.task.directory.join("report.json")
}

/// The time that `lab net` has to remove its network after SIGTERM. Then it is killed, and the kernel
/// removes the network.
const TAKE_DOWN: Duration = Duration::from_millis(800);

/// Terminates a run. `lab net` kills the processes on its network itself. Without a network they are in
/// the run's process group; those that left the group are found by their environment.
fn stop(prepared: &PreparedRun, child: &mut Child) -> Result<(), LabError> {
    let failed = |e| LabError::system("cannot end a run", e);
    if prepared.topology.is_some() {
        process::terminate_within(child, TAKE_DOWN).map_err(failed)?;
    } else {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let killed = group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
        killed.transpose().map_err(|e| failed(e.into()))?;
        child.wait().map_err(failed)?;
    }
    leftovers::terminate_marked(&prepared.mark);
    Ok(())
}

/// Reads a file; the text is empty if the file does not exist.
fn read_text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The files and outcome of a run that has ended.
struct RunOutput<'a> {
    participant: &'a Participant,
    definition: &'a ExperimentDefinition,
    prepared: &'a PreparedRun,
    /// The client's standard output.
    printed: String,
    outcome: CellOutcome,
}

impl RunOutput<'_> {
    /// Makes the record of the run: its values, or the reasons why it is not valid.
    fn into_finished_run(self, seed: u64) -> FinishedRun {
        let task = &self.prepared.task;
        let failure = self
            .outcome
            .failure
            .clone()
            .or_else(|| self.prepared.arrival.as_ref()?.difference());
        let value = match failure {
            Some(why) => Err(why),
            None => {
                let measure = &self.definition.measure;
                self.value(measure)
                    .ok_or_else(|| format!("its output has no {measure}"))
            }
        };
        let (mut also, mut series) = (BTreeMap::new(), Vec::new());
        if value.is_ok() {
            also = self.further_values();
            if !self.definition.series.is_empty() {
                let trace = read_text(&task.directory.join(TRACE_FILE));
                series =
                    reading::read_series(&self.definition.series, &self.participant.key, &trace);
            }
        }
        let spoiled = self.network_problems();
        let arguments: Vec<String> = task
            .client
            .argv
            .iter()
            .map(|word| shell_word(word))
            .collect();
        let limited_by = self.participant.program.reads.get("limited_by");
        let record = RunRecord {
            value: value.as_ref().ok().copied(),
            bytes: if value.is_ok() { self.bytes() } else { 0 },
            spoiled: !spoiled.is_empty(),
            invalid: value.err().into_iter().chain(spoiled).collect(),
            seconds: self.outcome.seconds,
            took: None,
            cpu_seconds: Some(self.outcome.cpu_seconds),
            seed,
            command: arguments.join(" "),
            limited_by: limited_by.and_then(|reading| reading.read_text(&self.printed)),
            also,
        };
        FinishedRun {
            record,
            settings: self.outcome.settings,
            series,
        }
    }

    /// Returns the reasons why the network was not emulated as configured; empty: it was, or there is none.
    fn network_problems(&self) -> Vec<String> {
        if self.prepared.topology.is_none() {
            return Vec::new();
        }
        let report = std::fs::read(report_file(self.prepared)).unwrap_or_default();
        match serde_json::from_slice::<NetReport>(&report) {
            Ok(report) => report.invalid,
            Err(_) => vec!["the network left no report".to_owned()],
        }
    }

    /// Returns the bytes that were moved: the program's reading, else the size of the file.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of bytes"
    )]
    fn bytes(&self) -> u64 {
        let read = self.read_number("bytes");
        read.map_or(self.prepared.bytes, |bytes| bytes as u64)
    }

    /// Reads the number of one of the program's readings. `None`: it has none of this name, or no value.
    fn read_number(&self, name: &str) -> Option<f64> {
        let reading = self.participant.program.reads.get(name)?;
        let prepared = self.prepared;
        reading.read_number(&self.printed, &prepared.task.directory, &prepared.variables)
    }

    /// Returns the value of a measure: a ratio of two others, else a reading of the program, else a value
    /// that the lab measures itself.
    fn value(&self, measure: &str) -> Option<f64> {
        let Some(ratio) = self.definition.ratios.get(measure) else {
            return self.simple_value(measure);
        };
        let below = match ratio.to.contains('{') {
            true => template::expand(&ratio.to, &self.prepared.variables)
                .ok()?
                .parse()
                .ok(),
            false => self.simple_value(&ratio.to),
        };
        let value = self.simple_value(&ratio.of)? / below?;
        // A division by zero is not a measurement.
        value.is_finite().then_some(value)
    }

    /// Returns the value of a measure that is not a ratio. A reading of the program takes precedence over
    /// the lab's own measurement, which includes start and exit of the client.
    #[allow(clippy::cast_precision_loss, reason = "file sizes are far below 2⁵³")]
    fn simple_value(&self, measure: &str) -> Option<f64> {
        if self.participant.program.reads.contains_key(measure) {
            return self.read_number(measure);
        }
        let (seconds, bytes) = (self.outcome.seconds, self.bytes() as f64);
        let files = self.prepared.files as f64;
        match measure {
            "wall" => Some(seconds * 1e3),
            "seconds" => Some(seconds),
            "files_per_second" => (files > 0.0).then(|| files / seconds),
            "goodput" => (bytes > 0.0).then(|| bytes * 8.0 / seconds / 1e6),
            "cpu_per_gigabyte" => (bytes > 0.0).then(|| self.outcome.cpu_seconds / (bytes / 1e9)),
            _ => None,
        }
    }

    /// Returns the further measures that this program has. Those that grow with the file's size are omitted
    /// if this program moved a smaller file than the others.
    fn further_values(&self) -> BTreeMap<String, f64> {
        let names = self.definition.also.iter().map(|also| &also.measure);
        let cut = self.prepared.is_cut;
        let comparable = names.filter(|name| !(cut && definition::grows_with_file(name)));
        comparable
            .filter_map(|name| Some((name.clone(), self.value(name)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::experiment::arrival_check::ArrivalCheck;
    use crate::experiment::cell::{CellTask, HostCommand};
    use crate::experiment::definition::program::ProgramDefinition;
    use crate::experiment::definition::{VariantDefinition, built_in_unit};

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
                        let held =
                            nix::sys::signal::SigSet::from(nix::sys::signal::Signal::SIGTERM);
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
        let output = r#"printf 'time=3 ms\ntime=5 ms\n{"limited_by": "loss", "buffer": 8}\n' > $DIR/client.out"#;
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
}
