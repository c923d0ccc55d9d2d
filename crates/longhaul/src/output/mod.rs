//! Output of a copy while it runs: JSON lines, a progress bar, progress lines, or errors only.

mod bar;
pub(crate) mod console;
pub(crate) mod copy_output;
pub(crate) mod events_log;
mod failures;
mod forecast_text;
pub(crate) mod json;
mod messages;
mod pace;
mod progress_text;
mod summary_text;

pub(crate) use summary_text::Continuation;

use command_line::output::escape_lines;
pub(crate) use command_line::output::{
    print_json, print_line, print_listing_line, print_to_stderr, unless_reader_gone,
};
use copy::Failure;
use proto::printable::printable;

/// Prints a failure on standard error, in one line: a line break in it is that of a name.
pub(crate) fn print_failure(failure: &Failure) {
    print_to_stderr(&format!("longhaul: {}", printable(&failure.to_string())));
}

/// Ignores a broken pipe (`longhaul ls | head`); other errors, such as a full disk, are failures.
///
/// # Errors
/// `Local`.
pub(crate) fn ignore_broken_pipe(printed: std::io::Result<()>) -> Result<(), Failure> {
    unless_reader_gone(printed).map_err(|error| Failure::local(format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_and_summary_both_say_not_verified_for_verify_none() {
        let mut cli = crate::args::Cli::command();
        let help = cli.find_subcommand_mut("cp").unwrap().render_long_help();
        let words: Vec<String> = help
            .to_string()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert!(words.join(" ").contains("`none` (not verified:"), "{help}");
        assert_eq!(summary_text::verification_text("none"), ", not verified");
    }
}
