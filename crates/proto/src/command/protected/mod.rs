//! Commands inside MIC, CONF and ENC at the server (RFC 2228 §3).

use super::Command;
use crate::line::{LineEvent, LineReader};
use crate::security::Secret;

/// Protection of a command inside MIC, CONF or ENC (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandProtection {
    /// MIC: integrity.
    Safe,
    /// CONF: confidentiality.
    Confidential,
    /// ENC: both.
    Private,
}

/// Replaces a line of a session whose commands travel in tokens by the command inside it.
///
/// The driver calls this for every line in the order of arrival, before it queues the line: each token
/// must be passed to the mechanism exactly once and in order. `unwrap` checks and removes the protection;
/// `limit` is that of the command inside, bytes. A line without protection stays as it is, and the session
/// refuses it. A token with several lines gives several events.
pub fn unwrap_line<E>(
    line: LineEvent,
    limit: usize,
    unwrap: impl FnOnce(CommandProtection, &[u8]) -> Result<Vec<u8>, E>,
    out: &mut Vec<LineEvent>,
) {
    let LineEvent::Line(bytes) = &line else {
        out.push(line);
        return;
    };
    let (protection, token) = match Command::parse(bytes) {
        Ok(Command::Mic(token)) => (CommandProtection::Safe, token),
        Ok(Command::Conf(token)) => (CommandProtection::Confidential, token),
        Ok(Command::Enc(token)) => (CommandProtection::Private, token),
        // A token that cannot be decoded is missing from the mechanism's sequence.
        Err(_) if is_protected_command(bytes) => return out.push(LineEvent::Forged),
        _ => return out.push(line),
    };
    match unwrap(protection, token.as_bytes()) {
        // The driver's buffer is wiped with the token, since it may hold a password.
        Ok(plain) => read_lines(&Secret(plain), limit, out),
        Err(_) => out.push(LineEvent::Forged),
    }
}

fn is_protected_command(line: &[u8]) -> bool {
    let verb = line.split(|b| *b == b' ').next().unwrap_or_default();
    ["MIC", "CONF", "ENC"]
        .iter()
        .any(|name| verb.eq_ignore_ascii_case(name.as_bytes()))
}

/// Reads the lines of a plain text as those of a connection, so that Telnet sequences mean the same.
fn read_lines(plain: &Secret, limit: usize, out: &mut Vec<LineEvent>) {
    // Some clients end the text with NUL, others leave out the line ending.
    let text = plain.0.strip_suffix(b"\0");
    let text = text.unwrap_or(&plain.0);
    let mut lines = Vec::new();
    let mut reader = LineReader::new(limit);
    reader.feed(text, &mut lines);
    if !text.ends_with(b"\n") {
        reader.feed(b"\n", &mut lines);
    }
    out.extend(lines.into_iter().map(|mut event| match &mut event {
        LineEvent::Line(bytes) => LineEvent::Protected(std::mem::take(bytes)),
        _ => event,
    }));
}

#[cfg(test)]
mod tests;
