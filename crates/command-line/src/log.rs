//! The log on standard error: one line per event, even if a peer's text contains control characters. The journal of systemd
//! gets the level as it reads it, and no time, which it knows itself.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;

use clap::ValueEnum;
use proto::printable::{printable, printable_json};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Formats of messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text, with time and level, or as systemd's journal takes them if standard error leads there.
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
fn log_filter(level: &str) -> Targets {
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
        LogFormat::Text if is_journal() => {
            let lines = builder.event_format(JournalLine::new());
            lines.finish().with(filter).try_init()
        }
        LogFormat::Text => builder.finish().with(filter).try_init(),
        LogFormat::Json => builder.json().finish().with(filter).try_init(),
    };
}

/// Whether standard error leads to the journal: systemd names device and inode of its stream in JOURNAL_STREAM
/// (systemd.exec(5)), which programs that write elsewhere inherit, too.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM");
    named.is_ok_and(|stream| is_stream(&stream, io::stderr()))
}

fn is_stream(named: &str, output: impl AsFd) -> bool {
    let output = rustix::fs::fstat(output);
    output.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Events as the journal reads them: the priority of syslog in angle brackets (sd-daemon(3)), the message, its fields.
struct JournalLine(Format<Full, ()>);

impl JournalLine {
    fn new() -> Self {
        let event = Format::default().without_time().with_level(false);
        Self(event.with_target(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalLine
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(line, "<{priority}>")?;
        self.0.format_event(context, line, event)
    }
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
    use std::io::{Read, Seek};
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_stream_is_the_journal_only_if_device_and_inode_are_those_of_the_variable() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        let (device, inode) = (meta.dev(), meta.ino());
        assert!(is_stream(&format!("{device}:{inode}"), &file));
        for other in ["", "0:0", &format!("{device}:{}", inode + 1)] {
            assert!(!is_stream(other, &file), "{other}");
        }
    }

    #[test]
    fn an_entry_of_the_journal_has_its_priority_and_all_fields_in_its_line() {
        let mut out = tempfile::tempfile().unwrap();
        let lines = tracing_subscriber::fmt().event_format(JournalLine::new());
        let lines = lines
            .with_writer(Arc::new(out.try_clone().unwrap()))
            .finish();
        tracing::subscriber::with_default(lines, || {
            tracing::warn!(error = "no room", "not stored");
            tracing::info!(user = "ann", "logged in");
        });
        let mut written = String::new();
        out.rewind().unwrap();
        out.read_to_string(&mut written).unwrap();
        assert_eq!(
            written,
            "<4>not stored error=\"no room\"\n<6>logged in user=\"ann\"\n"
        );
    }

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
