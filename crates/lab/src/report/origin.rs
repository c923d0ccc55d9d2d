//! Where results come from and how to get them again.

use super::number;
use crate::experiment::results::Results;
use crate::quoting::shell_word;

/// One line: when, how much, on what.
pub(super) fn line(results: &Results) -> String {
    let environment = &results.environment;
    let mut parts = vec![
        number::moment(&results.started),
        extent(results),
        format!("seed {}", results.seed),
    ];
    if !environment.kernel.is_empty() {
        parts.push(format!("Linux {}", environment.kernel));
    }
    if environment.cpus > 0 {
        parts.push(number::count(environment.cpus, "processor"));
    }
    parts.join(", ")
}

/// `full run, all 56 cells` or `full run, 12 of 56 cells`.
fn extent(results: &Results) -> String {
    let mode = &results.mode;
    let own = results.cells.iter().filter(|cell| cell.chosen.is_none());
    let measured = own.filter(|cell| cell.median.is_some()).count();
    match results.planned {
        0 => format!("{mode} run, {}", number::count(measured, "cell")),
        planned if measured >= planned => {
            format!("{mode} run, all {}", number::count(measured, "cell"))
        }
        planned => format!("{mode} run, {measured} of {planned} cells"),
    }
}

/// The command that runs the experiment again.
pub(super) fn command(results: &Results) -> String {
    let name = shell_word(&results.experiment);
    let mode = match results.mode.as_str() {
        "full" => " --full",
        "quick" => " --quick",
        _ => "",
    };
    let mut command = format!("longhaul lab run {name}{mode} --seed {}", results.seed);
    for word in &results.options {
        command.push(' ');
        command.push_str(&shell_word(word));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_command_repeats_all_that_was_asked_for() {
        let mut results = samples::two_by_two();
        assert_eq!(
            command(&results),
            "longhaul lab run bbc-5.1 --quick --seed 7"
        );
        results.options = ["--only", "p=1,4"].map(str::to_owned).to_vec();
        assert_eq!(
            command(&results),
            "longhaul lab run bbc-5.1 --quick --seed 7 --only p=1,4"
        );
        results.options.clear();
        results.mode = "full".to_owned();
        results.experiment = "it's; rm".to_owned();
        assert_eq!(
            command(&results),
            "longhaul lab run 'it'\\''s; rm' --full --seed 7"
        );
    }

    #[test]
    fn the_line_says_when_and_on_what() {
        assert_eq!(
            line(&samples::two_by_two()),
            "2026-11-20 13:55 UTC, quick run, 8 cells, seed 7, Linux 6.18.0, 2 processors"
        );
    }

    #[test]
    fn a_full_run_says_how_many_cells_of_how_many_it_has() {
        let mut results = samples::two_by_two();
        results.mode = "full".to_owned();
        results.planned = 20;
        assert_eq!(extent(&results), "full run, 8 of 20 cells");
        results.planned = 8;
        assert_eq!(extent(&results), "full run, all 8 cells");
    }
}
