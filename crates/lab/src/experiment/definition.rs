//! An experiment as its file says it. `docs/experiments.md` describes the keys.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Mode;
use super::reading::SeriesDefinition;
use super::results::{FurtherMeasure, PUBLISHED};
use super::template::Variables;
use crate::LabError;
use crate::simulate::SimMeasure;

/// Axis key → value, as written in the experiment.
pub(crate) type SweepPoint = BTreeMap<String, String>;

/// Axis key → the only values at which a program takes part.
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

/// A mistake that only the whole file shows: `name: key 'KEY': what is wrong`.
pub(crate) fn mistake(name: &str, key: &str, what: impl Display) -> LabError {
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

/// A value for each [`Mode`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByMode<T> {
    full: T,
    quick: T,
}

impl<T> ByMode<T> {
    /// The one of `mode`.
    pub(crate) fn of(&self, mode: Mode) -> &T {
        match mode {
            Mode::Full => &self.full,
            Mode::Quick => &self.quick,
        }
    }
}

/// A swept quantity.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AxisDefinition {
    /// The variable that it sets.
    pub(crate) key: String,
    pub(crate) label: String,
    /// `ms`, `%`, or empty.
    #[serde(default)]
    pub(crate) unit: String,
    /// Every value, in order.
    pub(crate) full: Vec<String>,
    /// Those of them that a quick run visits.
    quick: Vec<String>,
    /// Whether it is drawn logarithmically.
    #[serde(default)]
    pub(crate) logarithmic: bool,
    /// Meanings of values in command lines and networks, where they are not themselves.
    #[serde(default)]
    means: BTreeMap<String, String>,
    /// Value → further variables that it sets.
    #[serde(default)]
    sets: BTreeMap<String, Variables>,
}

impl AxisDefinition {
    /// The values that `mode` visits.
    pub(crate) fn values(&self, mode: Mode) -> &[String] {
        match mode {
            Mode::Full => &self.full,
            Mode::Quick => &self.quick,
        }
    }

    /// The variables that are set by `value`: itself or its meaning, then the further ones.
    pub(crate) fn variables<'a>(
        &'a self,
        value: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a str)> {
        let meaning = self.means.get(value).map_or(value, String::as_str);
        let further = self.sets.get(value).into_iter().flatten();
        let further = further.map(|(key, text)| (key, text.as_str()));
        std::iter::once((&self.key, meaning)).chain(further)
    }

    fn check(&self, file: &str, axis: &str) -> Result<(), LabError> {
        let ensure = |ok: bool, what: String| check(file, axis, ok, what);
        let some = !self.full.is_empty() && !self.quick.is_empty();
        ensure(some, "'full' and 'quick' need values".to_owned())?;
        for (index, value) in self.full.iter().enumerate() {
            let first = !self.full[..index].contains(value);
            ensure(first, format!("'{value}' twice"))?;
        }
        let meant = self.means.keys().chain(self.sets.keys());
        for value in self.quick.iter().chain(meant) {
            let known = self.full.contains(value);
            ensure(known, format!("'{value}' is not among 'full'"))?;
        }
        Ok(())
    }
}

/// A further measure of the same runs. It becomes a table and figures of its own.
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
    /// As it is kept with the results.
    pub(crate) fn shown(&self) -> FurtherMeasure {
        FurtherMeasure {
            key: self.measure.clone(),
            label: self.label.clone(),
            unit: self.unit.clone(),
            higher_is_better: self.higher_is_better,
        }
    }
}

/// One measure divided by another one of the same run, or by a number that the run was made with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RatioDefinition {
    /// Measure above the line.
    pub(crate) of: String,
    /// Measure below it, or a text with holes (`{rtt}`).
    pub(crate) to: String,
}

/// A program with settings that only this variant of it has. It takes part under its own key.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariantDefinition {
    /// Key of the program.
    pub(crate) program: String,
    pub(crate) label: String,
    /// Variables, which may refer to the point and win over the experiment's parameters.
    #[serde(default)]
    pub(crate) sets: Variables,
    /// The only values at which it takes part, beside the program's own.
    #[serde(default)]
    pub(crate) only: OnlyAt,
    /// Repetitions in a quick run, in place of the experiment's.
    #[serde(default)]
    pub(crate) quick_repetitions: Option<u32>,
    /// The largest file that it moves in a quick run, where others move a larger one.
    #[serde(default)]
    pub(crate) quick_largest: Option<String>,
    /// Mbit/s that it is expected to reach, from which the length of a run is guessed.
    #[serde(default)]
    pub(crate) expects: Option<f64>,
    /// How many times the baseline's value was published for it.
    #[serde(default)]
    pub(crate) published_ratio: Option<f64>,
    /// Measure → published numbers over `across.full` (`nan`: none at that value).
    #[serde(default)]
    paper: BTreeMap<String, Vec<f64>>,
}

impl VariantDefinition {
    /// Note on it for the reader of the results of a quick run.
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

/// Programs or variants of which the best one counts, at each point another one perhaps: what somebody
/// finds who tries them all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BestDefinition {
    /// `best globus-url-copy`.
    pub(crate) label: String,
    /// Keys of programs or variants.
    pub(crate) of: Vec<String>,
}

/// Its key → its definition.
pub(crate) type BestOfSeveral = BTreeMap<String, BestDefinition>;

/// An experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExperimentDefinition {
    pub(crate) title: String,
    /// The published result; empty: nothing published.
    #[serde(default)]
    pub(crate) source: String,
    /// What the values in `paper` are called.
    #[serde(default = "published")]
    pub(crate) reference: String,
    pub(crate) kind: ExperimentKind,
    /// `goodput`, `cpu_per_gigabyte`, `seconds`, `wall`, one of `ratios`, or a reading of its programs; in
    /// the simulator a [`SimMeasure`].
    pub(crate) measure: String,
    pub(crate) unit: String,
    #[serde(default = "yes")]
    pub(crate) higher_is_better: bool,
    /// Further measures of the same runs.
    #[serde(default)]
    pub(crate) also: Vec<MeasureDefinition>,
    /// Measures that are made of two others.
    #[serde(default)]
    pub(crate) ratios: BTreeMap<String, RatioDefinition>,
    /// Fields kept over time from the clients' traces.
    #[serde(default)]
    pub(crate) series: Vec<SeriesDefinition>,
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, VariantDefinition>,
    #[serde(default)]
    pub(crate) best: BestOfSeveral,
    /// Key of the program, variant or best that others are compared with.
    #[serde(default)]
    pub(crate) baseline: Option<String>,
    /// The seed of all random events.
    #[serde(default = "one")]
    pub(crate) seed: u64,
    /// Remarks for the reader of the results.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Keys of the programs and variants, in the order they are shown.
    pub(crate) programs: ByMode<Vec<String>>,
    /// Runs of each program at each point.
    pub(crate) repetitions: ByMode<u32>,
    /// Size of the file that is moved (`256MiB`); none: no file is made.
    #[serde(default)]
    pub(crate) bytes: Option<ByMode<String>>,
    /// Seconds after which a client is ended and its run has failed.
    pub(crate) limit: ByMode<u32>,
    /// Variables that all points share.
    #[serde(default)]
    pub(crate) parameters: Variables,
    /// Files of every run in `{scratch}`: name → content with holes.
    #[serde(default)]
    pub(crate) files: Variables,
    /// The table's columns and the figure's x.
    pub(crate) across: AxisDefinition,
    /// The table's rows and the figure's lines.
    #[serde(default)]
    pub(crate) down: Option<AxisDefinition>,
    /// A topology file's content, texts with holes.
    #[serde(default)]
    pub(crate) network: Option<toml::Table>,
    /// Options of the simulator, texts with holes.
    #[serde(default)]
    pub(crate) simulation: Option<toml::Table>,
    /// Published numbers: for each value of `down` a row over `across.full`; without `down` the
    /// row is called `values`.
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

/// The row of published numbers when there is no `down` axis.
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

    /// The axes: `down` first, as rows are visited one after the other.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &AxisDefinition> {
        self.down.iter().chain([&self.across])
    }

    /// Keys of all programs and variants that may take part, some of them twice.
    pub(crate) fn all_programs(&self) -> impl Iterator<Item = &String> {
        self.programs.full.iter().chain(&self.programs.quick)
    }

    /// The key of the program that takes part as `key`: itself, or the program of this variant.
    pub(crate) fn program_of<'a>(&'a self, key: &'a str) -> &'a str {
        self.variants
            .get(key)
            .map_or(key, |variant| &variant.program)
    }

    /// The published value of a measure of a program or variant at a point: the variant's own, else what
    /// was published of the experiment's measure.
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

    /// Every measure: the experiment's first, then the further ones.
    fn measures(&self) -> Vec<&str> {
        let also = self.also.iter().map(|also| also.measure.as_str());
        std::iter::once(self.measure.as_str()).chain(also).collect()
    }

    fn check(&self, file: &str) -> Result<(), LabError> {
        self.across.check(file, "across")?;
        if let Some(down) = &self.down {
            down.check(file, "down")?;
            let differs = down.key != self.across.key;
            check(file, "down.key", differs, "the same as 'across.key'")?;
        }
        for mode in [Mode::Full, Mode::Quick] {
            let key = |what: &str| format!("{what}.{}", mode.name());
            let programs = !self.programs.of(mode).is_empty();
            check(file, &key("programs"), programs, "name at least one")?;
            let repetitions = *self.repetitions.of(mode) > 0;
            check(
                file,
                &key("repetitions"),
                repetitions,
                "must be more than 0",
            )?;
            let limit = *self.limit.of(mode) > 0;
            check(file, &key("limit"), limit, "must be more than 0")?;
            let size = self.bytes.as_ref().map(|bytes| units::size(bytes.of(mode)));
            size.transpose()
                .map_err(|e| mistake(file, &key("bytes"), e))?;
        }
        let network = self.network.is_some() == (self.kind == ExperimentKind::Net);
        check(
            file,
            "network",
            network,
            "is for kind 'net', which needs it",
        )?;
        let simulation = self.simulation.is_some() == (self.kind == ExperimentKind::Sim);
        check(
            file,
            "simulation",
            simulation,
            "is for kind 'sim', which needs it",
        )?;
        self.check_measures(file)?;
        self.check_variants(file)?;
        let takes_part = |key: &String| self.all_programs().any(|known| known == key);
        for (key, best) in &self.best {
            let at = format!("best.{key}");
            check(file, &at, !takes_part(key), "is the key of a program")?;
            check(file, &at, !best.of.is_empty(), "name at least one program")?;
            for of in &best.of {
                check(file, &at, takes_part(of), format!("'{of}' takes no part"))?;
            }
        }
        if let Some(key) = &self.baseline {
            let known = takes_part(key) || self.best.contains_key(key);
            check(file, "baseline", known, format!("'{key}' takes no part"))?;
        }
        for (index, series) in self.series.iter().enumerate() {
            let key = format!("series.{index}");
            check(
                file,
                &key,
                !series.lines.is_empty(),
                "name at least one field in 'lines'",
            )?;
            let known = series.programs.iter().all(takes_part);
            check(file, &key, known, "names a program that takes no part")?;
        }
        let rows: Vec<&String> = self.down.iter().flat_map(|down| &down.full).collect();
        for (row, values) in &self.paper {
            let known = rows.contains(&row) || rows.is_empty() && row == ONLY_ROW;
            let what = format!("is no value of 'down', or '{ONLY_ROW}' without it");
            check(file, &format!("paper.{row}"), known, what)?;
            self.check_row(file, &format!("paper.{row}"), values)?;
        }
        Ok(())
    }

    fn check_row(&self, file: &str, key: &str, values: &[f64]) -> Result<(), LabError> {
        let (have, want) = (values.len(), self.across.full.len());
        let what = format!("{have} numbers for the {want} values of 'across.full'");
        check(file, key, have == want, what)
    }

    fn check_measures(&self, file: &str) -> Result<(), LabError> {
        let also = self.also.iter().map(|also| (&also.measure, &also.unit));
        let all = std::iter::once((&self.measure, &self.unit)).chain(also);
        let mut seen: Vec<&String> = Vec::new();
        for (measure, unit) in all {
            check(
                file,
                "measure",
                !seen.contains(&measure),
                format!("'{measure}' twice"),
            )?;
            seen.push(measure);
            let known = match self.kind {
                ExperimentKind::Sim => Some(simulated(file, measure)?.unit),
                _ => built_in_unit(measure),
            };
            let known = known.unwrap_or(unit);
            let what = format!("'{measure}' is measured in {known}");
            check(file, "unit", known == unit, what)?;
        }
        for (name, ratio) in &self.ratios {
            // One level deep, so that no ratio is made of itself.
            let nested = [&ratio.of, &ratio.to]
                .iter()
                .any(|part| self.ratios.contains_key(*part));
            let simple = !nested && built_in_unit(name).is_none();
            let what = "is the name of another measure, or made of a ratio";
            check(file, &format!("ratios.{name}"), simple, what)?;
        }
        Ok(())
    }

    fn check_variants(&self, file: &str) -> Result<(), LabError> {
        for (name, variant) in &self.variants {
            let key = |what: &str| format!("variants.{name}.{what}");
            let some = variant.quick_repetitions != Some(0);
            check(file, &key("quick_repetitions"), some, "must be more than 0")?;
            let largest = variant
                .quick_largest
                .as_deref()
                .map(units::size)
                .transpose();
            largest.map_err(|e| mistake(file, &key("quick_largest"), e))?;
            let compared = variant.published_ratio.is_none() || self.baseline.is_some();
            check(
                file,
                &key("published_ratio"),
                compared,
                "needs a 'baseline'",
            )?;
            for (axis, values) in &variant.only {
                let known = self.axes().find(|known| known.key == *axis);
                let known =
                    known.is_some_and(|known| values.iter().all(|v| known.full.contains(v)));
                let what = format!("names a value that is not on an axis '{axis}'");
                check(file, &key("only"), known, what)?;
            }
            for (measure, row) in &variant.paper {
                let key = key(&format!("paper.{measure}"));
                let known = self.measures().contains(&measure.as_str());
                check(
                    file,
                    &key,
                    known && self.down.is_none(),
                    "is not measured in one row",
                )?;
                self.check_row(file, &key, row)?;
            }
        }
        Ok(())
    }
}

/// Refuses a file in which `ok` does not hold for `key`.
pub(crate) fn check(file: &str, key: &str, ok: bool, what: impl Display) -> Result<(), LabError> {
    match ok {
        true => Ok(()),
        false => Err(mistake(file, key, what)),
    }
}

/// A measure of the simulator.
fn simulated(file: &str, name: &str) -> Result<SimMeasure, LabError> {
    SimMeasure::named(name).ok_or_else(|| {
        let names = SimMeasure::ALL.map(|measure| measure.name).join(", ");
        mistake(file, "measure", format!("the simulator has {names}"))
    })
}

/// The unit of a measure that needs no reading.
pub(crate) fn built_in_unit(measure: &str) -> Option<&'static str> {
    match measure {
        "goodput" => Some("Mbit/s"),
        "cpu_per_gigabyte" => Some("s/GB"),
        "seconds" => Some("s"),
        "wall" => Some("ms"),
        _ => None,
    }
}

/// Whether a measure is larger for larger files: values of files of different sizes cannot be compared.
pub(crate) fn grows_with_file(measure: &str) -> bool {
    ["seconds", "wall", "retransmits"].contains(&measure)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"
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

    #[test]
    fn each_mistake_names_its_line_or_key() {
        for (from, to, named) in [
            ("kind = \"net\"", "kind = \"nut\"", "x.toml:3: "),
            ("kind = \"net\"", "kind = \"sim\"", "'network'"),
            ("kind = \"net\"", "kind = \"net\"\nnutwork = 1", "`nutwork`"),
            ("unit = \"Mbit/s\"", "unit = \"ms\"", "'unit'"),
            ("quick = [\"y\"]", "quick = []", "'programs.quick'"),
            ("full = 5", "full = 0", "'repetitions.full'"),
            ("1GiB", "1 gig", "'bytes.full'"),
            ("quick = [\"1\", \"10\"]", "quick = [\"2\"]", "'across'"),
            ("\"5\", \"10\"]\nquick", "\"5\", \"5\"]\nquick", "'across'"),
            ("{ \"10\" =", "{ \"9\" =", "'across'"),
            ("[1, 2.5, 3]", "[1, 2.5]", "'paper.values'"),
            ("values = [", "row = [", "'paper.row'"),
            ("baseline = \"stock\"", "baseline = \"z\"", "'baseline'"),
            (
                "baseline = \"stock\"",
                "",
                "'variants.stock.published_ratio'",
            ),
            ("unit = \"s\"", "unit = \"min\"", "'unit'"),
            (
                "measure = \"seconds\"",
                "measure = \"goodput\"",
                "'measure'",
            ),
            (
                "of = \"goodput\"",
                "of = \"efficiency\"",
                "'ratios.efficiency'",
            ),
            ("efficiency =", "wall =", "'ratios.wall'"),
            ("1MiB", "1 meg", "'variants.stock.quick_largest'"),
            ("[3, nan, 1]", "[3, 1]", "'variants.stock.paper.seconds'"),
            ("{ seconds =", "{ rtt =", "'variants.stock.paper.rtt'"),
            (
                "latency = [\"1\"]",
                "latency = [\"7\"]",
                "'variants.stock.only'",
            ),
            ("{ w = \"window\" }", "{}", "'series.0'"),
            ("[best.any]", "[best.y]", "'best.y'"),
            (
                "of = [\"stock\", \"y\"]",
                "of = [\"z\"]",
                "'z' takes no part",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let message = ExperimentDefinition::parse("x.toml", &text)
                .unwrap_err()
                .to_string();
            assert!(message.contains(named), "{from} -> {to}: {message}");
            assert!(
                message.starts_with("x.toml") && !message.contains('\n'),
                "{message}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,200}") {
            let _ = ExperimentDefinition::parse("x.toml", &text);
        }
    }
}
