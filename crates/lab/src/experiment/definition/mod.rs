//! The experiment file: its types and how it is read. `docs/experiments.md` describes the keys.

pub(crate) mod catalog;
mod checks;
pub(crate) mod hash;
mod mode;
pub(crate) mod program;
pub(crate) mod reading;
pub(crate) mod target;
pub(crate) mod template;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::results::{FurtherMeasure, PUBLISHED, SweepPoint};
use crate::LabError;

use mode::ByMode;
pub use mode::Mode;
use reading::SeriesDefinition;
use template::Variables;
use tree::TreeDefinition;

/// Axis key → the only values at which a program takes part; axes that are missing do not restrict it.
pub(crate) type OnlyAt = BTreeMap<String, Vec<String>>;

/// Reads the TOML text of the file called `name`.
///
/// # Errors
/// [`LabError::Usage`]: one line, `name:LINE: what is wrong`.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, LabError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text[..start].matches('\n').count();
        let what = error.message().replace('\n', " ");
        LabError::Usage(format!("{name}:{line}: {what}"))
    })
}

/// Makes the error for a value that is valid TOML but does not fit: `name: key 'KEY': what is wrong`.
pub(crate) fn key_error(name: &str, key: &str, what: impl Display) -> LabError {
    LabError::Usage(format!("{name}: key '{key}': {what}"))
}

/// Where an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExperimentKind {
    /// Over an emulated network.
    Net,
    /// Over this machine's loopback interface.
    Loopback,
    /// In the simulator.
    Sim,
}

/// A swept quantity.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AxisDefinition {
    /// The variable that a value of this axis sets.
    pub(crate) key: String,
    pub(crate) label: String,
    /// `ms`, `%`, or empty.
    #[serde(default)]
    pub(crate) unit: String,
    /// All values, in order.
    pub(crate) full: Vec<String>,
    /// The values of `full` that a quick run visits.
    quick: Vec<String>,
    /// Whether the figure's axis is logarithmic.
    #[serde(default)]
    pub(crate) logarithmic: bool,
    /// Value → the text that stands for it in command lines and networks, where they differ.
    #[serde(default)]
    means: BTreeMap<String, String>,
    /// Value → further variables that this value sets.
    #[serde(default)]
    sets: BTreeMap<String, Variables>,
}

impl AxisDefinition {
    /// Returns the values that `mode` visits.
    pub(crate) fn values(&self, mode: Mode) -> &[String] {
        match mode {
            Mode::Full => &self.full,
            Mode::Quick => &self.quick,
        }
    }

    /// Returns the variables that `value` sets: the axis's own, then the further ones, which may refer to it.
    pub(crate) fn variables<'a>(
        &'a self,
        value: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a str)> {
        let meaning = self.means.get(value).map_or(value, String::as_str);
        let further = self.sets.get(value).into_iter().flatten();
        let further = further.map(|(key, text)| (key, text.as_str()));
        std::iter::once((&self.key, meaning)).chain(further)
    }
}

/// A further measure of the same runs. The report gives it a table and figures of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeasureDefinition {
    pub(crate) measure: String,
    label: String,
    unit: String,
    #[serde(default = "yes")]
    higher_is_better: bool,
}

impl MeasureDefinition {
    /// Returns the form that is saved with the results.
    pub(crate) fn to_further_measure(&self) -> FurtherMeasure {
        FurtherMeasure {
            key: self.measure.clone(),
            label: self.label.clone(),
            unit: self.unit.clone(),
            higher_is_better: self.higher_is_better,
        }
    }
}

/// A measure that is the quotient of two others of the same run, or of one and a number that the run
/// was configured with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RatioDefinition {
    /// The numerator: a measure.
    pub(crate) of: String,
    /// The denominator: a measure, or a template (`{rtt}`).
    pub(crate) to: String,
}

/// A program with settings of its own. It takes part in the experiment under its own key.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariantDefinition {
    /// The key of the program.
    pub(crate) program: String,
    /// The key of a program whose servers run beside, and whose client starts this program's.
    #[serde(default)]
    pub(crate) within: Option<String>,
    pub(crate) label: String,
    /// Variables, which may refer to the point's. They take precedence over the experiment's parameters.
    #[serde(default)]
    pub(crate) sets: Variables,
    /// The only values at which it takes part, in addition to the program's own restriction.
    #[serde(default)]
    pub(crate) only: OnlyAt,
    /// The number of repetitions in a quick run, in place of the experiment's.
    #[serde(default)]
    pub(crate) quick_repetitions: Option<u32>,
    /// The size of the largest file that it moves in a quick run, also where others move a larger one.
    #[serde(default)]
    pub(crate) quick_largest: Option<String>,
    /// The expected goodput in Mbit/s, from which the duration of a run is estimated.
    #[serde(default)]
    pub(crate) expects: Option<f64>,
    /// The published ratio of its value to the baseline's.
    #[serde(default)]
    pub(crate) published_ratio: Option<f64>,
    /// Measure → published numbers, one for each value of `across.full` (`nan`: none).
    #[serde(default)]
    paper: BTreeMap<String, Vec<f64>>,
}

impl VariantDefinition {
    /// Describes how a quick run of it differs from others, for the reader. `None`: it does not.
    pub(crate) fn quick_note(&self) -> Option<String> {
        let runs = self.quick_repetitions.map(|n| match n {
            1 => "has one run".to_owned(),
            n => format!("has {n} runs"),
        });
        let size = self.quick_largest.as_ref();
        let file = size.map(|size| format!("moves at most {size}, also where others move more"));
        let parts: Vec<String> = runs.into_iter().chain(file).collect();
        let what = parts.join(" and ");
        let note = format!(
            "In a quick run '{}' {what}: it is slow and steady.",
            self.label
        );
        (!parts.is_empty()).then_some(note)
    }
}

/// A set of programs or variants. At each point the best of them is shown, as if a user had tried all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BestDefinition {
    /// The name shown to people: `best globus-url-copy`.
    pub(crate) label: String,
    /// The keys of the programs or variants.
    pub(crate) of: Vec<String>,
}

/// The key of a set → its definition.
pub(crate) type BestOfSeveral = BTreeMap<String, BestDefinition>;

/// An experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExperimentDefinition {
    pub(crate) title: String,
    /// The published result that the experiment reproduces; empty: none.
    #[serde(default)]
    pub(crate) source: String,
    /// The name of the reference values in `paper`; `published` unless they are somebody's own.
    #[serde(default = "published")]
    pub(crate) reference: String,
    pub(crate) kind: ExperimentKind,
    /// `goodput`, `files_per_second`, `cpu_per_gigabyte`, `seconds`, `wall`, one of `ratios`, or a reading of its programs; in
    /// the simulator a [`SimMeasure`].
    pub(crate) measure: String,
    pub(crate) unit: String,
    #[serde(default = "yes")]
    pub(crate) higher_is_better: bool,
    /// Further measures of the same runs.
    #[serde(default)]
    pub(crate) also: Vec<MeasureDefinition>,
    /// Measures that are quotients of two others.
    #[serde(default)]
    pub(crate) ratios: BTreeMap<String, RatioDefinition>,
    /// Charts over time, drawn from the clients' traces.
    #[serde(default)]
    pub(crate) series: Vec<SeriesDefinition>,
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, VariantDefinition>,
    #[serde(default)]
    pub(crate) best: BestOfSeveral,
    /// The key of the program, variant or best that the others are compared with.
    #[serde(default)]
    pub(crate) baseline: Option<String>,
    /// The seed of all random events.
    #[serde(default = "one")]
    pub(crate) seed: u64,
    /// Remarks for the reader of the results.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The keys of the programs and variants, in the order in which they are shown.
    pub(crate) programs: ByMode<Vec<String>>,
    /// The number of runs of each program at each point.
    pub(crate) repetitions: ByMode<u32>,
    /// The size of the file that is moved (`256MiB`); none: no file is created.
    #[serde(default)]
    pub(crate) bytes: Option<ByMode<String>>,
    /// Trees of files that are moved instead. The variable `tree` has the name of one.
    #[serde(default)]
    pub(crate) trees: BTreeMap<String, TreeDefinition>,
    /// Seconds after which a client is terminated and its run has failed.
    pub(crate) limit: ByMode<u32>,
    /// Variables that all points share.
    #[serde(default)]
    pub(crate) parameters: Variables,
    /// Files that every run finds in `{scratch}`: name → template of the content.
    #[serde(default)]
    pub(crate) files: Variables,
    /// The axis of the table's columns and of the figure's x axis.
    pub(crate) across: AxisDefinition,
    /// The axis of the table's rows and of the figure's lines.
    #[serde(default)]
    pub(crate) down: Option<AxisDefinition>,
    /// The content of a topology file; its texts are templates.
    #[serde(default)]
    pub(crate) network: Option<toml::Table>,
    /// Options of the simulator; texts are templates.
    #[serde(default)]
    pub(crate) simulation: Option<toml::Table>,
    /// Published numbers: for each value of `down` a row with one number for each value of `across.full`.
    /// Without `down` the only row is called `values`.
    #[serde(default)]
    paper: BTreeMap<String, Vec<f64>>,
}

fn published() -> String {
    PUBLISHED.to_owned()
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

/// The key of the row of published numbers where there is no `down` axis.
const ONLY_ROW: &str = "values";

impl ExperimentDefinition {
    /// Reads and checks an experiment's file.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the file and the line or key.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let definition: Self = parse(file, text)?;
        definition.check(file)?;
        Ok(definition)
    }

    /// Returns the axes. `down` comes first because points are visited row by row.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &AxisDefinition> {
        self.down.iter().chain([&self.across])
    }

    /// Returns the keys of all programs and variants that may take part. Those of both modes come twice.
    pub(crate) fn all_programs(&self) -> impl Iterator<Item = &String> {
        self.programs.full.iter().chain(&self.programs.quick)
    }

    /// Returns the key of the program that runs as `key`: the variant's program, or `key` itself.
    pub(crate) fn program_of<'a>(&'a self, key: &'a str) -> &'a str {
        self.variants
            .get(key)
            .map_or(key, |variant| &variant.program)
    }

    /// Returns the published value of a measure of a program or variant at a point: the variant's own, else
    /// the experiment's, which exists only for its main measure.
    pub(crate) fn published(&self, key: &str, measure: &str, at: &SweepPoint) -> Option<f64> {
        let value = at.get(&self.across.key)?;
        let column = self.across.full.iter().position(|v| v == value)?;
        let variant = self.variants.get(key);
        let own = variant.and_then(|variant| variant.paper.get(measure));
        let shared = || match &self.down {
            _ if measure != self.measure => None,
            Some(down) => self.paper.get(at.get(&down.key)?),
            None => self.paper.get(ONLY_ROW),
        };
        let row = own.or_else(shared)?;
        row.get(column).copied().filter(|number| number.is_finite())
    }
}

/// Returns [`key_error`] unless `ok`.
pub(crate) fn require(file: &str, key: &str, ok: bool, what: impl Display) -> Result<(), LabError> {
    match ok {
        true => Ok(()),
        false => Err(key_error(file, key, what)),
    }
}

/// Returns the unit of a measure that the lab takes itself. `None`: the program's output has it.
pub(crate) fn built_in_unit(measure: &str) -> Option<&'static str> {
    match measure {
        "goodput" => Some("Mbit/s"),
        "files_per_second" => Some("files/s"),
        "cpu_per_gigabyte" => Some("s/GB"),
        "seconds" => Some("s"),
        "wall" => Some("ms"),
        _ => None,
    }
}

/// Whether a measure grows with the file's size, so that runs with different files cannot be compared.
pub(crate) fn grows_with_file(measure: &str) -> bool {
    ["seconds", "wall", "retransmits"].contains(&measure)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) const GOOD: &str = r#"
title = "Throughput"
kind = "net"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["stock", "y"], quick = ["y"] }
repetitions = { full = 5, quick = 3 }
bytes = { full = "1GiB", quick = "64MiB" }
limit = { full = 600, quick = 60 }
baseline = "stock"
[across]
key = "latency"
label = "one-way latency"
full = ["1", "5", "10"]
quick = ["1", "10"]
means = { "10" = "9.9" }
[network.default]
rtt = "{2*latency}ms"
[paper]
values = [1, 2.5, 3]
[[also]]
measure = "seconds"
label = "time"
unit = "s"
[ratios]
efficiency = { of = "goodput", to = "buffer" }
[trees.t]
files = { full = 2, quick = 1 }
size = "1KB"
folder = 1
[best.any]
label = "the better one"
of = ["stock", "y"]
[variants.stock]
program = "x"
label = "stock"
only = { latency = ["1"] }
quick_largest = "1MiB"
published_ratio = 9.0
paper = { seconds = [3, nan, 1] }
[[series]]
title = "W"
unit = "kB"
lines = { w = "window" }
"#;

    const DOWN: &str = r#"
[down]
key = "buffer"
label = "buffer"
full = ["256KB", "1MB"]
quick = ["1MB"]
sets = { "1MB" = { bytes = "1MB" } }
"#;

    fn at(latency: &str) -> SweepPoint {
        [("latency".to_owned(), latency.to_owned())].into()
    }

    #[test]
    fn published_values_are_the_variants_own_or_of_the_experiments_measure() {
        let d = ExperimentDefinition::parse("x.toml", GOOD).unwrap();
        assert_eq!(d.published("y", "goodput", &at("5")), Some(2.5));
        assert_eq!(d.published("y", "goodput", &at("7")), None);
        assert_eq!(d.published("y", "seconds", &at("1")), None);
        assert_eq!(d.published("stock", "seconds", &at("10")), Some(1.0));
        assert_eq!(d.published("stock", "seconds", &at("5")), None, "nan");
        let variables: Vec<_> = d.across.variables("10").collect();
        assert_eq!(variables, [(&"latency".to_owned(), "9.9")]);
        let note = d.variants["stock"].quick_note().unwrap();
        assert!(note.contains("at most 1MiB"), "{note}");
    }

    #[test]
    fn with_a_down_axis_there_is_a_row_for_each_of_its_values() {
        let rows = GOOD
            .replace("values =", "\"256KB\" =")
            .replace("paper = { s", "sets = { s");
        let text = format!("{}{DOWN}", rows.replace("[3, nan, 1]", "\"\""));
        let d = ExperimentDefinition::parse("x.toml", &text).unwrap();
        let mut point = at("5");
        point.insert("buffer".to_owned(), "256KB".to_owned());
        assert_eq!(d.published("y", "goodput", &point), Some(2.5));
        point.insert("buffer".to_owned(), "1MB".to_owned());
        assert_eq!(d.published("y", "goodput", &point), None);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,200}") {
            let _ = ExperimentDefinition::parse("x.toml", &text);
        }
    }
}
