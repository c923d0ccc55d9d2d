//! Where results come from and how to get them again.

use super::number;
use crate::experiment::results::Results;
use crate::shell;

/// One line: when, how much, on what.
pub(super) fn line(results: &Results) -> String {
    let environment = &results.environment;
    let mut parts = vec![
        number::moment(&results.started),
        format!("{} run", results.mode),
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

/// The command that runs the experiment again.
pub(super) fn command(results: &Results) -> String {
    let name = shell::word(&results.experiment);
    let mode = match results.mode.as_str() {
        "full" => " --full",
        "quick" => " --quick",
        _ => "",
    };
    let mut command = format!("longhaul lab run {name}{mode} --seed {}", results.seed);
    for word in &results.options {
        command.push(' ');
        command.push_str(&shell::word(word));
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
            "2026-11-20 13:55 UTC, quick run, seed 7, Linux 6.18.0, 2 processors"
        );
    }
}
