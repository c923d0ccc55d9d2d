//! Jobs, attempts and the queue as JSON: of `--json`, and of the HTTP server.

use serde_json::{Value, json};

use crate::decisions::fleet::EndpointLimit;
use crate::store::{AttemptRow, JobRow, JobState, QueueOverview, StateCounts};

/// A job as one object.
pub fn job(row: &JobRow) -> Value {
    let progress = &row.progress;
    let mut object = json!({
        "job": row.id,
        "state": row.state.map(JobState::name),
        "cancelled": row.is_cancelled,
        "submitted": row.submitted,
        "not_before": row.not_before,
        "ended": row.ended,
        "attempts": row.attempts,
        "failures": row.failures,
        "losses": row.losses,
        "worker": row.worker,
        "granted_sessions": row.granted,
        "done_bytes": progress.done_bytes,
        "total_bytes": progress.total_bytes,
        "done_files": progress.done_files,
        "total_files": progress.total_files,
        "rate_bps": progress.now_bps,
        "eta_seconds": progress.left_seconds,
        "exit": row.exit,
        "error": row.error,
    });
    match &row.copy {
        Ok(copy) => {
            let parts = copy.parts();
            let (destination, sources) = parts.places.split_last().unzip();
            object["owner"] = json!(parts.owner);
            object["verb"] = json!(parts.verb.word());
            object["sources"] = json!(sources);
            object["destination"] = json!(destination);
            object["options"] = json!(parts.options);
            object["sessions"] = json!(parts.sessions);
            object["limit_rate_bps"] = json!(parts.rate);
            object["credential"] = json!(parts.credential);
            object["retries"] = json!(parts.retries);
        }
        Err(error) => object["invalid"] = json!(error.to_string()),
    }
    object
}

/// An attempt as one object.
pub fn attempt(row: &AttemptRow) -> Value {
    json!({
        "attempt": row.number,
        "worker": row.worker,
        "started": row.started,
        "ended": row.ended,
        "outcome": row.outcome.as_deref().unwrap_or("running"),
        "exit": row.exit,
        "error": row.error,
        "bytes": row.bytes,
        "files": row.files,
        "seconds": row.seconds,
        "verified": row.verified,
    })
}

/// The limits of an endpoint as one object.
pub fn limit(limit: &EndpointLimit) -> Value {
    json!({
        "endpoint": limit.endpoint,
        "sessions": limit.sessions,
        "rate_bps": limit.rate,
        "hours": limit.hours.map(|hours| hours.to_string()),
        "time_zone": limit.zone,
    })
}

/// The queue as one object.
pub fn overview(queue: &QueueOverview) -> Value {
    let counts = |jobs: &StateCounts| -> Value {
        let named = jobs
            .iter()
            .map(|(state, jobs)| (state.name().to_owned(), json!(jobs)));
        Value::Object(named.collect())
    };
    let owners = queue
        .owners
        .iter()
        .map(|row| json!({"owner": row.owner, "jobs": counts(&row.jobs)}));
    let workers = queue.workers.iter().map(|row| {
        json!({
            "worker": row.name, "slots": row.slots, "running": row.running, "started": row.started,
        })
    });
    json!({
        "jobs": counts(&queue.jobs),
        "owners": owners.collect::<Vec<_>>(),
        "attempts": queue.attempts,
        "bytes": queue.bytes,
        "workers": workers.collect::<Vec<_>>(),
        "limits": queue.limits.iter().map(limit).collect::<Vec<_>>(),
        "running": queue.running.iter().map(job).collect::<Vec<_>>(),
        "ended": queue.ended.iter().map(job).collect::<Vec<_>>(),
    })
}
