//! Log lines about refused commands by which a client may try what it must not. The state machine refuses
//! them by itself, so no other part of the server has logged the reason.

use proto::line::LineEvent;
use proto::printable::printable;
use proto::reply::Reply;
use proto::server::SessionAction;

/// Commands that name an address; their arguments are no secret. That of DPRT has one.
const ADDRESS_VERBS: [&str; 3] = ["PORT", "EPRT", "SPOR"];

/// Longest command in a log line, bytes.
const SHOWN: usize = 200;

/// Logs the refusal of a line for lack of protection or for its address, if it is one.
pub(super) fn log_refused_line(line: &LineEvent, actions: &[SessionAction]) {
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
    if is_security {
        tracing::info!(%command, code = reply.code, reply = %reply.for_log(), "command refused");
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
