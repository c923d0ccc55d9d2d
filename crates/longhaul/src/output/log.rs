//! The log on standard error: one line per event, even if a peer's text contains control characters.

use std::io::{self, Write};

use proto::printable::{printable, printable_json};

/// How control characters are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEscaping {
    /// `\x1b`
    Text,
    /// `\u001b`
    Json,
}

/// Escapes log events. Each write must be one event with its line end.
pub(crate) struct LogWriter<W> {
    escaping: LogEscaping,
    out: W,
}

impl<W> LogWriter<W> {
    pub(crate) fn new(escaping: LogEscaping, out: W) -> Self {
        Self { escaping, out }
    }
}

impl<W: Write> Write for LogWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // Only the final line end is kept; any other one is escaped, so that an event stays one
        // line.
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let escaped = match (self.escaping, str::from_utf8(line)) {
            (LogEscaping::Json, Ok(json)) => printable_json(json),
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

    fn written(escaping: LogEscaping, event: &str) -> String {
        let mut out = Vec::new();
        LogWriter::new(escaping, &mut out)
            .write_all(event.as_bytes())
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn line_breaks_and_terminal_controls_in_an_event_are_escaped() {
        assert_eq!(
            written(
                LogEscaping::Text,
                "INFO logged in user=a\nINFO b\u{2028}\x1b[2J\u{202e}\n"
            ),
            "INFO logged in user=a\\x0aINFO b\\u{2028}\\x1b[2J\\u{202e}\n"
        );
        assert_eq!(
            written(LogEscaping::Json, "{\"user\":\"a\u{85}\u{2028}\"}\n"),
            "{\"user\":\"a\\u0085\\u2028\"}\n"
        );
    }
}
