//! `list`, `show`, `cancel`, `retry`.

use std::time::Duration;

use command_line::flags::queue::{QueueJobsArgs, QueueListArgs, QueueShowArgs};
use command_line::output::{print_json, print_listing_line, print_to_stderr};
use queue::http::report;
use queue::store::{AttemptRow, JobFilter, JobRow, JobState, QueueError, TransferQueue};
use serde_json::json;
use units::{Exit, show};

use crate::asking::{QueueFailure, ask};

pub(crate) fn list(args: &QueueListArgs) -> Result<Exit, QueueFailure> {
    let states = args.state.iter().map(|name| {
        JobState::from_name(name).ok_or_else(|| {
            let names = JobState::ALL.map(JobState::name).join(", ");
            QueueFailure::Usage(format!("--state {name}: use one of {names}"))
        })
    });
    let filter = JobFilter {
        owner: args.owner.clone(),
        states: states.collect::<Result<_, _>>()?,
        below: args.below,
        most: args.most,
    };
    ask(&args.database, async |queue| {
        for job in queue.jobs(&filter).await? {
            let printed = match args.json {
                true => print_json(&report::job(&job)),
                false => print_listing_line(line(&job).as_bytes()),
            };
            printed.map_err(QueueFailure::Output)?;
        }
        Ok(Exit::Done)
    })
}

pub(crate) fn show(args: &QueueShowArgs) -> Result<Exit, QueueFailure> {
    ask(&args.database, async |queue| {
        let found = queue.job(args.job).await?;
        let (job, attempts) = found.ok_or(QueueFailure::NoJob(args.job))?;
        let left = time_left(&queue, &job).await?;
        if args.json {
            let mut object = report::job(&job);
            object["eta_seconds"] = json!(left.map(|left| left.as_secs_f64()));
            print_json(&object).map_err(QueueFailure::Output)?;
            for attempt in &attempts {
                print_json(&report::attempt(attempt)).map_err(QueueFailure::Output)?;
            }
            return Ok(Exit::Done);
        }
        for line in details(&job, left).iter().chain(&history(&attempts)) {
            print_listing_line(line.as_bytes()).map_err(QueueFailure::Output)?;
        }
        Ok(Exit::Done)
    })
}

/// Time to the end of a job: told by the program that copies, or estimated by what waits before it.
async fn time_left(queue: &TransferQueue, job: &JobRow) -> Result<Option<Duration>, QueueFailure> {
    Ok(match job.state {
        Some(JobState::Running) => {
            let left = job.progress.left_seconds;
            left.and_then(|left| Duration::try_from_secs_f64(left).ok())
        }
        Some(JobState::Waiting) => queue.time_left(job.id).await?,
        _ => None,
    })
}

pub(crate) fn cancel(args: &QueueJobsArgs) -> Result<Exit, QueueFailure> {
    change(args, "cancel", TransferQueue::cancel)
}

pub(crate) fn retry(args: &QueueJobsArgs) -> Result<Exit, QueueFailure> {
    change(args, "retry", TransferQueue::retry)
}

fn change(
    args: &QueueJobsArgs,
    verb: &str,
    call: impl AsyncFnOnce(&TransferQueue, &[i64]) -> Result<Vec<i64>, QueueError>,
) -> Result<Exit, QueueFailure> {
    let changed = ask(&args.database, async |queue| {
        Ok(call(&queue, &args.jobs).await?)
    })?;
    let mut exit = Exit::Done;
    for id in args.jobs.iter().filter(|id| !changed.contains(id)) {
        print_to_stderr(&format!(
            "longhaul queue {verb}: job {id} is not there, or its state does not permit this"
        ));
        exit = Exit::Partial;
    }
    Ok(exit)
}

fn line(job: &JobRow) -> String {
    let state = job.state.map_or("?", JobState::name);
    let (owner, from, to) = match &job.copy {
        Ok(copy) => {
            let parts = copy.parts();
            let place = |place: Option<&String>| place.cloned().unwrap_or_default();
            let more = if parts.places.len() > 2 { " ..." } else { "" };
            let from = place(parts.places.first()) + more;
            (parts.owner.clone(), from, place(parts.places.last()))
        }
        Err(error) => (String::new(), error.to_string(), String::new()),
    };
    let done = done(job).unwrap_or_default();
    format!(
        "{:>8}  {state:9}  {owner:12}  {done:>6}  {from} -> {to}",
        job.id
    )
}

fn done(job: &JobRow) -> Option<String> {
    let (done, total) = (job.progress.done_bytes?, job.progress.total_bytes?);
    let percent = done.min(total).saturating_mul(100).checked_div(total)?;
    Some(format!("{percent} %"))
}

fn details(job: &JobRow, left: Option<Duration>) -> Vec<String> {
    let mut lines = vec![line(job)];
    if let Ok(copy) = &job.copy {
        let parts = copy.parts();
        lines.push(format!(
            "command: longhaul {} {}",
            parts.verb.word(),
            words(copy)
        ));
        if let Some(name) = &parts.credential {
            lines.push(format!("credential: {name}"));
        }
    }
    if job.is_cancelled && job.state == Some(JobState::Running) {
        lines.push("cancelled: the worker ends it".to_owned());
    }
    if let Some(worker) = &job.worker {
        let rate = job.progress.now_bps.map(show::rate);
        let rate = rate.map_or(String::new(), |rate| format!(", {rate}"));
        lines.push(format!("runs at: {worker}{rate}"));
    }
    let wait = job.not_before - job.now;
    if job.state == Some(JobState::Waiting) && wait > 0.0 {
        lines.push(format!("next attempt: in {wait:.0} s"));
    }
    if let Some(left) = left {
        let left = Duration::from_secs(left.as_secs());
        lines.push(format!("ends: in about {}", show::time(left)));
    }
    if let Some(error) = &job.error {
        lines.push(format!("failure: {error}"));
    }
    lines
}

/// Options and places of a job.
fn words(copy: &queue::copy::QueuedCopy) -> String {
    let parts = copy.parts();
    let words = parts.options.iter().chain(&parts.places);
    let words: Vec<&str> = words.map(String::as_str).collect();
    words.join(" ")
}

fn history(attempts: &[AttemptRow]) -> Vec<String> {
    let line = |attempt: &AttemptRow| {
        let outcome = attempt.outcome.as_deref().unwrap_or("running");
        let bytes = attempt.bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let bytes = bytes.map_or(String::new(), |bytes| format!(", {}", show::bytes(bytes)));
        let exit = attempt
            .exit
            .map_or(String::new(), |exit| format!(", exit code {exit}"));
        let time = attempt.ended.map(|ended| ended - attempt.started);
        let time = time.map_or(String::new(), |time| format!(", {time:.1} s"));
        let error = attempt
            .error
            .as_deref()
            .map_or(String::new(), |error| format!(": {error}"));
        let worker = &attempt.worker;
        format!(
            "attempt {}: {outcome} at {worker}{time}{bytes}{exit}{error}",
            attempt.number
        )
    };
    attempts.iter().map(line).collect()
}
