//! The results of an experiment as they are saved: everything needed to draw them and to repeat the runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) mod csv_file;
pub(crate) mod statistics;

/// The usual name of the reference values that measured ones are compared with.
pub const PUBLISHED: &str = "published";

fn published() -> String {
    PUBLISHED.to_owned()
}

fn is_published(reference: &str) -> bool {
    reference == PUBLISHED
}

/// A point of the sweep: axis key → value, as written in the experiment.
pub(crate) type SweepPoint = BTreeMap<String, String>;

/// The results of one experiment in one mode. The report reads them from their JSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResults {
    /// The experiment's name, as in `longhaul lab run NAME`.
    pub experiment: String,
    /// One line for people.
    pub title: String,
    /// The published result, a paper's table or figure; empty: nothing published.
    pub source: String,
    /// The name of the reference values ([`ResultCell::paper`]): `published`, or another word where they
    /// were not published.
    #[serde(default = "published", skip_serializing_if = "is_published")]
    pub reference: String,
    /// `quick` or `full`.
    pub mode: String,
    /// The time at which the first command began (RFC 3339, UTC).
    pub started: String,
    /// Wall-clock seconds of all commands together.
    pub seconds: f64,
    /// The seed of all random events.
    pub seed: u64,
    /// The fingerprint of the experiment's file. Cells of two versions of a file are never mixed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub definition: String,
    /// Further options, one element for each command-line argument: `--only`, `p=1`.
    #[serde(default)]
    pub options: Vec<String>,
    /// The machine and the versions of the programs.
    pub environment: TestMachine,
    /// Unit of the measure: `Mbit/s`, `ms`, `%`.
    pub unit: String,
    /// Whether larger values are better.
    pub higher_is_better: bool,
    /// Further measures of the same runs, in the order in which they are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<FurtherMeasure>,
    /// Charts over time; [`TimeSeries::chart`] is an index into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<TimeChart>,
    /// Key of the program that the others are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// The axis along the table's columns and the figure's x.
    pub across: SweepAxis,
    /// The axis along the table's rows; each of its values is a line in the figure. `None`: each program
    /// has one row.
    pub down: Option<SweepAxis>,
    /// The programs, in the order in which they are shown.
    pub programs: Vec<ComparedProgram>,
    /// The cells that have all their runs.
    pub cells: Vec<ResultCell>,
    /// Cells that were interrupted before their last run. `--resume` continues them; reports ignore them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<ResultCell>,
    /// The number of cells of the whole experiment in this mode, including those of programs that are not
    /// installed; 0: not counted.
    #[serde(default)]
    pub planned: usize,
    /// Remarks for the reader: what was omitted and why.
    pub notes: Vec<String>,
}

/// A further measure of the same runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherMeasure {
    /// Key in [`ResultCell::also`] and [`RunRecord::also`].
    pub key: String,
    /// The name shown to people: `time`.
    pub label: String,
    /// The unit of its values.
    pub unit: String,
    /// Whether larger values are better.
    pub higher_is_better: bool,
}

/// A chart over time. It is drawn once for each cell that has [`TimeSeries`] for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeChart {
    /// The title shown to people: `Window and flight size`.
    pub title: String,
    /// The unit of the drawn values.
    pub unit: String,
}

/// The machine on which the runs were made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TestMachine {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The number of processors that this process may use.
    pub cpus: usize,
    /// Program key → the first line that its version command prints.
    pub versions: BTreeMap<String, String>,
    /// `lab`, `longhaul` → a hash of the program's file: results of one build have the same. Older results do not have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, String>,
    /// Kernel settings of each host: `HOST: KEY` (`a: net.ipv4.tcp_rmem`) → value.
    pub sysctls: BTreeMap<String, String>,
}

/// A swept quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepAxis {
    /// Key in [`ResultCell::at`].
    pub key: String,
    /// The name shown to people: `one-way latency`.
    pub label: String,
    /// The unit of the values: `ms`, `%`; empty: none.
    pub unit: String,
    /// The values in the experiment's order, as written there.
    pub values: Vec<String>,
    /// Whether the figure's axis is logarithmic.
    pub logarithmic: bool,
}

/// A program under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedProgram {
    /// Key in [`ResultCell::program`].
    pub key: String,
    /// The name shown to people: `globus-url-copy with globus-gridftp-server`.
    pub label: String,
    /// The published ratio of its value to that of [`ExperimentResults::baseline`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_ratio: Option<f64>,
}

/// One point of the sweep for one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultCell {
    /// The program's [`ComparedProgram::key`].
    pub program: String,
    /// The point: axis key → value, as written in the experiment.
    pub at: BTreeMap<String, String>,
    /// The program that was the best of several at this point; this cell repeats that program's cell.
    /// `None`: a cell of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// The median of the valid runs; `None`: no run was valid.
    pub median: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean; `None`: fewer than three valid runs.
    pub half_width: Option<f64>,
    /// The published value, or another reference ([`ExperimentResults::reference`]).
    pub paper: Option<f64>,
    /// Median of the processor seconds of client and server together per GB (10⁹ bytes) moved, over the
    /// valid runs for which it is known.
    #[serde(default)]
    pub cpu_per_gigabyte: Option<f64>,
    /// Further measures: key → summary of the valid runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, MeasureValue>,
    /// Lines over time, from the first valid runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<TimeSeries>,
    /// Every run, valid or not.
    pub samples: Vec<RunRecord>,
}

/// The summary of a further measure over a cell's valid runs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MeasureValue {
    /// The median of the valid runs.
    pub median: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean.
    pub half_width: Option<f64>,
    /// The published value, or another reference ([`ExperimentResults::reference`]).
    pub paper: Option<f64>,
}

/// One line of a chart over time, from one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Index into [`ExperimentResults::charts`].
    pub chart: usize,
    /// The name of the line in the chart.
    pub line: String,
    /// The number of the run among those whose series are kept, from 0.
    pub run: usize,
    /// The times of the samples in the program's trace, seconds; one for each of `values`.
    pub times: Vec<f64>,
    /// The values in the chart's unit.
    pub values: Vec<f64>,
}

/// One run of one program at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The measured value, in the experiment's unit; `None`: the run failed.
    pub value: Option<f64>,
    /// The reasons why the run is not valid; empty: it is valid and counts.
    pub invalid: Vec<String>,
    /// Whether the lab could not keep up, so that the run says nothing about the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoiled: bool,
    /// Wall-clock seconds of the client, from its start to its exit.
    pub seconds: f64,
    /// Wall-clock seconds of the whole run: its network, its servers, the client, and their end. `None`: it was not
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<f64>,
    /// Bytes that the client moved.
    pub bytes: u64,
    /// Processor seconds (user and system) of client and servers together; `None` in the simulator.
    pub cpu_seconds: Option<f64>,
    /// The seed of this run's random events.
    pub seed: u64,
    /// The client's command line, quoted for a shell.
    pub command: String,
    /// The limiter that the program reports, if it reports one.
    pub limited_by: Option<String>,
    /// Further measures: key → value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, f64>,
}
