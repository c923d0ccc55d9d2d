//! Lines on standard output and standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use proto::printable::{printable, printable_json};

/// Prints a message on standard error. All messages go this way, because it escapes terminal control
/// sequences that a peer may have put into the text. A closed standard error is ignored.
pub fn print_to_stderr(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape_lines(message));
}

/// Escapes control characters in each line of a message.
pub fn escape_lines(message: &str) -> String {
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
pub fn print_listing_line(line: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
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

/// Whether printing has failed because the reader of standard output has ended: it has enough (`longhaul ls | head`), which is
/// no failure of the verb.
pub fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Takes a reader that has ended for no failure of printing. A verb that changes something goes on with it.
///
/// # Errors
/// Standard output is full, or cannot be written for another reason.
pub fn unless_reader_gone(printed: io::Result<()>) -> io::Result<()> {
    printed.or_else(|error| match is_reader_gone(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

/// Prints a line of JSON on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub fn print_json(value: &serde_json::Value) -> io::Result<()> {
    print_line(&printable_json(&value.to_string()))
}

/// Prints a line on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_ended_is_no_failure_and_a_full_disk_is() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let printed = writer.write_all(b"x");
        assert!(printed.is_err());
        unless_reader_gone(printed).unwrap();
        let full = Err(ErrorKind::StorageFull.into());
        assert!(unless_reader_gone(full).is_err());
    }

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
}
