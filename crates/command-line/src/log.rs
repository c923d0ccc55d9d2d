//! The log on standard error: one line per event, even if a peer's text contains control characters.

use std::io::{self, Write};

use clap::ValueEnum;
use proto::printable::{printable, printable_json};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Formats of messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Libraries whose messages are about their own parts (statements, pools): what a user must know of them, the programs say.
const SILENT: [&str; 1] = ["sqlx"];

/// The messages that are logged: from `level` on, unless `RUST_LOG` says otherwise.
pub fn log_filter(level: &str) -> Targets {
    std::env::var("RUST_LOG")
        .ok()
        .and_then(|value| value.parse::<Targets>().ok())
        .unwrap_or_else(|| own_messages(level))
}

/// The messages of the programs from `level` on.
fn own_messages(level: &str) -> Targets {
    let own: Targets = level.parse().unwrap_or_default();
    own.with_targets(SILENT.map(|library| (library, LevelFilter::OFF)))
}

/// Writes log messages to standard error; `RUST_LOG` overrides the level.
pub fn log_to_stderr(format: LogFormat, level: &str) {
    let filter = log_filter(level);
    let builder = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_target(false)
        // Colours are escape sequences, which the log writer would escape.
        .with_ansi(false)
        .with_writer(move || LogWriter::new(format, io::stderr()));
    // It fails only if a subscriber is set already, and each process calls this once.
    let _ = match format {
        LogFormat::Text => builder.finish().with(filter).try_init(),
        LogFormat::Json => builder.json().finish().with(filter).try_init(),
    };
}

/// Escapes log events. Each write must be one event with its line end.
struct LogWriter<W> {
    format: LogFormat,
    out: W,
}

impl<W> LogWriter<W> {
    fn new(format: LogFormat, out: W) -> Self {
        Self { format, out }
    }
}

impl<W: Write> Write for LogWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // Only the final line end is kept; any other one is escaped, so that an event stays one
        // line.
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let escaped = match (self.format, str::from_utf8(line)) {
            (LogFormat::Json, Ok(json)) => printable_json(json),
            _ => printable(line).to_string(),
        };
        let end = if line.len() < event.len() { "\n" } else { "" };
        self.out.write_all(format!("{escaped}{end}").as_bytes())?;
        // The length of the input, because escapes make the output longer.
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: LogFormat, event: &str) -> String {
        let mut out = Vec::new();
        LogWriter::new(format, &mut out)
            .write_all(event.as_bytes())
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn libraries_do_not_speak_to_users() {
        let filter = own_messages("info");
        let level = |filter: LevelFilter| filter.into_level().unwrap();
        assert!(filter.would_enable("queue::worker", &level(LevelFilter::INFO)));
        for target in [
            "sqlx::query",
            "sqlx::pool::acquire",
            "sqlx::postgres::notice",
        ] {
            assert!(
                !filter.would_enable(target, &level(LevelFilter::ERROR)),
                "{target}"
            );
        }
    }

    #[test]
    fn line_breaks_and_terminal_controls_in_an_event_are_escaped() {
        assert_eq!(
            written(
                LogFormat::Text,
                "INFO logged in user=a\nINFO b\u{2028}\x1b[2J\u{202e}\n"
            ),
            "INFO logged in user=a\\x0aINFO b\\u{2028}\\x1b[2J\\u{202e}\n"
        );
        assert_eq!(
            written(LogFormat::Json, "{\"user\":\"a\u{85}\u{2028}\"}\n"),
            "{\"user\":\"a\\u0085\\u2028\"}\n"
        );
    }
}
