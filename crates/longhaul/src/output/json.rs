//! `--json`: one object per line on standard output, each with a field `"event"`.

use client::{CopyEvent, CopyObserver, CopySummary};
use serde_json::{Value, json};

/// Prints each event as a JSON object.
pub(super) struct JsonObserver;

impl CopyObserver for JsonObserver {
    fn on_event(&self, event: CopyEvent) {
        // The copy continues even if nothing reads standard output any more.
        let _ = super::print_json(&event_to_json(&event));
    }
}

/// Prints the summary, which is the last line.
pub(super) fn print_summary(s: &CopySummary) {
    let line = json!({
        "event": "summary",
        "bytes": s.bytes,
        "seconds": s.seconds,
        "goodput_bps": s.goodput_bps,
        "streams_max": s.streams_max,
        "buffer": s.buffer,
        "buffer_bytes_max": s.buffer_bytes_max,
        "memory_bytes_max": s.memory_bytes_max,
        "retransmits": s.retransmits,
        "resent_bytes": s.resent_bytes,
        "verified": s.verified,
        "limited_by": s.limited_by,
        "why": s.why,
        "security": s.security,
        "files": s.files,
        "failed": s.failed,
        "skipped": s.skipped,
        "kept": s.kept,
        "deleted": s.deleted,
        "exit": s.exit as u8,
        "error": s.first_failure.as_ref().map(|f| f.message.clone()),
    });
    // The exit code reports the result even if nothing reads standard output.
    let _ = super::print_json(&line);
}

fn event_to_json(event: &CopyEvent) -> Value {
    match event {
        CopyEvent::Planned { files, bytes } => {
            json!({"event": "planned", "files": files, "bytes": bytes})
        }
        CopyEvent::Started {
            source,
            destination,
            bytes,
            resumed,
        } => json!({
            "event": "started", "source": source, "destination": destination,
            "bytes": bytes, "resumed": resumed,
        }),
        CopyEvent::Progress {
            bytes,
            safe,
            streams,
            buffer_bytes,
            limiter,
        } => json!({
            "event": "progress", "bytes": bytes, "safe": safe,
            "streams": streams, "buffer_bytes": buffer_bytes, "limiter": limiter,
        }),
        CopyEvent::Finished {
            source,
            destination,
            bytes,
            verified,
        } => json!({
            "event": "finished", "source": source, "destination": destination,
            "bytes": bytes, "verified": verified,
        }),
        CopyEvent::Skipped { source, reason } => {
            json!({"event": "skipped", "source": source, "reason": reason})
        }
        CopyEvent::Kept {
            source,
            destination,
        } => json!({"event": "kept", "source": source, "destination": destination}),
        CopyEvent::WouldCopy {
            source,
            destination,
            bytes,
        } => json!({
            "event": "would_copy", "source": source, "destination": destination, "bytes": bytes,
        }),
        CopyEvent::Deleted { path } => json!({"event": "deleted", "path": path}),
        CopyEvent::WouldDelete { path } => json!({"event": "would_delete", "path": path}),
        CopyEvent::Failed { source, failure } => json!({
            "event": "failed", "source": source,
            "exit": failure.exit as u8, "error": failure.message,
        }),
        CopyEvent::Retrying {
            source,
            reason,
            attempt,
            after,
        } => json!({
            "event": "retrying", "source": source, "reason": reason,
            "attempt": attempt, "after_seconds": after.as_secs_f64(),
        }),
        CopyEvent::Warning(text) => json!({"event": "warning", "text": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_has_its_event_name_and_fields() {
        let failure = client::CopyFailure {
            exit: client::Exit::NotFound,
            message: "no such file".into(),
            transient: false,
            no_room: false,
        };
        let line = event_to_json(&CopyEvent::Failed {
            source: "ftp://h/a".into(),
            failure,
        });
        assert_eq!(line["event"], "failed");
        assert_eq!(line["exit"], 4);
        assert_eq!(
            event_to_json(&CopyEvent::Warning("w".into()))["event"],
            "warning"
        );
    }
}
