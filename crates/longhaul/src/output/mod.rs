//! What a copy shows while it runs: JSON lines, a progress bar, a line now and then, or nothing.

mod bar;
mod json;
mod lines;

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use client::{Event, Observer, Summary};

use crate::units::{show_bytes, show_rate};

/// How a copy reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `--json`
    Json,
    /// `-q`
    Quiet,
    /// Standard error is a terminal, or not.
    People,
}

/// The observer for a style.
pub(crate) fn observer(style: Style) -> Arc<dyn Observer> {
    match style {
        Style::Json => Arc::new(json::JsonLines),
        Style::Quiet => Arc::new(Quiet),
        Style::People if std::io::stderr().is_terminal() => Arc::new(bar::Bar::new()),
        Style::People => Arc::new(lines::Lines::new()),
    }
}

/// The end of a copy.
pub(crate) fn finish(style: Style, summary: &Summary, why: bool) {
    match style {
        Style::Json => json::summary(summary),
        Style::Quiet => {}
        // The failures have been said, and there is nothing else to tell.
        Style::People if summary.files == 0 && summary.failed > 0 => {}
        Style::People => say(&people_summary(summary)),
    }
    if why && style != Style::Json {
        say(&summary.why);
    }
}

fn people_summary(s: &Summary) -> String {
    let count = |n: u64, what: &str| {
        let plural = if n == 1 { "" } else { "s" };
        format!("{n} {what}{plural}")
    };
    let mut text = format!(
        "{}: {} in {:.1} s, {}",
        count(s.files, "file"),
        show_bytes(s.bytes),
        s.seconds,
        show_rate(s.goodput_bps),
    );
    if s.files > 0 {
        text.push_str(&match s.verified.as_str() {
            "none" => ", not verified".into(),
            "size" => ", verified by size only: the other end has no checksums".into(),
            how => format!(", verified by {how}"),
        });
    }
    if s.skipped > 0 {
        text.push_str(&format!("; {} skipped", s.skipped));
    }
    if s.failed > 0 {
        text.push_str(&format!("; {} failed", s.failed));
    }
    text
}

/// What a progress line says of the streams, to follow the rate: their number, their largest buffer,
/// and what limits them as far as this end sees.
fn on_the_wire(streams: u64, buffer: Option<u64>, limiter: Option<&str>) -> String {
    let plural = if streams == 1 { "" } else { "s" };
    let mut text = format!(", {streams} stream{plural}");
    if let Some(bytes) = buffer {
        text.push_str(&format!(", {} buffer", show_bytes(bytes)));
    }
    if let Some(limiter) = limiter {
        text.push_str(&format!(", limited by {limiter}"));
    }
    text
}

/// One line on standard error. A closed standard error loses the line and nothing else.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// One line on standard output; `Err` when nobody reads it any more.
pub(crate) fn print(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Errors only.
struct Quiet;

impl Observer for Quiet {
    fn event(&self, event: Event) {
        if let Event::Failed { failure, .. } = event {
            say(&format!("longhaul: {}", failure.message));
        }
    }
}

/// The events that people see whatever the display.
fn notice(event: &Event) -> Option<String> {
    match event {
        Event::Failed { failure, .. } => Some(format!("longhaul: {}", failure.message)),
        Event::Warning(text) => Some(format!("longhaul: warning: {text}")),
        Event::Skipped { source, reason } => Some(format!("longhaul: {source} skipped: {reason}")),
        Event::Retrying {
            source,
            reason,
            attempt,
            after,
        } => Some(format!(
            "longhaul: {source}: {reason}; attempt {attempt} in {:.0} s, going on from what is safe",
            after.as_secs_f64().max(1.0)
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_tells_streams_and_limiter() {
        assert_eq!(on_the_wire(1, None, None), ", 1 stream");
        assert_eq!(
            on_the_wire(4, Some(8 << 20), Some("receive window")),
            format!(
                ", 4 streams, {} buffer, limited by receive window",
                show_bytes(8 << 20)
            )
        );
    }
}
