//! Where something runs and over which values: what the files of experiments, programs and variants all speak of.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Mode;
use super::document::mistake;
use super::template::Variables;
use crate::LabError;

/// Where an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Over an emulated network.
    Net,
    /// Over this machine's loopback interface.
    Loopback,
    /// In the simulator.
    Sim,
}

/// A value for each [`ChunkTuningMode`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByMode<T> {
    /// For [`ChunkTuningMode::Full`].
    pub(crate) full: T,
    /// For [`ChunkTuningMode::Quick`].
    pub(crate) quick: T,
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AxisDefinition {
    /// The variable that it sets.
    pub(crate) key: String,
    /// For people.
    pub(crate) label: String,
    /// `ms`, `%`, or empty.
    #[serde(default)]
    pub(crate) unit: String,
    /// Every value, in order.
    pub(crate) full: Vec<String>,
    /// Those of them that a quick run visits.
    pub(crate) quick: Vec<String>,
    /// Draw it logarithmically.
    #[serde(default)]
    pub(crate) logarithmic: bool,
    /// Meanings of values in command lines and networks, where they are not themselves.
    #[serde(default)]
    pub(crate) means: BTreeMap<String, String>,
    /// Value → further variables that it sets.
    #[serde(default)]
    pub(crate) sets: BTreeMap<String, Variables>,
}

impl AxisDefinition {
    /// The values that `mode` visits.
    pub(crate) fn values(&self, mode: Mode) -> &[String] {
        match mode {
            Mode::Full => &self.full,
            Mode::Quick => &self.quick,
        }
    }

    /// Meaning of `value` in templates.
    pub(crate) fn meaning<'a>(&'a self, value: &'a str) -> &'a str {
        self.means.get(value).map_or(value, String::as_str)
    }

    /// Checks what it says by itself.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the key.
    pub(crate) fn check(&self, file: &str, axis: &str) -> Result<(), LabError> {
        if self.full.is_empty() || self.quick.is_empty() {
            return Err(mistake(file, axis, "'full' and 'quick' need values"));
        }
        for (i, value) in self.full.iter().enumerate() {
            if self.full[..i].contains(value) {
                return Err(mistake(
                    file,
                    &format!("{axis}.full"),
                    format!("'{value}' twice"),
                ));
            }
        }
        let unknown = |value: &&String| !self.full.contains(value);
        let named = self.quick.iter().chain(self.means.keys());
        if let Some(odd) = named.chain(self.sets.keys()).find(unknown) {
            let what = format!("'{odd}' is not among the values of '{axis}.full'");
            return Err(mistake(file, axis, what));
        }
        Ok(())
    }
}

/// Axis key → value, as written in the experiment.
pub(crate) type At = BTreeMap<String, String>;

/// Whether a point of the sweep is one of the `only` ones: axis → values.
pub(crate) fn within(only: &BTreeMap<String, Vec<String>>, at: &At) -> bool {
    only.iter()
        .all(|(axis, values)| at.get(axis).is_none_or(|value| values.contains(value)))
}
