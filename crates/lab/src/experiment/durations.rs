//! Durations of runs: those of earlier results on this machine, else those of the committed results. The time of a plan follows
//! from them.

use std::collections::BTreeMap;

use super::Mode;
use super::results::statistics::median;
use super::results::{ExperimentResults, ResultCell, RunRecord, SweepPoint};

/// Mean seconds of the runs of the committed results: a heading, then `experiment,mode,program,seconds`.
const COMMITTED: &str = include_str!("durations.csv");

/// The known durations of the runs of one experiment in one mode, seconds.
#[derive(Debug, Default)]
pub(crate) struct RunDurations {
    /// Median of the runs of a cell, by program and point.
    cells: BTreeMap<(String, SweepPoint), f64>,
    /// Mean of all runs of a program.
    programs: BTreeMap<String, f64>,
}

impl RunDurations {
    /// Those of `earlier` results, and for programs that are not in them those of the committed results.
    pub(crate) fn new(experiment: &str, mode: Mode, earlier: Option<&ExperimentResults>) -> Self {
        let mut known = earlier.map(Self::of_results).unwrap_or_default();
        for (program, seconds) in committed(COMMITTED, experiment, mode) {
            known.programs.entry(program).or_insert(seconds);
        }
        known
    }

    /// Collects what the runs of these results took.
    fn of_results(results: &ExperimentResults) -> Self {
        let own = results.cells.iter().chain(&results.unfinished);
        let own: Vec<&ResultCell> = own.filter(|cell| cell.chosen.is_none()).collect();
        let overhead = mean_overhead(results.seconds, own.iter().flat_map(|cell| &cell.samples));
        let mut known = Self::default();
        let mut of_program: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for cell in own {
            let took: Vec<f64> = cell
                .samples
                .iter()
                .map(|run| seconds(run, overhead))
                .collect();
            let key = (cell.program.clone(), cell.at.clone());
            if let Some(seconds) = median(&took) {
                known.cells.insert(key, seconds);
            }
            of_program.entry(&cell.program).or_default().extend(took);
        }
        for (program, took) in of_program {
            if let Some(seconds) = mean(&took) {
                known.programs.insert(program.to_owned(), seconds);
            }
        }
        known
    }

    /// The duration of one run of `program` at the point `at`: what runs of this cell took, else those of the program at other
    /// points. `None`: nothing like it was measured.
    pub(crate) fn of_run(&self, program: &str, at: &SweepPoint) -> Option<f64> {
        let cell = self.cells.get(&(program.to_owned(), at.clone()));
        cell.or_else(|| self.programs.get(program)).copied()
    }
}

/// The lines of a table of committed durations that are of this experiment and mode.
fn committed(table: &str, experiment: &str, mode: Mode) -> impl Iterator<Item = (String, f64)> {
    table.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(',').collect();
        let [of, in_mode, program, seconds] = fields.as_slice() else {
            return None;
        };
        let is_asked = *of == experiment && *in_mode == mode.name();
        let seconds = seconds.parse().ok().filter(|_| is_asked)?;
        Some(((*program).to_owned(), seconds))
    })
}

/// The seconds of one run. `overhead` is added to those of its client where the whole was not recorded.
fn seconds(run: &RunRecord, overhead: f64) -> f64 {
    run.took.unwrap_or(run.seconds + overhead)
}

/// The mean time of a run beyond that of its client, seconds: `total` is that of all runs together.
#[allow(clippy::cast_precision_loss, reason = "a count of runs")]
fn mean_overhead<'a>(total: f64, runs: impl Iterator<Item = &'a RunRecord>) -> f64 {
    let (count, clients) = runs.fold((0_usize, 0.0), |(count, sum), run| {
        (count + 1, sum + run.seconds)
    });
    ((total - clients) / count.max(1) as f64).max(0.0)
}

#[allow(clippy::cast_precision_loss, reason = "a count of runs")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::experiment::store;

    /// A place of the repository.
    fn place(below_the_crate: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(below_the_crate)
    }

    /// The committed results of an experiment, if there are any.
    fn committed_results(experiment: &str, mode: &str) -> Option<ExperimentResults> {
        let folder = place("../../docs/results");
        store::read(&folder.join(format!("{experiment}-{mode}.json"))).unwrap()
    }

    /// The lines of all committed results, and those of experiments that have none.
    fn complete_lines() -> BTreeSet<String> {
        let entries = fs::read_dir(place("../../docs/results")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|e| e == "json"));
        // A part of an experiment has a longer name: the whole counts first.
        files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
        let mut known = BTreeMap::new();
        for file in files {
            let results = store::read(&file).unwrap().unwrap();
            for (program, seconds) in RunDurations::of_results(&results).programs {
                let run = format!("{},{},{program}", results.experiment, results.mode);
                known.entry(run).or_insert(seconds);
            }
        }
        let others = COMMITTED.lines().skip(2).filter(|line| {
            let experiment = line.rsplitn(3, ',').last().unwrap();
            let mut known = known.keys();
            !known.any(|run| run.starts_with(&format!("{experiment},")))
        });
        let known = known
            .iter()
            .map(|(run, seconds)| format!("{run},{seconds:.3}"));
        known.chain(others.map(str::to_owned)).collect()
    }

    #[test]
    fn the_committed_durations_are_those_of_the_committed_results() {
        let lines = complete_lines();
        if std::env::var_os("LONGHAUL_WRITE_DURATIONS").is_some() {
            let heading = COMMITTED.lines().take(2);
            let table: Vec<&str> = heading.chain(lines.iter().map(String::as_str)).collect();
            let file = place("src/experiment/durations.csv");
            fs::write(file, table.join("\n") + "\n").unwrap();
            return;
        }
        let committed: BTreeSet<String> = COMMITTED.lines().skip(2).map(str::to_owned).collect();
        let missing: Vec<&String> = lines.difference(&committed).collect();
        let stale: Vec<&String> = committed.difference(&lines).collect();
        assert!(
            missing.is_empty() && stale.is_empty(),
            "run packaging/measured; durations.csv lacks {missing:#?} and has {stale:#?}"
        );
    }

    #[test]
    fn the_same_cell_counts_before_the_program_and_earlier_results_before_committed_ones() {
        let mut results = committed_results("bbc-5.2", "quick").unwrap();
        let cell = results.cells[0].clone();
        results.cells.truncate(1);
        for run in &mut results.cells[0].samples {
            run.took = Some(77.0);
        }
        let known = RunDurations::new("bbc-5.2", Mode::Quick, Some(&results));
        assert_eq!(known.of_run(&cell.program, &cell.at), Some(77.0));
        let elsewhere = SweepPoint::new();
        assert_eq!(known.of_run(&cell.program, &elsewhere), Some(77.0));
        let known = RunDurations::new("bbc-5.2", Mode::Quick, None);
        let committed = known.of_run(&cell.program, &cell.at).unwrap();
        assert!((0.1..77.0).contains(&committed), "{committed}");
        assert_eq!(known.of_run("another", &elsewhere), None);
        let other = RunDurations::new("no-experiment", Mode::Quick, None);
        assert_eq!(other.of_run(&cell.program, &cell.at), None);
    }

    #[test]
    fn the_time_of_a_plan_of_committed_results_is_near_the_measured_one() {
        for experiment in ["bbc-5.2", "auto-start", "fairness"] {
            let results = committed_results(experiment, "quick").unwrap();
            let known = RunDurations::new(experiment, Mode::Quick, None);
            let cells = results.cells.iter().filter(|cell| cell.chosen.is_none());
            let runs = cells.flat_map(|cell| cell.samples.iter().map(move |_| cell));
            let planned: f64 = runs
                .map(|cell| known.of_run(&cell.program, &cell.at).unwrap())
                .sum();
            let ratio = planned / results.seconds;
            assert!((0.9..1.1).contains(&ratio), "{experiment}: {ratio}");
        }
    }
}
