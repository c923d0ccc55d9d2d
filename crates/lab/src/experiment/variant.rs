//! Variants: one program several times in an experiment, under other names and settings.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Mode;
use super::axes;
use super::document::mistake;
use super::template::Variables;
use crate::LabError;

/// A program with settings that only this variant of it has. It takes part under its own key.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariantDefinition {
    /// Key of the program.
    pub(crate) program: String,
    /// For people.
    pub(crate) label: String,
    /// Variables, which may refer to the point and win over the experiment's parameters.
    #[serde(default)]
    pub(crate) sets: Variables,
    /// Axis → the only values at which it takes part; so the program's own.
    #[serde(default)]
    pub(crate) only: BTreeMap<String, Vec<String>>,
    /// Repetitions in a quick run, in place of the experiment's.
    #[serde(default)]
    pub(crate) quick_repetitions: Option<u32>,
    /// The largest file it moves in a quick run: where others move a larger one, it moves this.
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
    pub(crate) paper: BTreeMap<String, Vec<f64>>,
}

impl VariantDefinition {
    /// Whether it takes part at a point of the sweep.
    pub(crate) fn runs_at(&self, at: &BTreeMap<String, String>) -> bool {
        axes::within(&self.only, at)
    }

    /// Repetitions in `mode`, if they are its own.
    pub(crate) fn repetitions(&self, mode: Mode) -> Option<u32> {
        self.quick_repetitions.filter(|_| mode == Mode::Quick)
    }

    /// The largest file in `mode`, bytes.
    pub(crate) fn largest(&self, mode: Mode) -> Option<u64> {
        let text = self
            .quick_largest
            .as_ref()
            .filter(|_| mode == Mode::Quick)?;
        units::size(text).ok()
    }

    /// Note on it for the reader of the results in `mode`.
    pub(crate) fn note(&self, mode: Mode) -> Option<String> {
        if mode == Mode::Full {
            return None;
        }
        let runs = self.quick_repetitions.map(|n| match n {
            1 => "has one run".to_owned(),
            n => format!("has {n} runs"),
        });
        let file = self
            .quick_largest
            .as_ref()
            .map(|size| format!("moves at most {size}, also where others move more"));
        let parts: Vec<String> = runs.into_iter().chain(file).collect();
        (!parts.is_empty()).then(|| {
            format!(
                "In a quick run '{}' {}: it is slow and steady.",
                self.label,
                parts.join(" and ")
            )
        })
    }

    /// Checks what it says by itself; `columns` is the length of a row of published numbers, if
    /// there may be rows, `measures` what is measured.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the key.
    pub(crate) fn check(
        &self,
        file: &str,
        key: &str,
        columns: Option<usize>,
        measures: &[&str],
    ) -> Result<(), LabError> {
        let at = |what: &str| format!("variants.{key}.{what}");
        if self.quick_repetitions == Some(0) {
            return Err(mistake(
                file,
                &at("quick_repetitions"),
                "must be more than 0",
            ));
        }
        if let Some(Err(what)) = self.quick_largest.as_deref().map(units::size) {
            return Err(mistake(file, &at("quick_largest"), what));
        }
        for (measure, row) in &self.paper {
            let name = at(&format!("paper.{measure}"));
            if !measures.contains(&measure.as_str()) {
                let what = format!("is not measured; there are {}", measures.join(", "));
                return Err(mistake(file, &name, what));
            }
            let want = columns.ok_or_else(|| {
                mistake(file, &name, "with a 'down' axis, numbers belong in 'paper'")
            })?;
            if row.len() != want {
                let what = format!(
                    "{} numbers for the {want} values of 'across.full'",
                    row.len()
                );
                return Err(mistake(file, &name, what));
            }
        }
        Ok(())
    }
}
