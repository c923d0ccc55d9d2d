//! Output of a copy while it runs: JSON lines, a progress bar, progress lines, or errors only.

mod bar;
pub(crate) mod console;
pub(crate) mod copy_output;
pub(crate) mod events_log;
mod failures;
pub(crate) mod journal;
pub(crate) mod json;
pub(crate) mod log;
mod messages;
mod pace;
mod progress_text;
mod summary_text;

pub(crate) use summary_text::Continuation;

use std::io::{IsTerminal, Write};

use client::CopyFailure;
use proto::printable::{printable, printable_json};

/// `1 file`, `2 files`.
fn count(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Prints a message on standard error. All messages go this way, because it escapes terminal control
/// sequences that a peer may have put into the text. A closed standard error is ignored.
pub(crate) fn print_to_stderr(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", escape_lines(message));
}

/// Prints a failure on standard error, in one line: a line break in it is that of a name.
pub(crate) fn print_failure(failure: &CopyFailure) {
    print_to_stderr(&format!("longhaul: {}", printable(&failure.to_string())));
}

/// Escapes control characters in each line of a message.
fn escape_lines(message: &str) -> String {
    let lines: Vec<String> = message
        .split('\n')
        .map(|line| printable(line).to_string())
        .collect();
    lines.join("\n")
}

/// Prints a line of a listing on standard output. Control characters are escaped for a terminal only;
/// a program gets names byte for byte, as from ls(1).
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn print_listing_line(line: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let line = escape_if_terminal(line, out.is_terminal());
    out.write_all(&[line.as_slice(), b"\n"].concat())?;
    out.flush()
}

fn escape_if_terminal(line: &[u8], is_terminal: bool) -> Vec<u8> {
    match is_terminal {
        true => printable(line).to_string().into_bytes(),
        false => line.to_vec(),
    }
}

/// Ignores a broken pipe (`longhaul ls | head`); other errors, such as a full disk, are failures.
///
/// # Errors
/// `Local`.
pub(crate) fn ignore_broken_pipe(printed: std::io::Result<()>) -> Result<(), CopyFailure> {
    match printed {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CopyFailure::local(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line of JSON on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn print_json(value: &serde_json::Value) -> std::io::Result<()> {
    print_line(&printable_json(&value.to_string()))
}

/// Prints a line on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn print_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn own_lines_stay_lines() {
        assert_eq!(escape_lines("a\nb"), "a\nb");
    }

    #[test]
    fn listings_are_escaped_for_a_terminal_and_exact_for_a_program() {
        let name = b"a\x1b[2J\xff";
        assert_eq!(escape_if_terminal(name, false), name);
        assert_eq!(escape_if_terminal(name, true), b"a\\x1b[2J\\xff");
    }

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
