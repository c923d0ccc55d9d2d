//! Measures beside the one that gives an experiment its name, and ratios of measures.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::mistake;
use super::results::FurtherMeasure;
use super::template::{self, Variables};
use crate::LabError;

/// A further measure of the same runs. It becomes a table and figures of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AlsoDefinition {
    /// As the measure that gives the experiment its name.
    pub(crate) measure: String,
    /// For people: `time`, `buffers of the receiver`.
    pub(crate) label: String,
    /// Unit of its values.
    pub(crate) unit: String,
    /// Larger values are better.
    #[serde(default = "yes")]
    pub(crate) higher_is_better: bool,
}

impl AlsoDefinition {
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RatioDefinition {
    /// Measure above the line.
    pub(crate) of: String,
    /// Measure below it, or a number of the point: a text with holes (`{rtt}`).
    pub(crate) to: String,
}

impl RatioDefinition {
    /// The number below the line, if it is no measure.
    pub(crate) fn number(&self, variables: &Variables) -> Option<f64> {
        let text = template::expand(&self.to, variables).ok()?;
        text.parse().ok()
    }

    /// Whether a number of the point stands below the line.
    pub(crate) fn is_to_number(&self) -> bool {
        self.to.contains('{')
    }
}

/// Measure → how it is made from others.
pub(crate) type Ratios = BTreeMap<String, RatioDefinition>;

/// Whether a measure is larger for larger files: values of files of different sizes cannot be held
/// against each other.
pub(crate) fn grows_with_file(measure: &str) -> bool {
    ["seconds", "wall", "retransmits"].contains(&measure)
}

fn yes() -> bool {
    true
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

/// Checks the further measures and the ratios of an experiment whose own measure is `measure`.
///
/// # Errors
/// [`LabError::Usage`] names the key.
pub(crate) fn check(
    measure: &str,
    further: &[AlsoDefinition],
    ratios: &Ratios,
    file: &str,
) -> Result<(), LabError> {
    let mut seen = vec![measure];
    for also in further {
        if seen.contains(&also.measure.as_str()) {
            let what = format!("'{}' twice", also.measure);
            return Err(mistake(file, "also.measure", what));
        }
        seen.push(&also.measure);
        if let Some(unit) = built_in_unit(&also.measure).filter(|unit| *unit != also.unit) {
            let what = format!("'{}' is measured in {unit}", also.measure);
            return Err(mistake(file, "also.unit", what));
        }
    }
    for (name, ratio) in ratios {
        let key = format!("ratios.{name}");
        if built_in_unit(name).is_some() {
            return Err(mistake(file, &key, "is the name of another measure"));
        }
        // One level deep, so that no ratio is made of itself.
        if let Some(odd) = [&ratio.of, &ratio.to]
            .into_iter()
            .find(|part| ratios.contains_key(*part))
        {
            return Err(mistake(file, &key, format!("'{odd}' is a ratio, too")));
        }
    }
    Ok(())
}
