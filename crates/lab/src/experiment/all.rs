//! Every experiment that ships, one after another, within a budget of time.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::schedule::{self, PlannedRun, Schedule, span};
use super::{RunRequest, SavedResults, catalog, runner};
use crate::LabError;

/// The plan of a run of all experiments.
#[derive(Debug)]
pub struct AllPlannedRuns {
    /// In the order in which they are run.
    pub experiments: Vec<PlannedRun>,
    /// Experiments that cannot be run here, and why.
    pub left_out: Vec<(String, String)>,
    /// Repetitions are trimmed to this number so that the budget suffices.
    pub trimmed: Option<u32>,
    /// Even with one repetition it takes longer than this: the last experiments will be left out.
    pub beyond: Option<Duration>,
}

/// The outcome of a run of all experiments.
#[derive(Debug, Default)]
pub struct AllRuns {
    /// Results, in the order in which they were made.
    pub saved: Vec<SavedResults>,
    /// Experiments that failed, and why.
    pub failed: Vec<(String, LabError)>,
    /// Experiments that were not begun: the budget was used up.
    pub not_begun: Vec<String>,
    /// Cells of which the lab spoiled every run.
    pub spoiled: usize,
}

impl AllPlannedRuns {
    /// A table for people.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{:<24} {:>6} {:>6} {:>6} {:>8}  about\n",
            "experiment", "points", "cells", "runs", "there"
        );
        for planned in &self.experiments {
            let _ = writeln!(
                text,
                "{:<24} {:>6} {:>6} {:>6} {:>8}  {}",
                planned.experiment,
                planned.points,
                planned.cells,
                planned.runs,
                planned.already,
                span(planned.seconds)
            );
        }
        let total =
            |count: fn(&PlannedRun) -> usize| self.experiments.iter().map(count).sum::<usize>();
        let runs: u64 = self.experiments.iter().map(|planned| planned.runs).sum();
        let seconds: f64 = self.experiments.iter().map(|planned| planned.seconds).sum();
        let _ = writeln!(
            text,
            "{:<24} {:>6} {:>6} {runs:>6} {:>8}  {}",
            "all",
            total(|planned| planned.points),
            total(|planned| planned.cells),
            total(|planned| planned.already),
            span(seconds)
        );
        if let Some(most) = self.trimmed {
            let _ = writeln!(text, "repetitions are trimmed to {most} to fit the budget");
        }
        if let Some(budget) = self.beyond {
            let _ = writeln!(
                text,
                "one repetition of everything takes longer than the budget of {}: what does not fit is \
                 left out",
                span(budget.as_secs_f64())
            );
        }
        for (name, why) in &self.left_out {
            let _ = writeln!(text, "{name} is left out: {why}");
        }
        text
    }
}

/// The experiments that can be run, and those that cannot be run here.
type ReadySchedules = (Vec<Schedule>, Vec<(String, String)>);

fn ready(request: &RunRequest, names: &[&str]) -> Result<ReadySchedules, LabError> {
    let mut ready = Vec::new();
    let mut left_out = Vec::new();
    for name in names {
        match Schedule::of(&of_one(request, name)) {
            Ok(schedule) => ready.push(schedule),
            // No program of it is installed, or none may run without root.
            Err(LabError::NotFound(why)) => left_out.push(((*name).to_owned(), why)),
            Err(error) => return Err(error),
        }
    }
    Ok((ready, left_out))
}

/// How many repetitions fit into `budget`; `Err`: not even one of everything.
fn trimmed(ready: &[Schedule], budget: Option<Duration>) -> Result<Option<u32>, Duration> {
    let Some(budget) = budget else {
        return Ok(None);
    };
    let seconds = |most: u32| {
        ready
            .iter()
            .map(|one| one.planned(most).seconds)
            .sum::<f64>()
    };
    let wanted = ready.iter().map(Schedule::most_repetitions).max();
    let wanted = wanted.unwrap_or(1).max(1);
    let fits = |most: &u32| seconds(*most) <= budget.as_secs_f64();
    match (1..=wanted).rev().find(fits) {
        Some(most) => Ok((most < wanted).then_some(most)),
        None => Err(budget),
    }
}

fn planned((ready, left_out): &ReadySchedules, budget: Option<Duration>) -> AllPlannedRuns {
    let (trimmed, beyond) = match trimmed(ready, budget) {
        Ok(trimmed) => (trimmed, None),
        Err(beyond) => (Some(1), Some(beyond)),
    };
    let at_most = trimmed.unwrap_or(u32::MAX);
    AllPlannedRuns {
        experiments: ready.iter().map(|one| one.planned(at_most)).collect(),
        left_out: left_out.clone(),
        trimmed,
        beyond,
    }
}

/// `request`, which is for all, for one.
fn of_one(request: &RunRequest, name: &str) -> RunRequest {
    RunRequest {
        name: name.to_owned(),
        ..request.clone()
    }
}

fn names() -> Vec<&'static str> {
    catalog::EXPERIMENTS.iter().map(|(name, _)| *name).collect()
}

/// A plan for [`run`].
///
/// # Errors
/// Results that do not fit, a mistake in a file.
pub(crate) fn plan(
    request: &RunRequest,
    budget: Option<Duration>,
) -> Result<AllPlannedRuns, LabError> {
    Ok(planned(&ready(request, &names())?, budget))
}

/// Runs every experiment. Before each, repetitions are trimmed to what is left of the budget.
///
/// # Errors
/// As [`plan`]; an experiment that fails is kept and the next one is run.
pub(crate) fn run(
    request: &RunRequest,
    budget: Option<Duration>,
    say: &mut dyn FnMut(&str),
) -> Result<AllRuns, LabError> {
    let until = budget.map(|budget| Instant::now() + budget);
    let all = ready(request, &names())?;
    for line in planned(&all, budget).to_text().lines() {
        say(line);
    }
    let mut to_come = all.0;
    let mut done = AllRuns::default();
    while !to_come.is_empty() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let names = to_come.into_iter().map(|one| one.blank.experiment);
            done.not_begun = names.collect();
            break;
        }
        let at_most = trimmed(&to_come, left).unwrap_or(Some(1));
        let name = to_come.remove(0).blank.experiment;
        let one = RunRequest {
            at_most: at_most.or(request.at_most),
            until,
            // Other labs may come and go between experiments.
            wait: request.wait || !done.saved.is_empty(),
            ..of_one(request, &name)
        };
        match runner::run(&one, say) {
            Ok(saved) => {
                let cells = saved.results.cells.iter();
                done.spoiled += cells.filter(|cell| schedule::is_spoiled(cell)).count();
                done.saved.push(saved);
            }
            Err(busy @ LabError::Busy(_)) => return Err(busy),
            Err(error) => {
                say(&format!("{name}: {error}"));
                done.failed.push((name, error));
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment::Mode;

    fn request(out: &Path) -> RunRequest {
        RunRequest {
            name: "all".into(),
            mode: Mode::Quick,
            out: out.to_owned(),
            repetitions: None,
            seed: None,
            only: Vec::new(),
            programs: Vec::new(),
            resume: false,
            fresh: false,
            wait: false,
            at_most: None,
            until: None,
        }
    }

    /// Experiments that need nothing but the simulator.
    const SIMULATED: [&str; 2] = ["ns2-static", "autopar-fig3"];

    #[test]
    fn repetitions_are_trimmed_until_the_budget_suffices() {
        let out = tempfile::tempdir().unwrap();
        let mut request = request(out.path());
        request.repetitions = Some(4);
        let ready = ready(&request, &SIMULATED).unwrap();
        let seconds = |planned: &AllPlannedRuns| -> f64 {
            planned.experiments.iter().map(|one| one.seconds).sum()
        };
        let whole = planned(&ready, None);
        assert_eq!((whole.trimmed, whole.beyond), (None, None));
        let half = Duration::from_secs_f64(seconds(&whole) / 2.0 + 0.001);
        let trimmed = planned(&ready, Some(half));
        assert_eq!(trimmed.trimmed, Some(2));
        assert!(seconds(&trimmed) <= half.as_secs_f64());
        assert!(trimmed.to_text().contains("trimmed to 2"));
        let little = Duration::from_millis(1);
        let beyond = planned(&ready, Some(little));
        assert_eq!((beyond.trimmed, beyond.beyond), (Some(1), Some(little)));
    }

    #[test]
    fn the_plan_has_a_line_for_each_experiment_and_one_for_all() {
        let out = tempfile::tempdir().unwrap();
        let ready = ready(&request(out.path()), &SIMULATED).unwrap();
        let text = planned(&ready, None).to_text();
        for start in ["experiment", "ns2-static", "autopar-fig3", "all"] {
            assert!(text.lines().any(|line| line.starts_with(start)), "{text}");
        }
        assert!(std::fs::read_dir(out.path()).unwrap().next().is_none());
    }
}
