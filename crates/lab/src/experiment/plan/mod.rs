//! Which measurements an experiment consists of, and how long they will take.

use super::Mode;
use super::axes::{At, AxisDefinition, Kind};
use super::definition::Definition;
use super::program::ProgramDefinition;
use super::results::ComparedProgram;
use super::template::{self, Variables};
use super::variables;
use super::variant::VariantDefinition;
use crate::LabError;

/// A program that takes part.
#[derive(Debug, Clone)]
pub(crate) struct Entrant {
    /// Its key.
    pub(crate) key: String,
    /// Its file.
    pub(crate) program: ProgramDefinition,
    /// Where its executables are: variable → path.
    pub(crate) binaries: Variables,
    /// The difference from the program, if it is a variant of it.
    pub(crate) variant: Option<VariantDefinition>,
}

impl Entrant {
    /// The variables that only it has.
    pub(crate) fn sets(&self) -> &Variables {
        const NONE: &Variables = &Variables::new();
        self.variant.as_ref().map_or(NONE, |variant| &variant.sets)
    }

    /// Whether it takes part at a point of the sweep.
    pub(crate) fn runs_at(&self, at: &At) -> bool {
        let variant = self.variant.as_ref();
        self.program.runs_at(at) && variant.is_none_or(|variant| variant.runs_at(at))
    }

    /// As it is kept with the results.
    pub(crate) fn shown(&self) -> ComparedProgram {
        let variant = self.variant.as_ref();
        ComparedProgram {
            key: self.key.clone(),
            label: variant.map_or(&self.program.label, |v| &v.label).clone(),
            published_ratio: variant.and_then(|v| v.published_ratio),
        }
    }

    /// Repetitions in `mode`, if they are its own.
    pub(crate) fn repetitions(&self, mode: Mode) -> Option<u32> {
        self.variant.as_ref()?.repetitions(mode)
    }

    /// Size of the file that it moves where the point asks for `bytes`.
    pub(crate) fn bytes(&self, mode: Mode, bytes: u64) -> u64 {
        let largest = self.variant.as_ref().and_then(|v| v.largest(mode));
        largest.map_or(bytes, |largest| bytes.min(largest))
    }
}

/// One point of the sweep and the entrants that run there, in the order they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    /// Where; an entrant that ignores an axis shows another value of it.
    pub(crate) at: At,
    /// Indices of entrants.
    pub(crate) entrants: Vec<usize>,
}

/// The values of each axis that are visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// Axis key → values, `down` first.
    axes: Vec<(String, Vec<String>)>,
}

impl Sweep {
    /// The values of `mode`, or those that `only` (`AXIS=VALUE[,VALUE...]`) picks from all.
    ///
    /// # Errors
    /// [`LabError::Usage`]: an axis or a value that the experiment does not have.
    pub(crate) fn new(
        definition: &Definition,
        mode: Mode,
        only: &[String],
    ) -> Result<Self, LabError> {
        let mut axes: Vec<_> = definition
            .axes()
            .map(|axis| (axis.key.clone(), axis.values(mode).to_vec()))
            .collect();
        for choice in only {
            let (key, values) = choice.split_once('=').ok_or_else(|| {
                LabError::Usage(format!("--only {choice}: write AXIS=VALUE[,VALUE...]"))
            })?;
            let index = axes.iter().position(|(k, _)| k == key).ok_or_else(|| {
                let keys: Vec<_> = axes.iter().map(|(k, _)| k.as_str()).collect();
                let keys = keys.join(" and ");
                LabError::Usage(format!("--only {choice}: the axes are {keys}"))
            })?;
            let axis = definition.axes().nth(index);
            axes[index].1 = axis.map_or(Ok(Vec::new()), |axis| pick(axis, choice, values))?;
        }
        Ok(Self { axes })
    }

    /// The values visited on an axis.
    pub(crate) fn values(&self, key: &str) -> &[String] {
        let axis = self.axes.iter().find(|(k, _)| k == key);
        axis.map_or(&[], |(_, values)| values)
    }

    /// Every point, rows first, and who runs there.
    pub(crate) fn points(&self, entrants: &[Entrant]) -> Vec<Point> {
        let mut all = vec![At::new()];
        for (key, values) in &self.axes {
            all = all
                .into_iter()
                .flat_map(|at| {
                    values.iter().map(move |value| {
                        let mut at = at.clone();
                        at.insert(key.clone(), value.clone());
                        at
                    })
                })
                .collect();
        }
        let mut done: Vec<(usize, At)> = Vec::new();
        let mut points = Vec::new();
        for at in all {
            let mut here = Vec::new();
            for (index, entrant) in entrants.iter().enumerate() {
                let shown = (index, entrant.program.shown_at(&at));
                if entrant.runs_at(&at) && !done.contains(&shown) {
                    done.push(shown);
                    here.push(index);
                }
            }
            if !here.is_empty() {
                points.push(Point { at, entrants: here });
            }
        }
        points
    }
}

fn pick(axis: &AxisDefinition, choice: &str, values: &str) -> Result<Vec<String>, LabError> {
    let wanted: Vec<&str> = values.split(',').map(str::trim).collect();
    if let Some(odd) = wanted.iter().find(|v| !axis.full.iter().any(|f| f == *v)) {
        return Err(LabError::Usage(format!(
            "--only {choice}: '{odd}' is not among {}",
            axis.full.join(", ")
        )));
    }
    let chosen = axis.full.iter().filter(|v| wanted.contains(&v.as_str()));
    Ok(chosen.cloned().collect())
}

/// The order in which the entrants of a point run in one repetition: each begins once, so that
/// no program always follows the same other one.
pub(crate) fn rotated(entrants: &[usize], repetition: u32) -> Vec<usize> {
    let mut order = entrants.to_vec();
    if !order.is_empty() {
        let by = repetition as usize % order.len();
        order.rotate_left(by);
    }
    order
}

/// The seed of a run: the same for every program at a point, another one in each repetition, and
/// independent of which other points are visited. At most 2⁵³ − 1, which every JSON reader keeps.
pub(crate) fn run_seed(seed: u64, at: &At, repetition: u32) -> u64 {
    let mut hash = Fnv::default();
    hash.take(&seed.to_le_bytes());
    for (key, value) in at {
        hash.take(key.as_bytes());
        hash.take(b"=");
        hash.take(value.as_bytes());
        hash.take(b";");
    }
    hash.take(&repetition.to_le_bytes());
    hash.0 >> 11
}

/// Tells versions of an experiment's file apart.
pub(crate) fn fingerprint(text: &str) -> String {
    let mut hash = Fnv::default();
    hash.take(text.as_bytes());
    format!("{:016x}", hash.0)
}

/// FNV-1a.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Cost of building and taking down a network and of starting a server in a run, seconds.
const OVERHEAD_SECONDS: f64 = 1.0;

/// The rate that is assumed where nothing is published, bit/s: of a network, and of loopback.
const ASSUMED_RATES: (f64, f64) = (300e6, 10e9);

/// A guess of how long one run of the program or variant `key` lasts. `bytes` is the size of its file.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn expected_seconds(
    definition: &Definition,
    mode: Mode,
    key: &str,
    at: &At,
    bytes: u64,
) -> f64 {
    let fixed = definition.parameters.get("seconds");
    let moving = match fixed.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => seconds,
        None => bytes as f64 * 8.0 / expected_rate(definition, key, at).max(1.0),
    };
    moving.min(f64::from(*definition.limit.of(mode))) + OVERHEAD_SECONDS
}

/// The rate at which a program is expected to move its file, bit/s: what its variant says, or what
/// was published, or the network's.
fn expected_rate(definition: &Definition, key: &str, at: &At) -> f64 {
    let variant = definition.variants.get(key);
    let said = variant.and_then(|variant| variant.expects);
    let known = said.or_else(|| definition.published(key, "goodput", at));
    if let Some(megabits) = known {
        return megabits * 1e6;
    }
    let assumed = match definition.kind {
        Kind::Loopback => ASSUMED_RATES.1,
        Kind::Net | Kind::Sim => ASSUMED_RATES.0,
    };
    bottleneck(definition, at).map_or(assumed, |rate| rate.min(assumed))
}

/// The rate of a network's usual path, bit/s, if the point alone says it.
fn bottleneck(definition: &Definition, at: &At) -> Option<f64> {
    let network = definition.network.as_ref()?;
    let rate = network.get("default")?.get("rate")?.as_str()?;
    let rate = template::expand(rate, &variables::of_point(definition, at)).ok()?;
    let rate = units::rate(&rate).ok()?;
    Some(rate.as_bits_per_second() as f64)
}

#[cfg(test)]
mod tests;
