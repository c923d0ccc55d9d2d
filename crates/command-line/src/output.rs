//! Lines on standard output and standard error.

use std::io::{IsTerminal, Write};

use proto::printable::{printable, printable_json};

/// Prints a message on standard error. All messages go this way, because it escapes terminal control
/// sequences that a peer may have put into the text. A closed standard error is ignored.
pub fn print_to_stderr(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", escape_lines(message));
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
pub fn print_listing_line(line: &[u8]) -> std::io::Result<()> {
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

/// Prints a line of JSON on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub fn print_json(value: &serde_json::Value) -> std::io::Result<()> {
    print_line(&printable_json(&value.to_string()))
}

/// Prints a line on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub fn print_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
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
}
