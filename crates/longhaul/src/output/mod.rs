//! Output of a copy while it runs: JSON lines, a progress bar, progress lines, or errors only.

mod bar;
mod json;
mod lines;
pub(crate) mod log;

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use client::{CopyEvent, CopyFailure, CopyObserver, CopySummary, Exit};
use proto::printable::{printable, printable_json};
use units::show;

/// How a copy reports its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStyle {
    /// `--json`
    Json,
    /// `-q`
    Quiet,
    /// Text: a progress bar if standard error is a terminal, otherwise lines.
    Human,
}

/// The observer that prints a copy's events in this style.
pub(crate) fn observer_for(style: OutputStyle) -> Arc<dyn CopyObserver> {
    match style {
        OutputStyle::Json => Arc::new(json::JsonObserver),
        OutputStyle::Quiet => Arc::new(QuietObserver),
        OutputStyle::Human if std::io::stderr().is_terminal() => Arc::new(bar::BarObserver::new()),
        OutputStyle::Human => Arc::new(lines::LineObserver::new()),
    }
}

/// Prints the summary of a copy.
pub(crate) fn print_summary(style: OutputStyle, summary: &CopySummary, why: bool) {
    match style {
        OutputStyle::Json => json::print_summary(summary),
        OutputStyle::Quiet => {}
        // The failures are printed already, and no file arrived.
        OutputStyle::Human if summary.files == 0 && summary.failed > 0 => {}
        OutputStyle::Human => print_to_stderr(&summary_line(summary)),
    }
    if why && style != OutputStyle::Json {
        print_to_stderr(&summary.why);
    }
}

fn summary_line(s: &CopySummary) -> String {
    let count = |n: u64, what: &str| {
        let plural = if n == 1 { "" } else { "s" };
        format!("{n} {what}{plural}")
    };
    let mut text = format!(
        "{}: {} in {:.1} s, {}",
        count(s.files, "file"),
        show::bytes(s.bytes),
        s.seconds,
        show::rate(s.goodput_bps),
    );
    if s.files > 0 {
        text.push_str(&verification_text(&s.verified));
    }
    if s.resent_bytes > 0 {
        text.push_str(&format!(
            "; {} arrived wrong and were sent again",
            show::bytes(s.resent_bytes)
        ));
    }
    if s.kept > 0 {
        text.push_str(&format!("; kept {}", count(s.kept, "existing file")));
    }
    // `skipped` includes the kept files, which were counted above.
    if s.skipped > s.kept {
        text.push_str(&format!("; {} skipped", s.skipped - s.kept));
    }
    if s.deleted > 0 {
        text.push_str(&format!("; {} deleted", s.deleted));
    }
    if s.failed > 0 {
        text.push_str(&format!("; {} failed", s.failed));
    }
    text
}

/// The part of the summary that says how the files were verified.
fn verification_text(how: &str) -> String {
    match how {
        "none" => ", not verified".to_owned(),
        "size" => ", verified by size only, without a checksum".to_owned(),
        "reflink" => ", shares its blocks with the source (reflink)".to_owned(),
        how => format!(", verified by {how}"),
    }
}

/// The part of a progress line about the streams: their number, their largest buffer, and the
/// bottleneck as far as this end can see it.
fn streams_text(streams: u64, buffer: Option<u64>, limiter: Option<&str>) -> String {
    let plural = if streams == 1 { "" } else { "s" };
    let mut text = format!(", {streams} stream{plural}");
    if let Some(bytes) = buffer {
        text.push_str(&format!(", {} buffer", show::bytes(bytes)));
    }
    if let Some(limiter) = limiter {
        text.push_str(&format!(", limited by {limiter}"));
    }
    text
}

/// Prints a message on standard error. All messages go this way, because it escapes terminal control
/// sequences that a peer may have put into the text. A closed standard error is ignored.
pub(crate) fn print_to_stderr(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", escape_lines(message));
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
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CopyFailure::new(
            Exit::Local,
            format!("standard output: {error}"),
        )),
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

/// Prints errors only.
struct QuietObserver;

impl CopyObserver for QuietObserver {
    fn on_event(&self, event: CopyEvent) {
        if let CopyEvent::Failed { failure, .. } = event {
            print_to_stderr(&format!("longhaul: {}", failure.message));
        }
    }
}

/// The message for an event that is shown with a bar and with lines alike; `None` for progress.
fn event_message(event: &CopyEvent) -> Option<String> {
    match event {
        CopyEvent::Failed { failure, .. } => Some(format!("longhaul: {}", failure.message)),
        CopyEvent::Warning(text) => Some(format!("longhaul: warning: {text}")),
        CopyEvent::Skipped { source, reason } => {
            Some(format!("longhaul: {source} skipped: {reason}"))
        }
        CopyEvent::WouldCopy {
            source,
            destination,
            bytes,
        } => {
            let size = bytes.map(|bytes| format!(" ({})", show::bytes(bytes)));
            let size = size.unwrap_or_default();
            Some(format!("would copy {source} to {destination}{size}"))
        }
        CopyEvent::Deleted { path } => Some(format!("deleted {path}")),
        CopyEvent::WouldDelete { path } => Some(format!("would delete {path}")),
        CopyEvent::Retrying {
            source,
            reason,
            attempt,
            after,
        } => Some(format!(
            "longhaul: {source}: {reason}; attempt {attempt} in {:.0} s, continuing from the safe data",
            after.as_secs_f64().max(1.0)
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Clears the screen, reverses the text direction, and separates lines.
    const HOSTILE: &str = "x\u{1b}[2J\u{9b}31m\u{202e}gpj\u{2028}\r";

    #[test]
    fn control_characters_in_events_are_escaped() {
        let failure = CopyFailure {
            exit: Exit::Protocol,
            message: format!("h:21 refused to read {HOSTILE}: 550 {HOSTILE}"),
            transient: false,
            no_room: false,
        };
        let source = format!("ftp://h/{HOSTILE}");
        let events = [
            CopyEvent::Failed {
                source: source.clone(),
                failure,
            },
            CopyEvent::Warning(HOSTILE.to_owned()),
            CopyEvent::Skipped {
                source: source.clone(),
                reason: HOSTILE.to_owned(),
            },
            CopyEvent::Retrying {
                source,
                reason: HOSTILE.to_owned(),
                attempt: 2,
                after: std::time::Duration::ZERO,
            },
        ];
        for event in events {
            let line = escape_lines(&event_message(&event).unwrap());
            assert!(!line.contains(proto::printable::needs_escape), "{line:?}");
            assert!(line.contains("x\\x1b[2J\\u{9b}31m\\u{202e}gpj"), "{line}");
        }
        assert_eq!(escape_lines("a\nb"), "a\nb", "own lines stay lines");
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
        assert_eq!(verification_text("none"), ", not verified");
    }

    #[test]
    fn a_progress_line_shows_streams_buffer_and_limiter() {
        assert_eq!(streams_text(1, None, None), ", 1 stream");
        assert_eq!(
            streams_text(4, Some(8 << 20), Some("receive window")),
            format!(
                ", 4 streams, {} buffer, limited by receive window",
                show::bytes(8 << 20)
            )
        );
    }
}
