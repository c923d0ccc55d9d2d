//! Targets: what the results of shipped experiments are asked to show.

use serde::Deserialize;

use super::{OnlyAt, catalog, parse, require};
use crate::LabError;

/// The shipped file.
const FILE: &str = "targets.toml";
const SHIPPED: &str = include_str!("../../../targets.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsFile {
    targets: Vec<ResultTarget>,
}

/// A demand on one program of an experiment, at each of its points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ResultTarget {
    /// For people, with the unit of absolute values; Markdown.
    pub(crate) says: String,
    pub(crate) experiment: String,
    /// The key of a program.
    pub(crate) program: String,
    /// The key of a further measure; none: the main one.
    pub(crate) measure: Option<String>,
    /// The key of the program by whose value the program's is divided, or [`REFERENCE`](Self::REFERENCE); none: the
    /// value itself is judged.
    pub(crate) to: Option<String>,
    /// The only points that count.
    #[serde(default)]
    pub(crate) at: OnlyAt,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
}

impl ResultTarget {
    /// In [`to`](Self::to), the experiment's reference values, most of them published ones.
    pub(crate) const REFERENCE: &str = "reference";

    /// Checks that everything that is named exists in the experiment, and that something is asked.
    fn check(&self) -> Result<(), LabError> {
        let definition = catalog::load_experiment(&self.experiment)?.definition;
        let must = |ok: bool, key: &str, what: &str| {
            require(
                FILE,
                key,
                ok,
                format!("{what} in a target of '{}'", self.experiment),
            )
        };
        let takes_part = |key: &String| {
            let mut programs = definition.all_programs();
            programs.any(|known| known == key) || definition.best.contains_key(key)
        };
        must(takes_part(&self.program), "program", "takes no part")?;
        let other = self.to.as_ref().filter(|key| *key != Self::REFERENCE);
        let is_other = |key: &String| takes_part(key) && *key != self.program;
        must(other.is_none_or(is_other), "to", "is no other program")?;
        let mut further = definition.also.iter().map(|also| also.measure.as_str());
        let is_further = |key: &String| further.any(|known| known == key);
        let known = self.measure.as_ref().is_none_or(is_further);
        must(known, "measure", "is not measured")?;
        for (key, values) in &self.at {
            let axis = definition.axes().find(|axis| axis.key == *key);
            let full = axis.map_or(&[][..], |axis| &axis.full);
            let known = !values.is_empty() && values.iter().all(|value| full.contains(value));
            must(known, "at", "names a value that no axis has")?;
        }
        let mut limits = self.at_least.iter().chain(&self.at_most).peekable();
        must(
            limits.peek().is_some(),
            "at-least",
            "or 'at-most' is missing",
        )?;
        must(
            limits.all(|limit| limit.is_finite()),
            "at-least",
            "is no number",
        )
    }
}

/// Reads the targets of the shipped experiments.
///
/// # Errors
/// [`LabError::Usage`] for a mistake in the file.
pub(crate) fn shipped_targets() -> Result<Vec<ResultTarget>, LabError> {
    parse_targets(SHIPPED)
}

fn parse_targets(text: &str) -> Result<Vec<ResultTarget>, LabError> {
    let targets = parse::<TargetsFile>(FILE, text)?.targets;
    targets.iter().try_for_each(ResultTarget::check)?;
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[targets]]
says = "short files"
experiment = "auto-start"
program = "no-flags"
measure = "round_trips"
to = "globus-best"
at = { path = ["8MB-200ms"] }
at-least = 1.0
"#;

    #[test]
    fn the_shipped_targets_name_what_exists() {
        assert!(shipped_targets().unwrap().len() > 20);
    }

    #[test]
    fn each_mistake_names_its_key() {
        assert_eq!(parse_targets(GOOD).unwrap().len(), 1);
        for (from, to, named) in [
            ("\"auto-start\"", "\"auto-stop\"", "'auto-stop'"),
            ("\"no-flags\"", "\"flags\"", "'program'"),
            ("\"globus-best\"", "\"best\"", "'to'"),
            ("\"globus-best\"", "\"no-flags\"", "'to'"),
            ("\"round_trips\"", "\"of\"", "'measure'"),
            ("[\"8MB-200ms\"]", "[\"2\"]", "'at'"),
            ("[\"8MB-200ms\"]", "[]", "'at'"),
            ("path =", "delay =", "'at'"),
            ("at-least = 1.0", "at-least = inf", "'at-least'"),
            ("at-least = 1.0", "", "'at-least'"),
            ("at-least", "least", "targets.toml:9: "),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let message = parse_targets(&GOOD.replacen(from, to, 1)).unwrap_err();
            let message = message.to_string();
            assert!(message.contains(named), "{from} -> {to}: {message}");
        }
    }
}
