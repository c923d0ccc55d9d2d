//! What the holes of an experiment's texts stand for at a point of its sweep.

use super::definition::Definition;
use super::document::mistake;
use super::plan::At;
use super::template::{self, Variables};
use crate::LabError;

/// `given`, then the point's axes, which may refer to it, then the experiment's parameters, which
/// may refer to both and replace neither.
///
/// # Errors
/// A hole that nothing fills.
pub(crate) fn at(
    name: &str,
    definition: &Definition,
    at: &At,
    given: Variables,
) -> Result<Variables, LabError> {
    let mut variables = given;
    for axis in definition.axes() {
        let value = at.get(&axis.key).map_or("", String::as_str);
        let meaning = template::expand(axis.meaning(value), &variables)
            .map_err(|e| mistake(name, &axis.key, e))?;
        variables.insert(axis.key.clone(), meaning);
    }
    let mut all = variables.clone();
    for (key, value) in &definition.parameters {
        let value = template::expand(value, &variables)
            .map_err(|e| mistake(name, &format!("parameters.{key}"), e))?;
        all.entry(key.clone()).or_insert(value);
    }
    Ok(all)
}
