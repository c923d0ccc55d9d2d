//! Where the lines of a copy go: to standard error, above the bar, and to the log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthStr;

use super::escape_lines;

/// Width of a terminal that does not say its own.
const DEFAULT_COLUMNS: usize = 80;

/// Standard error with a bar below the messages, and a log.
#[derive(Debug, Default)]
pub(crate) struct Console {
    bar: Mutex<DrawnBar>,
    log: Option<Mutex<File>>,
}

/// The lines that stand below all messages.
#[derive(Debug, Default)]
struct DrawnBar {
    lines: Vec<String>,
}

impl Console {
    /// With a log file, to which lines are added. A new file is readable for its owner alone.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn with_log(path: Option<&Path>) -> io::Result<Self> {
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600).open(path)
        };
        Ok(Self {
            bar: Mutex::default(),
            log: path.map(open).transpose()?.map(Mutex::new),
        })
    }

    /// Prints a message on standard error, and adds it to the log.
    pub(crate) fn print(&self, message: &str) {
        self.add_to_log(message);
        self.show(message);
    }

    /// Adds a message to the log, with the time before each line.
    pub(crate) fn add_to_log(&self, message: &str) {
        let Some(log) = &self.log else { return };
        let now = Timestamp::now();
        let lines: String = escape_lines(message)
            .lines()
            .map(|line| format!("{now:.3} {line}\n"))
            .collect();
        // The copy goes on even if the disk with the log is full.
        let _ = log.lock().write_all(lines.as_bytes());
    }

    /// Prints a message on standard error alone.
    fn show(&self, message: &str) {
        let bar = self.bar.lock();
        let columns = columns();
        let text = format!(
            "{}{}\n{}",
            bar.erased(columns),
            escape_lines(message),
            bar.lines.join("\n")
        );
        write_to_stderr(&text);
    }

    /// Draws the bar. `lines` makes its lines for a number of columns.
    pub(crate) fn draw_bar(&self, lines: impl FnOnce(usize) -> Vec<String>) {
        let mut bar = self.bar.lock();
        let columns = columns();
        let erased = bar.erased(columns);
        // The last column stays empty: behind it, some terminals begin a new line.
        bar.lines = lines(columns.saturating_sub(1));
        write_to_stderr(&format!("{erased}{}", bar.lines.join("\n")));
    }

    /// Removes the bar.
    pub(crate) fn clear_bar(&self) {
        let mut bar = self.bar.lock();
        write_to_stderr(&bar.erased(columns()));
        bar.lines.clear();
    }
}

impl DrawnBar {
    /// The control sequence that removes the lines. A terminal that has become narrower shows each in several rows.
    fn erased(&self, columns: usize) -> String {
        let rows = self.lines.iter().map(|line| rows_of(line, columns));
        match rows.sum::<usize>() {
            0 => String::new(),
            // The cursor is in the last row. CUU and ED of ECMA-48.
            1 => "\r\x1b[J".to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }
}

fn rows_of(line: &str, columns: usize) -> usize {
    line.width().div_ceil(columns.max(1)).max(1)
}

/// Columns of the terminal now.
fn columns() -> usize {
    match tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => DEFAULT_COLUMNS,
    }
}

/// One call, so that no other program's output comes between. A closed standard error is ignored.
fn write_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_bar_is_removed_with_all_rows_that_it_has_in_a_narrower_terminal() {
        let bar = DrawnBar {
            lines: vec!["x".repeat(79), "y".repeat(60)],
        };
        assert_eq!(bar.erased(80), "\r\x1b[1A\x1b[J");
        assert_eq!(bar.erased(40), "\r\x1b[3A\x1b[J");
        assert_eq!(DrawnBar::default().erased(80), "");
    }

    #[test]
    fn a_log_is_added_to_has_times_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for text in ["first\nsecond", "th\u{1b}ird"] {
            let console = Console::with_log(Some(&path)).unwrap();
            console.add_to_log(text);
        }
        let written = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = written
            .lines()
            .map(|l| l.split_once(' ').unwrap())
            .collect();
        assert!(
            lines
                .iter()
                .all(|(time, _)| time.parse::<Timestamp>().is_ok())
        );
        let texts: Vec<_> = lines.iter().map(|(_, text)| *text).collect();
        assert_eq!(texts, ["first", "second", "th\\x1bird"]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
