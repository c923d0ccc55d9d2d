//! The messages for people about the events of a copy.

use std::time::Duration;

use copy::CopyEvent;
use units::show;

use super::forecast_text::forecast_text;
use super::progress_text::whole_seconds;
use super::summary_text::{are, verification_text};

/// How much it takes to see a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageLevel {
    /// Shown always, also with `-q`.
    Error,
    /// Shown without any flag.
    Notice,
    /// Shown with `-v`.
    Detail,
}

/// The message for an event; `None` where nothing is said.
pub(super) fn event_message(event: &CopyEvent) -> Option<(MessageLevel, String)> {
    use MessageLevel::{Detail, Error, Notice};
    Some(match event {
        CopyEvent::Failed { failure, .. } => (Error, format!("longhaul: {failure}")),
        CopyEvent::Warning(text) => (Notice, format!("longhaul: warning: {text}")),
        CopyEvent::Skipped { source, reason } => {
            (Notice, format!("longhaul: {source} skipped: {reason}"))
        }
        CopyEvent::WouldCopy {
            source,
            destination,
            bytes,
        } => {
            let size = bytes.map(|bytes| format!(" ({})", show::bytes(bytes)));
            let size = size.unwrap_or_default();
            (
                Notice,
                format!("would copy {source} to {destination}{size}"),
            )
        }
        CopyEvent::Forecast(forecast) => (Notice, forecast_text(forecast)),
        CopyEvent::Deleted { path } => (Notice, format!("deleted {path}")),
        CopyEvent::WouldDelete { path } => (Notice, format!("would delete {path}")),
        CopyEvent::Retrying {
            source,
            reason,
            attempt,
            after,
            away,
        } => {
            let how = match away {
                Some(away) => {
                    let patience = (away.since + away.left).as_secs_f64().round();
                    let patience = Duration::from_secs_f64(patience);
                    format!("reconnecting for up to {}", whole_seconds(patience))
                }
                None => {
                    let after = after.as_secs_f64().max(1.0);
                    format!("attempt {attempt} in {after:.0} s, continuing from the safe data")
                }
            };
            (Notice, format!("longhaul: {source}: {reason}; {how}"))
        }
        CopyEvent::Decision { source, text } => (
            Detail,
            match source {
                Some(source) => format!("{source}: {text}"),
                None => text.clone(),
            },
        ),
        CopyEvent::Finished {
            source,
            destination,
            bytes,
            verified,
        } => (
            Detail,
            format!(
                "copied {source} to {destination}: {} moved{}",
                show::bytes(*bytes),
                verification_text(verified)
            ),
        ),
        CopyEvent::Kept { destination, .. } => (Detail, format!("{destination} exists: kept")),
        CopyEvent::Continuing { files } => (
            Notice,
            format!(
                "longhaul: going on with an earlier run, of which {} in place (--restart begins anew)",
                are(*files)
            ),
        ),
        CopyEvent::Planned { .. }
        | CopyEvent::Listed
        | CopyEvent::Started { .. }
        | CopyEvent::Progress(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::escape_lines;
    use super::*;

    /// Clears the screen, reverses the text direction, and separates lines.
    const HOSTILE: &str = "x\u{1b}[2J\u{9b}31m\u{202e}gpj\u{2028}\r";

    #[test]
    fn control_characters_in_events_are_escaped() {
        let message = format!("h:21 refused to read {HOSTILE}: 550 {HOSTILE}");
        let failure = copy::Failure::protocol(message);
        let source = format!("ftp://h/{HOSTILE}");
        let events = [
            CopyEvent::Failed {
                source: source.clone(),
                failure,
                cause: String::new(),
            },
            CopyEvent::Warning(HOSTILE.to_owned()),
            CopyEvent::Skipped {
                source: source.clone(),
                reason: HOSTILE.to_owned(),
            },
            CopyEvent::Decision {
                source: Some(source.clone()),
                text: "begins with 1 stream".to_owned(),
            },
            CopyEvent::Retrying {
                source,
                reason: HOSTILE.to_owned(),
                attempt: 2,
                after: Duration::ZERO,
                away: None,
            },
        ];
        for event in events {
            let line = escape_lines(&event_message(&event).unwrap().1);
            assert!(!line.contains(proto::printable::needs_escape), "{line:?}");
            assert!(line.contains("x\\x1b[2J\\u{9b}31m\\u{202e}gpj"), "{line}");
        }
    }
}
