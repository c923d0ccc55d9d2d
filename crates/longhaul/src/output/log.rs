//! The log on standard error: one event, one line, whatever strangers put into it.

use std::io::{self, Write};

use proto::printable::{printable, printable_json};

/// Which escapes keep a line readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEscaping {
    /// `\x1b`
    Text,
    /// `\u001b`
    Json,
}

/// Standard error for a log. Each write is one event with its line end.
pub(crate) struct LogWriter<W> {
    form: LogEscaping,
    out: W,
}

impl<W> LogWriter<W> {
    pub(crate) fn new(form: LogEscaping, out: W) -> Self {
        Self { form, out }
    }
}

impl<W: Write> Write for LogWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let shown = match (self.form, str::from_utf8(line)) {
            (LogEscaping::Json, Ok(json)) => printable_json(json),
            _ => printable(line).to_string(),
        };
        let end = if line.len() < event.len() { "\n" } else { "" };
        self.out.write_all(format!("{shown}{end}").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: LogEscaping, event: &str) -> String {
        let mut out = Vec::new();
        LogWriter::new(form, &mut out)
            .write_all(event.as_bytes())
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nothing_in_an_event_makes_a_second_line_or_acts_on_a_terminal() {
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
