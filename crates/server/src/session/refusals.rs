//! Log lines about refused commands by which a client may try what it must not. The state machine refuses
//! them by itself, so no other part of the server has logged the reason. Their rate is bounded, because a
//! client could send nothing else.

use std::time::{Duration, Instant};

use proto::line::LineEvent;
use proto::printable::printable;
use proto::reply::Reply;
use proto::server::{FileError, FileErrorKind, SessionAction};

/// Commands that name an address; their arguments are no secret. That of DPRT has one.
const ADDRESS_VERBS: [&str; 3] = ["PORT", "EPRT", "SPOR"];

/// Longest command in a log line, bytes.
const SHOWN: usize = 200;

/// Lines that a session may log at once.
const BURST: u32 = 20;
/// Time in which a session may log another line after that.
const INTERVAL: Duration = Duration::from_secs(10);

/// The log of one session's refused commands.
#[derive(Debug)]
pub(super) struct RefusalLog {
    /// Lines that may be logged now.
    left: u32,
    /// Time up to which `left` is counted.
    counted: Instant,
    /// Refusals since the last line that were not logged.
    omitted: u64,
}

impl RefusalLog {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted: now,
            omitted: 0,
        }
    }

    /// Logs the refusal of a line for lack of protection or for its address, if it is one.
    pub(super) fn log_refused_line(&mut self, line: &LineEvent, actions: &[SessionAction]) {
        let Some(reply) = actions.iter().find_map(refusal_of) else {
            return;
        };
        let (verb, command) = match line {
            LineEvent::Line(bytes) | LineEvent::Protected(bytes) => shown(bytes),
            LineEvent::TooLong => return,
            LineEvent::Forged => {
                tracing::warn!("a forged or damaged command ends the session");
                return;
            }
        };
        // The driver logs other refused logins with their reason.
        let is_security = match reply.code {
            501 => ADDRESS_VERBS.contains(&verb.as_str()),
            530 => verb == "USER",
            code => matches!(code, 521 | 533 | 534 | 536),
        };
        if !is_security {
            return;
        }
        if let Some(omitted) = self.admit(Instant::now()) {
            tracing::info!(%command, code = reply.code, reply = %reply.for_log(), omitted, "command refused");
        }
    }

    /// Logs a request that the session's rights forbid: those of its account, or the scopes of its token. What
    /// the system forbids (an errno) is no attempt at others' rights.
    pub(super) fn log_denied_request(&mut self, error: &FileError) {
        if error.kind != FileErrorKind::Denied || error.errno.is_some() {
            return;
        }
        if let Some(omitted) = self.admit(Instant::now()) {
            tracing::info!(reason = error.text, omitted, "request refused");
        }
    }

    /// Counts a refusal. Returns the number of those before it that were not logged; `None`: nor may this one
    /// be.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let passed = now.duration_since(self.counted).as_secs() / INTERVAL.as_secs();
        let gained = u32::try_from(passed).unwrap_or(u32::MAX);
        self.counted = match gained {
            0..BURST => self.counted + INTERVAL * gained,
            _ => now,
        };
        self.left = self.left.saturating_add(gained).min(BURST);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.omitted))
            }
            None => {
                self.omitted += 1;
                None
            }
        }
    }
}

fn refusal_of(action: &SessionAction) -> Option<&Reply> {
    match action {
        SessionAction::Reply(reply) if reply.code >= 400 => Some(reply),
        _ => None,
    }
}

/// The verb of a line, and what of the line may be logged: arguments may be secrets.
fn shown(line: &[u8]) -> (String, String) {
    let verb = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let name = String::from_utf8_lossy(verb).to_ascii_uppercase();
    let text = match ADDRESS_VERBS.contains(&name.as_str()) {
        true => line,
        false => verb,
    };
    let text = printable(&text[..text.len().min(SHOWN)]).to_string();
    (name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_logs_a_burst_and_then_a_line_an_interval() {
        let start = Instant::now();
        let mut log = RefusalLog::new(start);
        let lines = (0..1000).filter_map(|_| log.admit(start));
        assert_eq!(lines.collect::<Vec<_>>(), [0; BURST as usize]);
        assert_eq!(log.admit(start + INTERVAL - Duration::from_millis(1)), None);
        assert_eq!(log.admit(start + INTERVAL), Some(1000 - 20 + 1));
        assert_eq!(log.admit(start + INTERVAL), None);
        // A quiet client gets its burst again, and no more than that.
        let later = start + 1000 * INTERVAL;
        let lines = (0..1000).filter_map(|_| log.admit(later));
        assert_eq!(lines.collect::<Vec<_>>().len(), 20);
    }

    #[test]
    fn arguments_are_shown_only_of_commands_that_name_addresses() {
        for (line, verb, text) in [
            ("PASS secret", "PASS", "PASS"),
            ("port 192,0,2,1,4,5", "PORT", "port 192,0,2,1,4,5"),
            ("EPRT |1|192.0.2.1|2000|", "EPRT", "EPRT |1|192.0.2.1|2000|"),
            ("DPRT 1 nonce", "DPRT", "DPRT"),
            ("\x1b[2J x", "\x1b[2J", "\\x1b[2J"),
            ("", "", ""),
        ] {
            let expected = (verb.to_owned(), text.to_owned());
            assert_eq!(shown(line.as_bytes()), expected);
        }
        let long = [b"PORT ".as_slice(), &[b'1'; 5000]].concat();
        assert_eq!(shown(&long).1.len(), SHOWN);
    }
}
