//! `--json`: one object per line on standard output, each with a field `"event"` and the time in `"time"`. The schema is
//! docs/json-schema/copy-events.schema.json.

use copy::{CopyEvent, CopyForecast, CopyProgress, CopySummary, ForecastSource, PathForecast};
use jiff::Timestamp;
use serde_json::{Value, json};
use tune::forecast::Forecast;

use super::forecast_text::known_by;
use super::pace::Pace;

/// Prints an event, except decisions, which `--trace` has as JSON. `pace`: at a progress event.
pub(super) fn print_event(event: &CopyEvent, pace: Pace) {
    // The copy continues even if nothing reads standard output any more.
    if let Some(line) = event_to_json(event, pace) {
        print_with_time(line);
    }
}

/// Prints that the rate limit was suspended, or is in force again. `bits_per_second`: the limit; `None`: none.
pub(super) fn print_rate_limit(is_suspended: bool, bits_per_second: Option<f64>) {
    print_with_time(json!({
        "event": "rate_limit", "suspended": is_suspended, "limit_bps": bits_per_second,
    }));
}

/// Prints the summary, which is the last line.
pub(crate) fn print_summary(s: &CopySummary) {
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
        "error": s.first_failure.as_ref().map(ToString::to_string),
        "safe": s.safe.map(|safe| safe.bytes),
    });
    // The exit code reports the result even if nothing reads standard output.
    print_with_time(line);
}

fn print_with_time(mut line: Value) {
    if let Value::Object(fields) = &mut line {
        let now = format!("{:.3}", Timestamp::now());
        fields.insert("time".to_owned(), now.into());
    }
    let _ = super::print_json(&line);
}

fn event_to_json(event: &CopyEvent, pace: Pace) -> Option<Value> {
    Some(match event {
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
        CopyEvent::Continuing { files } => json!({"event": "continuing", "files": files}),
        CopyEvent::Progress(progress) => progress_to_json(progress, pace),
        CopyEvent::Decision { .. } | CopyEvent::Listed => return None,
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
        CopyEvent::Forecast(forecast) => forecast_to_json(forecast),
        CopyEvent::Deleted { path } => json!({"event": "deleted", "path": path}),
        CopyEvent::WouldDelete { path } => json!({"event": "would_delete", "path": path}),
        CopyEvent::Failed {
            source, failure, ..
        } => json!({
            "event": "failed", "source": source,
            "exit": failure.exit() as u8, "error": failure.to_string(),
        }),
        CopyEvent::Retrying {
            source,
            reason,
            attempt,
            after,
            away,
        } => json!({
            "event": "retrying", "source": source, "reason": reason,
            "attempt": attempt, "after_seconds": after.as_secs_f64(),
            "away_seconds": away.map(|away| away.since.as_secs_f64()),
        }),
        CopyEvent::Warning(text) => json!({"event": "warning", "text": text}),
    })
}

fn forecast_to_json(forecast: &CopyForecast) -> Value {
    let with_time = |mut fields: Value, time: Option<Forecast>| {
        fields["eta_seconds"] = json!(time.map(|time| time.expected.as_secs_f64()));
        fields["eta_earliest_seconds"] = json!(time.map(|time| time.earliest.as_secs_f64()));
        fields["eta_latest_seconds"] = json!(time.map(|time| time.latest.as_secs_f64()));
        fields
    };
    let path = |path: &PathForecast| {
        let fields = json!({
            "source": path.source,
            "destination": path.destination,
            "files": path.files,
            "bytes": path.bytes,
            "unsized_files": path.unsized_files,
            "settings": path.settings,
            "known_by": match path.known_by {
                ForecastSource::History => Some("history"),
                ForecastSource::Advice(_) => Some("advice"),
                _ => None,
            },
            "reason": known_by(path),
            "rate_bps": path.rate.map(|rate| rate.bytes_per_second as f64 * 8.0),
            "rate_spread_percent": path.rate.map(|rate| rate.spread_percent),
        });
        with_time(fields, path.time)
    };
    let paths: Vec<Value> = forecast.paths.iter().map(path).collect();
    let fields = json!({
        "event": "forecast",
        "files": forecast.files,
        "bytes": forecast.bytes,
        "paths": paths,
    });
    with_time(fields, forecast.time)
}

fn progress_to_json(progress: &CopyProgress, pace: Pace) -> Value {
    let current = progress.current.as_ref();
    json!({
        "event": "progress",
        "seconds": progress.elapsed.as_secs_f64(),
        "bytes": progress.bytes,
        "safe": progress.safe,
        "done": progress.done,
        "total_bytes": progress.total_bytes,
        "files": progress.files,
        "total_files": progress.total_files,
        "is_listed": progress.is_listed,
        "rate_bps": pace.bytes_per_second * 8.0,
        "files_per_second": pace.files_per_second,
        "eta_seconds": pace.left.map(|left| left.expected.as_secs_f64()),
        "eta_earliest_seconds": pace.left.map(|left| left.earliest.as_secs_f64()),
        "eta_latest_seconds": pace.left.map(|left| left.latest.as_secs_f64()),
        "silent_seconds": pace.silent.as_secs_f64(),
        "moving": progress.moving,
        "current": current.map(|file| json!({
            "source": file.source, "bytes": file.bytes, "done": file.done,
        })),
        "streams": progress.streams,
        "buffer_bytes": progress.buffer_bytes,
        "limiter": progress.limiter,
        "away_seconds": progress.away.map(|away| away.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_has_its_event_name_and_fields() {
        let failure = copy::Failure::new(copy::FailureKind::NotFound, "no such file");
        let failed = CopyEvent::Failed {
            source: "ftp://h/a".into(),
            failure,
            cause: String::new(),
        };
        let line = event_to_json(&failed, Pace::default()).unwrap();
        assert_eq!(line["event"], "failed");
        assert_eq!(line["exit"], 4);
        assert_eq!(
            event_to_json(&CopyEvent::Warning("w".into()), Pace::default()).unwrap()["event"],
            "warning"
        );
    }
}
