//! The plan of a run, before it is made.

use std::collections::BTreeSet;
use std::time::Duration;

use units::show;

/// The plan of a run of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The experiment.
    pub experiment: String,
    /// `quick` or `full`.
    pub mode: String,
    /// Points of the sweep where something is to be run.
    pub points: usize,
    /// Programs that take part.
    pub programs: usize,
    /// Cells to be measured.
    pub cells: usize,
    /// Cells that have all their runs already.
    pub already: usize,
    /// Single measurements.
    pub runs: u64,
    /// How many runs the cells have.
    pub repetitions: BTreeSet<u32>,
    /// How long it will take, a guess.
    pub seconds: f64,
}

impl Planned {
    /// One line for people.
    pub fn to_text(&self) -> String {
        let runs: Vec<String> = self.repetitions.iter().map(u32::to_string).collect();
        let already = match self.already {
            0 => String::new(),
            n => format!("; {n} cells are there already"),
        };
        if self.cells == 0 {
            return format!(
                "{} ({}): nothing to run{already}",
                self.experiment, self.mode
            );
        }
        format!(
            "{} ({}): {} points, {} programs, {} cells of {} runs; about {}{already}",
            self.experiment,
            self.mode,
            self.points,
            self.programs,
            self.cells,
            runs.join(" or "),
            span(self.seconds),
        )
    }
}

/// A guess in seconds, for people: whole seconds, at least one.
pub(crate) fn span(seconds: f64) -> String {
    show::time(Duration::from_secs_f64(seconds.clamp(1.0, 1e9).round()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_for_people() {
        for (seconds, text) in [
            (0.2, "1 s"),
            (59.0, "59 s"),
            (149.6, "2 min 30 s"),
            (9000.0, "2 h 30 min"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
