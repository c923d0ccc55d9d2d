//! Values of the holes of an experiment's texts at a point of its sweep.

use super::Mode;
use super::axes::At;
use super::definition::Definition;
use super::document::mistake;
use super::template::{self, Variables};
use crate::LabError;

/// `given`, then the point's axes and what their values set, which may refer to it, then `own`, a
/// variant's settings, which may refer to all these, then the experiment's parameters, which may
/// refer to the point. What comes first stays, but for `given`.
///
/// # Errors
/// A hole that nothing fills.
pub(crate) fn at(
    name: &str,
    definition: &Definition,
    at: &At,
    given: Variables,
    own: &Variables,
) -> Result<Variables, LabError> {
    let variables = of_axes(name, definition, at, given)?;
    let mut all = variables.clone();
    let expanded = |table: &str, key: &str, text: &str| {
        template::expand(text, &variables).map_err(|e| mistake(name, &format!("{table}.{key}"), e))
    };
    for (key, text) in own {
        all.insert(key.clone(), expanded("variants.sets", key, text)?);
    }
    for (key, text) in &definition.parameters {
        let text = expanded("parameters", key, text)?;
        all.entry(key.clone()).or_insert(text);
    }
    Ok(all)
}

/// `given`, then the point's axes and what their values set.
fn of_axes(
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
        for (key, text) in axis.sets.get(value).into_iter().flatten() {
            let text = template::expand(text, &variables)
                .map_err(|e| mistake(name, &format!("sets.{value}.{key}"), e))?;
            variables.insert(key.clone(), text);
        }
    }
    Ok(variables)
}

/// Values of the axes of a point as they are written, with nothing filled in.
pub(crate) fn of_point(definition: &Definition, at: &At) -> Variables {
    let mut known = Variables::new();
    for axis in definition.axes() {
        let value = at.get(&axis.key).map_or("", String::as_str);
        known.insert(axis.key.clone(), axis.meaning(value).to_owned());
        known.extend(axis.sets.get(value).cloned().unwrap_or_default());
    }
    known
}

/// Size of the file that is moved at a point: an axis's, else the experiment's. `None`: no file, or
/// it depends on what is known only when a run is prepared.
pub(crate) fn bytes(definition: &Definition, mode: Mode, at: &At) -> Option<u64> {
    let known = of_point(definition, at);
    let size = known.get("bytes").map(String::as_str);
    let size = size.or_else(|| definition.bytes(mode))?;
    let size = template::expand(size, &known).ok()?;
    units::size(&size).ok()
}
