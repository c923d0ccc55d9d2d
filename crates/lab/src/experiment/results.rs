//! ExperimentResults as they are kept: everything that is needed to draw them and to run them again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The usual name of the values beside measured ones.
pub const PUBLISHED: &str = "published";

fn published() -> String {
    PUBLISHED.to_owned()
}

fn is_published(reference: &str) -> bool {
    reference == PUBLISHED
}

/// A point of the sweep: axis key → value, as written in the experiment.
pub(crate) type SweepPoint = BTreeMap<String, String>;

/// One run of an experiment. Its JSON file is what the report reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResults {
    /// Name, as in `longhaul lab run NAME`.
    pub experiment: String,
    /// One line for people.
    pub title: String,
    /// The published result, a paper's table or figure; empty: nothing published.
    pub source: String,
    /// The source of the values beside the measured ones: `published`, or whose.
    #[serde(default = "published", skip_serializing_if = "is_published")]
    pub reference: String,
    /// `quick` or `full`.
    pub mode: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// Seconds it took.
    pub seconds: f64,
    /// The seed that all random events come from.
    pub seed: u64,
    /// Which version of the experiment's file this is of: cells of two versions are never mixed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub definition: String,
    /// Further options, word by word as on the command line: `--only`, `p=1`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Machine and programs.
    pub environment: TestMachine,
    /// Unit of the measure: `Mbit/s`, `ms`, `%`.
    pub unit: String,
    /// Larger values are better.
    pub higher_is_better: bool,
    /// Further measures of the same runs.
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
    /// The axis along the table's rows: one line in the figure each. `None`: one row a program.
    pub down: Option<SweepAxis>,
    /// Programs, in the order they are shown.
    pub programs: Vec<ComparedProgram>,
    /// Measured values; each cell has all its runs.
    pub cells: Vec<ResultCell>,
    /// Cells that were interrupted before their last run: `--resume` goes on with them, nothing
    /// else counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<ResultCell>,
    /// How many cells the whole experiment has in this mode, as far as its programs are known; 0:
    /// not counted.
    #[serde(default)]
    pub planned: usize,
    /// Remarks for the reader: what was left out and why.
    pub notes: Vec<String>,
}

/// A further measure of the same runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherMeasure {
    /// Key in [`ResultCell::also`] and [`RunRecord::also`].
    pub key: String,
    /// For people: `time`.
    pub label: String,
    /// Of its values.
    pub unit: String,
    /// Larger values are better.
    pub higher_is_better: bool,
}

/// A chart over time, one for each cell that has [`TimeSeries`] for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeChart {
    /// For people: `Window and flight size`.
    pub title: String,
    /// Of the drawn values.
    pub unit: String,
}

/// TestMachine that the figures were made in.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TestMachine {
    /// `uname -r`.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// Version line of each program, by program name.
    pub versions: BTreeMap<String, String>,
    /// Settings as they were on each host (`a: net.ipv4.tcp_rmem`).
    pub sysctls: BTreeMap<String, String>,
}

/// A swept quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepAxis {
    /// Key in [`ResultCell::at`].
    pub key: String,
    /// For people: `one-way latency`.
    pub label: String,
    /// `ms`, `%`, or empty.
    pub unit: String,
    /// Values in order, as written in the experiment.
    pub values: Vec<String>,
    /// The figure's axis is logarithmic.
    pub logarithmic: bool,
}

/// A program under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedProgram {
    /// Key in [`ResultCell::program`].
    pub key: String,
    /// For people: `globus-url-copy with globus-gridftp-server`.
    pub label: String,
    /// How many times the value of [`ExperimentResults::baseline`] was published for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_ratio: Option<f64>,
}

/// One point of the sweep for one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultCell {
    /// Which program.
    pub program: String,
    /// SweepAxis key → value, as written in the experiment.
    pub at: BTreeMap<String, String>,
    /// This is the best of several programs: the key of the one whose cell it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// Median of the valid samples; `None`: there was none.
    pub median: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean; `None`: fewer than three valid samples.
    pub half_width: Option<f64>,
    /// The published value.
    pub paper: Option<f64>,
    /// Median processor seconds of client and server together for each GB (10⁹ bytes) moved, over
    /// the valid samples that know it.
    #[serde(default)]
    pub cpu_per_gigabyte: Option<f64>,
    /// Further measures: their key → what the valid samples come to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, MeasureValue>,
    /// Lines over time, from the first runs that count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<TimeSeries>,
    /// Every run, valid or not.
    pub samples: Vec<RunRecord>,
}

/// A further measure of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MeasureValue {
    /// Median of the valid samples.
    pub median: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean.
    pub half_width: Option<f64>,
    /// The published value.
    pub paper: Option<f64>,
}

/// A line over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Index into [`ExperimentResults::charts`].
    pub chart: usize,
    /// Name of its line in the chart.
    pub line: String,
    /// Which of the runs that are kept over time, from 0.
    pub run: usize,
    /// Seconds, as long as `values`.
    pub times: Vec<f64>,
    /// In the chart's unit.
    pub values: Vec<f64>,
}

/// One run of one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The measured value, in the experiment's unit; `None`: the run failed.
    pub value: Option<f64>,
    /// Why it does not count; empty: it does.
    pub invalid: Vec<String>,
    /// The lab could not keep up: the run says nothing about the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spoiled: bool,
    /// Wall-clock seconds of the client program.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Processor seconds of client and server together.
    pub cpu_seconds: Option<f64>,
    /// The lab's seed in this run.
    pub seed: u64,
    /// The program's command line.
    pub command: String,
    /// Limiter by the word of the program, if it says so.
    pub limited_by: Option<String>,
    /// Further measures: their key → value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, f64>,
}
