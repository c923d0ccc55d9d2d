//! Runs every experiment that ships, one after another, within a time budget.

use std::time::{Duration, Instant};

use super::definition::catalog;
use super::schedule::{self, PlannedRun, Schedule, format_seconds};
use super::{RunRequest, SavedResults, runner};
use crate::LabError;
use units::show;

/// The outcome of a run of all experiments.
#[derive(Debug, Default)]
pub struct AllRuns {
    /// The saved results, in the order in which they were made.
    pub saved: Vec<SavedResults>,
    /// The experiments that failed, each with its error.
    pub failed: Vec<(String, LabError)>,
    /// The experiments that did not start because the budget was used up.
    pub not_begun: Vec<String>,
    /// The number of cells without a valid run because the lab could not keep up.
    pub spoiled: usize,
}

fn experiment_names() -> impl Iterator<Item = &'static str> {
    catalog::EXPERIMENTS.iter().map(|(name, _)| *name)
}

/// Makes the request for the experiment called `name` from the one for all experiments.
fn request_for(request: &RunRequest, name: &str) -> RunRequest {
    RunRequest {
        name: name.to_owned(),
        ..request.clone()
    }
}

/// Schedules the experiments that can run here; the second list has a line for each that cannot.
fn schedules<'a>(
    request: &RunRequest,
    names: impl Iterator<Item = &'a str>,
) -> Result<(Vec<Schedule>, Vec<String>), LabError> {
    let (mut ready, mut left_out) = (Vec::new(), Vec::new());
    for name in names {
        match Schedule::new(&request_for(request, name)) {
            Ok(schedule) => ready.push(schedule),
            // None of its programs is installed, or all of them need root.
            Err(LabError::NotFound(why)) => left_out.push(format!("{name} is left out: {why}")),
            Err(error) => return Err(error),
        }
    }
    Ok((ready, left_out))
}

/// Returns the most repetitions of every cell that fit into `budget`. `None`: not even one fits.
fn affordable_repetitions(ready: &[Schedule], budget: Duration) -> Option<u32> {
    let wanted = ready.iter().map(Schedule::most_repetitions).max();
    let seconds = |most: u32| -> f64 {
        let planned = ready.iter().map(|one| one.plan(most));
        planned.map(|planned| planned.seconds).sum()
    };
    let fits = |most: &u32| seconds(*most) <= budget.as_secs_f64();
    (1..=wanted.unwrap_or(1).max(1)).rev().find(fits)
}

/// Describes the plan for people: a line for each experiment, a total, and the lines of `left_out`.
fn describe_plan(ready: &[Schedule], left_out: &[String], budget: Option<Duration>) -> String {
    let most = budget.map_or(Some(u32::MAX), |budget| {
        affordable_repetitions(ready, budget)
    });
    let planned = ready.iter().map(|one| one.plan(most.unwrap_or(1)));
    let planned: Vec<PlannedRun> = planned.collect();
    let mut lines: Vec<String> = planned.iter().map(PlannedRun::to_text).collect();
    let cells: usize = planned.iter().map(|one| one.cells).sum();
    let runs: u64 = planned.iter().map(|one| one.runs).sum();
    let time = format_seconds(planned.iter().map(|one| one.seconds).sum());
    lines.push(format!(
        "all: {}, {}; about {time}",
        show::count(cells, "cell"),
        show::count(runs, "run")
    ));
    let wanted = ready.iter().map(Schedule::most_repetitions).max();
    match (most, budget) {
        (Some(most), _) if wanted.is_some_and(|wanted| most < wanted) => {
            lines.push(format!(
                "repetitions are trimmed to {most} to fit the budget"
            ));
        }
        (None, Some(budget)) => lines.push(format!(
            "one repetition of everything takes longer than the budget of {}: {}",
            format_seconds(budget.as_secs_f64()),
            describe_rest(ready, &planned, budget)
        )),
        _ => {}
    }
    lines.extend_from_slice(left_out);
    lines.join("\n")
}

/// Tells which experiments do not fit into `budget`, by the estimates of `planned`.
fn describe_rest(ready: &[Schedule], planned: &[PlannedRun], budget: Duration) -> String {
    let mut begins = 0.0;
    let (mut begun, mut left_out) = ("", Vec::new());
    for (one, planned) in ready.iter().zip(planned) {
        let name = one.empty_results.experiment.as_str();
        match begins < budget.as_secs_f64() {
            true => begun = name,
            false => left_out.push(name),
        }
        begins += planned.seconds;
    }
    match left_out.is_empty() {
        true => format!("{begun} ends early"),
        false => format!(
            "{begun} may end early, and left out are {}",
            left_out.join(", ")
        ),
    }
}

/// Describes what [`run`] would do, as text of several lines for people.
///
/// # Errors
/// Existing results are of another seed or version, or a file has a mistake.
pub(crate) fn plan(request: &RunRequest, budget: Option<Duration>) -> Result<String, LabError> {
    let (ready, left_out) = schedules(request, experiment_names())?;
    Ok(describe_plan(&ready, &left_out, budget))
}

/// Runs every experiment. Before each, the repetitions are chosen again from the rest of the budget,
/// because estimates of the experiments before it may have been wrong.
///
/// # Errors
/// The errors of [`plan`], and [`LabError::Busy`]. An experiment that fails is listed in the result, and
/// the next one runs.
pub(crate) fn run(
    request: &RunRequest,
    budget: Option<Duration>,
    print: &mut dyn FnMut(&str),
) -> Result<AllRuns, LabError> {
    let until = budget.map(|budget| Instant::now() + budget);
    let (mut remaining, left_out) = schedules(request, experiment_names())?;
    describe_plan(&remaining, &left_out, budget)
        .lines()
        .for_each(&mut *print);
    let mut done = AllRuns::default();
    while !remaining.is_empty() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let names = remaining
                .into_iter()
                .map(|one| one.empty_results.experiment);
            done.not_begun = names.collect();
            break;
        }
        let at_most = left.map(|left| affordable_repetitions(&remaining, left).unwrap_or(1));
        let name = remaining.remove(0).empty_results.experiment;
        let one = RunRequest {
            at_most: at_most.or(request.at_most),
            until,
            // Once something was measured, another lab that started in between is no reason to give up.
            wait: request.wait || !done.saved.is_empty(),
            ..request_for(request, &name)
        };
        match runner::run(&one, print) {
            Ok(saved) => {
                let cells = saved.results.cells.iter();
                done.spoiled += cells.filter(|cell| schedule::is_spoiled(cell)).count();
                done.saved.push(saved);
            }
            Err(busy @ LabError::Busy(_)) => return Err(busy),
            Err(error) => {
                print(&format!("{name}: {error}"));
                done.failed.push((name, error));
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Mode;

    #[test]
    fn repetitions_are_trimmed_until_the_budget_suffices() {
        let out = tempfile::tempdir().unwrap();
        let mut request = RunRequest::new("all", Mode::Quick, out.path());
        request.repetitions = Some(4);
        // These experiments need only the simulator, so that they can be scheduled on any machine.
        let (ready, _) = schedules(&request, ["ns2-static", "autopar-fig3"].into_iter()).unwrap();
        let whole = describe_plan(&ready, &["x is left out: why".to_owned()], None);
        let starts = [
            "ns2-static (quick): ",
            "autopar-fig3 (quick): ",
            "all: ",
            "x is left",
        ];
        for (line, start) in whole.lines().zip(starts) {
            assert!(line.starts_with(start), "{whole}");
        }
        let seconds: f64 = ready.iter().map(|one| one.plan(4).seconds).sum();
        let half = Duration::from_secs_f64(seconds / 2.0 + 0.001);
        assert_eq!(affordable_repetitions(&ready, half), Some(2));
        assert!(describe_plan(&ready, &[], Some(half)).contains("trimmed to 2"));
        let rest = |seconds| {
            let described = describe_plan(&ready, &[], Some(Duration::from_secs_f64(seconds)));
            let (_, rest) = described.split_once("longer than the budget of ").unwrap();
            rest.split_once(": ").unwrap().1.to_owned()
        };
        let first = ready[0].plan(1).seconds;
        assert_eq!(
            rest(first / 2.0),
            "ns2-static may end early, and left out are autopar-fig3"
        );
        assert_eq!(rest(first + 0.001), "autopar-fig3 ends early");
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
    }
}
