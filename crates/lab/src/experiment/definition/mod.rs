//! An experiment as its file says it. `docs/experiments.md` describes the keys.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Mode;
use super::axes::{AxisDefinition, ByMode, Kind};
use super::best::{self, Bests};
use super::document::{self, mistake};
use super::measures::{self, AlsoDefinition, Ratios, built_in_unit};
use super::results::PUBLISHED;
use super::series::SeriesDefinition;
use super::template::Variables;
use super::variant::VariantDefinition;
use crate::LabError;
use crate::simulate::Measure;

fn published() -> String {
    PUBLISHED.to_owned()
}

/// An experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// One line for people.
    pub(crate) title: String,
    /// The published result; empty: nothing published.
    #[serde(default)]
    pub(crate) source: String,
    /// The source of the values in `paper`: published ones unless said.
    #[serde(default = "published")]
    pub(crate) reference: String,
    /// Where it runs.
    pub(crate) kind: Kind,
    /// The measure: `goodput`, `cpu_per_gigabyte`, `seconds`, `wall`, one of `ratios`, or a
    /// reading of its programs; in the simulator a [`Measure`].
    pub(crate) measure: String,
    /// Unit of the measured value.
    pub(crate) unit: String,
    /// Larger values are better.
    #[serde(default = "yes")]
    pub(crate) higher_is_better: bool,
    /// Further measures of the same runs.
    #[serde(default)]
    pub(crate) also: Vec<AlsoDefinition>,
    /// Measures that are made of two others.
    #[serde(default)]
    pub(crate) ratios: Ratios,
    /// Fields kept over time from the clients' traces.
    #[serde(default)]
    pub(crate) series: Vec<SeriesDefinition>,
    /// Programs that take part several times, with settings of their own.
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, VariantDefinition>,
    /// The best of several programs or variants, to be compared with.
    #[serde(default)]
    pub(crate) best: Bests,
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
    /// Size of the file that is moved, bytes (`256MiB`); none: no file is made.
    #[serde(default)]
    pub(crate) bytes: Option<ByMode<String>>,
    /// Seconds after which a client is ended and its run has failed.
    pub(crate) limit: ByMode<u32>,
    /// Variables that all points share.
    #[serde(default)]
    pub(crate) parameters: Variables,
    /// The table's columns and the figure's x.
    pub(crate) across: AxisDefinition,
    /// The table's rows and the figure's lines.
    #[serde(default)]
    pub(crate) down: Option<AxisDefinition>,
    /// A topology file's content, texts with holes.
    #[serde(default)]
    pub(crate) network: Option<toml::Table>,
    /// Request for the simulator, texts with holes.
    #[serde(default)]
    pub(crate) simulation: Option<toml::Table>,
    /// Published numbers: for each value of `down` a row over `across.full`; without `down` the
    /// row is called `values`.
    #[serde(default)]
    pub(crate) paper: BTreeMap<String, Vec<f64>>,
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

/// The row of published numbers when there is no `down` axis.
const ONLY_ROW: &str = "values";

impl Definition {
    /// Reads and checks an experiment's file.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the file and the line or key.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let definition: Self = document::parse(file, text)?;
        definition.check(file)?;
        Ok(definition)
    }

    /// The axes: `down` first, as rows are visited one after the other.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &AxisDefinition> {
        self.down.iter().chain([&self.across])
    }

    /// The published value of a measure of a program or variant at a point of the sweep: the
    /// variant's own, else what was published of the experiment's measure whoever was measured.
    pub(crate) fn published(
        &self,
        key: &str,
        measure: &str,
        at: &BTreeMap<String, String>,
    ) -> Option<f64> {
        let value = at.get(&self.across.key)?;
        let column = self.across.full.iter().position(|v| v == value)?;
        let own = self.variants.get(key).and_then(|v| v.paper.get(measure));
        let row = match (own, &self.down) {
            (Some(own), _) => Some(own),
            (None, _) if measure != self.measure => None,
            (None, Some(down)) => self.paper.get(at.get(&down.key)?),
            (None, None) => self.paper.get(ONLY_ROW),
        };
        let value = row?.get(column).copied();
        value.filter(|number| number.is_finite())
    }

    /// Every measure: the experiment's first, then the further ones.
    pub(crate) fn measures(&self) -> impl Iterator<Item = &str> {
        let also = self.also.iter().map(|also| also.measure.as_str());
        std::iter::once(self.measure.as_str()).chain(also)
    }

    /// Size of the moved file as written; an axis with the key `bytes` sweeps it instead.
    pub(crate) fn bytes(&self, mode: Mode) -> Option<&str> {
        self.bytes.as_ref().map(|bytes| bytes.of(mode).as_str())
    }

    fn check(&self, file: &str) -> Result<(), LabError> {
        self.across.check(file, "across")?;
        if let Some(down) = &self.down {
            down.check(file, "down")?;
            if down.key == self.across.key {
                return Err(mistake(file, "down.key", "the same as 'across.key'"));
            }
        }
        self.check_counts(file)?;
        self.check_kind(file)?;
        self.check_unit(file)?;
        measures::check(&self.measure, &self.also, &self.ratios, file)?;
        let entrants = self.programs.full.iter().chain(&self.programs.quick);
        let entrants: Vec<&str> = entrants.map(String::as_str).collect();
        let measures: Vec<&str> = self.measures().collect();
        best::check(&self.best, &entrants, &measures, file)?;
        self.check_variants(file)?;
        self.check_paper(file)
    }

    fn check_variants(&self, file: &str) -> Result<(), LabError> {
        let columns = self.down.is_none().then_some(self.across.full.len());
        let measures: Vec<&str> = self.measures().collect();
        for (key, variant) in &self.variants {
            variant.check(file, key, columns, &measures)?;
            self.check_only(file, key, variant)?;
            if variant.published_ratio.is_some() && self.baseline.is_none() {
                let key = format!("variants.{key}.published_ratio");
                return Err(mistake(file, &key, "needs a 'baseline'"));
            }
        }
        let programs: Vec<&String> = self
            .programs
            .full
            .iter()
            .chain(&self.programs.quick)
            .collect();
        for (index, series) in self.series.iter().enumerate() {
            series.check(file, index, &programs)?;
        }
        match &self.baseline {
            Some(odd) if !programs.contains(&odd) && !self.best.contains_key(odd) => {
                Err(mistake(file, "baseline", format!("'{odd}' takes no part")))
            }
            _ => Ok(()),
        }
    }

    /// A variant takes part only at values that there are.
    fn check_only(
        &self,
        file: &str,
        key: &str,
        variant: &VariantDefinition,
    ) -> Result<(), LabError> {
        for (axis, values) in &variant.only {
            let known = self.axes().find(|known| known.key == *axis);
            let odd = |value: &&String| known.is_none_or(|known| !known.full.contains(value));
            if let Some(odd) = values.iter().find(odd) {
                let what = format!("there is no '{odd}' on an axis '{axis}'");
                return Err(mistake(file, &format!("variants.{key}.only"), what));
            }
        }
        Ok(())
    }

    fn check_counts(&self, file: &str) -> Result<(), LabError> {
        for (mode, key) in [(Mode::Full, "full"), (Mode::Quick, "quick")] {
            if self.programs.of(mode).is_empty() {
                return Err(mistake(
                    file,
                    &format!("programs.{key}"),
                    "name at least one",
                ));
            }
            for (name, count) in [("repetitions", &self.repetitions), ("limit", &self.limit)] {
                if *count.of(mode) == 0 {
                    return Err(mistake(
                        file,
                        &format!("{name}.{key}"),
                        "must be more than 0",
                    ));
                }
            }
            if let Some(Err(what)) = self.bytes(mode).map(units::size) {
                return Err(mistake(file, &format!("bytes.{key}"), what));
            }
        }
        Ok(())
    }

    fn check_kind(&self, file: &str) -> Result<(), LabError> {
        let tables = [
            ("network", self.network.is_some(), Kind::Net),
            ("simulation", self.simulation.is_some(), Kind::Sim),
        ];
        for (key, present, kind) in tables {
            if present != (self.kind == kind) {
                let what = if present {
                    "does not fit this 'kind'"
                } else {
                    "is needed for this 'kind'"
                };
                return Err(mistake(file, key, what));
            }
        }
        Ok(())
    }

    fn check_unit(&self, file: &str) -> Result<(), LabError> {
        let unit = if self.kind == Kind::Sim {
            for (index, also) in self.also.iter().enumerate() {
                let measure = simulated(file, "also.measure", &also.measure)?;
                if measure.unit() != also.unit {
                    let what = format!("'{}' is measured in {}", also.measure, measure.unit());
                    return Err(mistake(file, &format!("also.{index}.unit"), what));
                }
            }
            Some(simulated(file, "measure", &self.measure)?.unit())
        } else {
            built_in_unit(&self.measure)
        };
        match unit {
            Some(unit) if unit != self.unit => {
                let what = format!("'{}' is measured in {unit}", self.measure);
                Err(mistake(file, "unit", what))
            }
            _ => Ok(()),
        }
    }

    fn check_paper(&self, file: &str) -> Result<(), LabError> {
        for (row, values) in &self.paper {
            let known = match &self.down {
                Some(down) => down.full.contains(row),
                None => row == ONLY_ROW,
            };
            if !known {
                let rows = if self.down.is_some() {
                    "not a value of 'down.full'"
                } else {
                    "without a 'down' axis the row is called 'values'"
                };
                return Err(mistake(file, &format!("paper.{row}"), rows));
            }
            let (have, want) = (values.len(), self.across.full.len());
            if have != want {
                let what = format!("{have} numbers for the {want} values of 'across.full'");
                return Err(mistake(file, &format!("paper.{row}"), what));
            }
        }
        Ok(())
    }
}

/// A measure of the simulator.
fn simulated(file: &str, key: &str, name: &str) -> Result<Measure, LabError> {
    Measure::named(name).ok_or_else(|| {
        let names: Vec<&str> = Measure::ALL.into_iter().map(Measure::name).collect();
        let what = format!("the simulator has {}", names.join(", "));
        mistake(file, key, what)
    })
}

#[cfg(test)]
mod tests;
