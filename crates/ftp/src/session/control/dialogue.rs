//! The dialogue of control connections in the log: events with the target [`DIALOGUE`] at level debug.

use proto::command::Command;
use proto::printable::printable;
use proto::reply::Reply;

/// Target of the events. Each has the fields `server`, `direction` (`>`: sent, `<`: received) and `line`, in which secrets
/// are masked.
pub const DIALOGUE: &str = "longhaul::dialogue";

pub(super) fn log_command(server: &str, command: &Command) {
    tracing::debug!(target: DIALOGUE, server, direction = ">", line = %command.for_log());
}

/// A command without secrets.
pub(super) fn log_line(server: &str, line: &[u8]) {
    tracing::debug!(target: DIALOGUE, server, direction = ">", line = %printable(line));
}

/// A line of another protocol, with `<` or `>` for its direction. `line` is called only if somebody reads it.
pub fn log_dialogue(server: &str, direction: &str, line: impl FnOnce() -> String) {
    if tracing::enabled!(target: DIALOGUE, tracing::Level::DEBUG) {
        let line = line();
        let line = printable(&line);
        tracing::debug!(target: DIALOGUE, server, direction, %line);
    }
}

/// The proxy through which a connection was opened, before its first line.
pub(crate) fn log_proxy(server: &str, proxy: &impl std::fmt::Display) {
    let line = format!("(through the proxy {proxy})");
    tracing::debug!(target: DIALOGUE, server, direction = ">", line);
}

pub(super) fn log_reply(server: &str, reply: &Reply) {
    // The lines are made only if somebody reads them.
    if !tracing::enabled!(target: DIALOGUE, tracing::Level::DEBUG) {
        return;
    }
    let lines = reply.lines_for_log();
    let last = lines.len().saturating_sub(1);
    for (number, text) in lines.iter().enumerate() {
        let separator = if number == last { ' ' } else { '-' };
        let line = format!("{:03}{separator}{text}", reply.code);
        tracing::debug!(target: DIALOGUE, server, direction = "<", line);
    }
}
