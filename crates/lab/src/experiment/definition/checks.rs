//! Checks of an experiment file that need more than one of its keys.

use super::{AxisDefinition, ExperimentDefinition, ExperimentKind, Mode, ONLY_ROW};
use super::{built_in_unit, key_error, require};
use crate::LabError;
use crate::simulate::SimMeasure;

impl AxisDefinition {
    /// Checks that the values differ and that all other keys refer to them.
    fn check(&self, file: &str, axis: &str) -> Result<(), LabError> {
        let ensure = |ok: bool, what: String| require(file, axis, ok, what);
        let has_values = !self.full.is_empty() && !self.quick.is_empty();
        ensure(has_values, "'full' and 'quick' need values".to_owned())?;
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

impl ExperimentDefinition {
    /// Checks the whole file. The error names the key.
    pub(super) fn check(&self, file: &str) -> Result<(), LabError> {
        let must = |ok: bool, key: &str, what: &str| require(file, key, ok, what);
        self.across.check(file, "across")?;
        if let Some(down) = &self.down {
            down.check(file, "down")?;
            let differs = down.key != self.across.key;
            must(differs, "down.key", "the same as 'across.key'")?;
        }
        for mode in [Mode::Full, Mode::Quick] {
            let key = |what: &str| format!("{what}.{}", mode.name());
            let has_programs = !self.programs.for_mode(mode).is_empty();
            must(has_programs, &key("programs"), "name at least one")?;
            let is_positive = *self.repetitions.for_mode(mode) > 0;
            must(is_positive, &key("repetitions"), "must be more than 0")?;
            let is_positive = *self.limit.for_mode(mode) > 0;
            must(is_positive, &key("limit"), "must be more than 0")?;
            let size = self
                .bytes
                .as_ref()
                .map(|bytes| units::size(bytes.for_mode(mode)));
            let size = size.transpose();
            size.map_err(|e| key_error(file, &key("bytes"), e))?;
        }
        for (name, tree) in &self.trees {
            tree.check()
                .map_err(|what| key_error(file, &format!("trees.{name}"), what))?;
        }
        let fits = self.network.is_some() == (self.kind == ExperimentKind::Net);
        must(fits, "network", "is for kind 'net', which needs it")?;
        let fits = self.simulation.is_some() == (self.kind == ExperimentKind::Sim);
        must(fits, "simulation", "is for kind 'sim', which needs it")?;
        self.check_measures(file)?;
        self.check_variants(file)?;
        self.check_participants(file)?;
        let rows: Vec<&String> = self.down.iter().flat_map(|down| &down.full).collect();
        for (row, values) in &self.paper {
            let key = format!("paper.{row}");
            let known = rows.contains(&row) || rows.is_empty() && row == ONLY_ROW;
            must(known, &key, "is no value of 'down', or 'values' without it")?;
            self.check_row(file, &key, values)?;
        }
        Ok(())
    }

    /// Checks that `best`, `baseline` and `series` name programs that take part.
    fn check_participants(&self, file: &str) -> Result<(), LabError> {
        let must = |ok: bool, key: &str, what: &str| require(file, key, ok, what);
        let takes_part = |key: &String| self.all_programs().any(|known| known == key);
        for (key, best) in &self.best {
            let at = format!("best.{key}");
            must(!takes_part(key), &at, "is the key of a program")?;
            must(!best.of.is_empty(), &at, "name at least one program")?;
            for of in &best.of {
                must(takes_part(of), &at, &format!("'{of}' takes no part"))?;
            }
        }
        if let Some(key) = &self.baseline {
            let known = takes_part(key) || self.best.contains_key(key);
            must(known, "baseline", &format!("'{key}' takes no part"))?;
        }
        for (index, series) in self.series.iter().enumerate() {
            let key = format!("series.{index}");
            must(!series.lines.is_empty(), &key, "'lines' has no field")?;
            let known = series.programs.iter().all(takes_part);
            must(known, &key, "names a program that takes no part")?;
        }
        Ok(())
    }

    /// Checks that a row of published numbers has one for each value of `across.full`.
    fn check_row(&self, file: &str, key: &str, values: &[f64]) -> Result<(), LabError> {
        let (count, expected) = (values.len(), self.across.full.len());
        let what = format!("{count} numbers for the {expected} values of 'across.full'");
        require(file, key, count == expected, what)
    }

    /// Checks names and units of the measures, and that ratios are made of other measures.
    fn check_measures(&self, file: &str) -> Result<(), LabError> {
        let must = |ok: bool, key: &str, what: &str| require(file, key, ok, what);
        let also = self.also.iter().map(|also| (&also.measure, &also.unit));
        let all = std::iter::once((&self.measure, &self.unit)).chain(also);
        let mut seen: Vec<&String> = Vec::new();
        for (measure, unit) in all {
            let first = !seen.contains(&measure);
            must(first, "measure", &format!("'{measure}' twice"))?;
            seen.push(measure);
            let known = match self.kind {
                ExperimentKind::Sim => Some(simulator_measure(file, measure)?.unit),
                _ => built_in_unit(measure),
            };
            let known = known.unwrap_or(unit);
            let what = format!("'{measure}' is measured in {known}");
            must(known == unit, "unit", &what)?;
        }
        for (name, ratio) in &self.ratios {
            let key = format!("ratios.{name}");
            let is_free = built_in_unit(name).is_none();
            must(is_free, &key, "is the name of another measure")?;
            // Ratios of ratios are refused, so that no ratio can depend on itself.
            let is_ratio = |part: &String| self.ratios.contains_key(part);
            let nested = is_ratio(&ratio.of) || is_ratio(&ratio.to);
            must(!nested, &key, "is made of a ratio")?;
        }
        Ok(())
    }

    /// Checks the keys of the variants.
    fn check_variants(&self, file: &str) -> Result<(), LabError> {
        let must = |ok: bool, key: &str, what: &str| require(file, key, ok, what);
        for (name, variant) in &self.variants {
            let key = |what: &str| format!("variants.{name}.{what}");
            let is_positive = variant.quick_repetitions != Some(0);
            must(
                is_positive,
                &key("quick_repetitions"),
                "must be more than 0",
            )?;
            let largest = variant.quick_largest.as_deref().map(units::size);
            let largest = largest.transpose();
            largest.map_err(|e| key_error(file, &key("quick_largest"), e))?;
            let compared = variant.published_ratio.is_none() || self.baseline.is_some();
            must(compared, &key("published_ratio"), "needs a 'baseline'")?;
            for (axis, values) in &variant.only {
                let full = self.axes().find(|known| known.key == *axis);
                let full = full.map_or(&[][..], |axis| &axis.full);
                let known = values.iter().all(|value| full.contains(value));
                must(known, &key("only"), "names a value that no axis has")?;
            }
            for (measure, row) in &variant.paper {
                let key = key(&format!("paper.{measure}"));
                let known = self.measures().contains(&measure.as_str());
                must(known, &key, "is not measured")?;
                must(self.down.is_none(), &key, "belongs in 'paper'")?;
                self.check_row(file, &key, row)?;
            }
        }
        Ok(())
    }

    /// Returns all measures: the main one first, then the further ones.
    fn measures(&self) -> Vec<&str> {
        let also = self.also.iter().map(|also| also.measure.as_str());
        std::iter::once(self.measure.as_str()).chain(also).collect()
    }
}

/// Looks up a measure of the simulator by its name.
fn simulator_measure(file: &str, name: &str) -> Result<SimMeasure, LabError> {
    SimMeasure::named(name).ok_or_else(|| {
        let names = SimMeasure::ALL.map(|measure| measure.name).join(", ");
        key_error(file, "measure", format!("the simulator has {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::GOOD;
    use super::*;

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
            ("full = 2, quick = 1", "full = 0, quick = 1", "'trees.t'"),
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
}
