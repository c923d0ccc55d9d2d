//! `submit`: jobs from the command line or a file.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use command_line::flags::queue::QueueSubmitArgs;
use command_line::output::{print_json, print_line, unless_reader_gone};
use queue::copy::{CopyParts, CopyVerb, QueuedCopy};
use queue::store::submit::MOST_AT_ONCE;
use serde_json::json;
use units::Exit;

use crate::asking::{QueueFailure, ask};

/// Longest file of jobs, bytes.
const LONGEST_FILE: u64 = 256 << 20;

pub(crate) fn run(args: &QueueSubmitArgs) -> Result<Exit, QueueFailure> {
    // All are checked before the first is added.
    let jobs = match &args.from {
        None => vec![QueuedCopy::new(parts(args, args.places.clone()))?],
        Some(file) => jobs_of(args, file)?,
    };
    let after = args.after.unwrap_or(Duration::ZERO);
    ask(&args.database, async |queue| {
        for part in jobs.chunks(MOST_AT_ONCE) {
            for id in queue.submit(part, after).await? {
                let printed = match args.json {
                    true => print_json(&json!({ "job": id })),
                    false => print_line(&id.to_string()),
                };
                // All are submitted, whoever reads on.
                unless_reader_gone(printed).map_err(QueueFailure::Output)?;
            }
        }
        Ok(Exit::Done)
    })
}

fn parts(args: &QueueSubmitArgs, places: Vec<String>) -> CopyParts {
    let owner = match &args.owner {
        Some(owner) => owner.clone(),
        None => own_name(),
    };
    CopyParts {
        verb: match args.sync {
            true => CopyVerb::Sync,
            false => CopyVerb::Cp,
        },
        places,
        options: args.options.clone(),
        owner,
        sessions: args.sessions,
        rate: args.limit_rate.map(units::Rate::as_bits_per_second),
        credential: args.credential.clone(),
        retries: args.retries,
    }
}

/// The name of this process's user.
fn own_name() -> String {
    let names = ["USER", "LOGNAME"];
    let name = names.iter().find_map(|name| std::env::var(name).ok());
    let name = name.filter(|name| queue::copy::is_name(name));
    let id = rustix::process::getuid().as_raw();
    // Services have no such variable.
    name.unwrap_or_else(|| format!("uid-{id}"))
}

fn jobs_of(args: &QueueSubmitArgs, file: &Path) -> Result<Vec<QueuedCopy>, QueueFailure> {
    let shown = file.display().to_string();
    let text = match file == Path::new("-") {
        true => {
            let mut text = String::new();
            let mut input = std::io::stdin().lock().take(LONGEST_FILE);
            input.read_to_string(&mut text).map(|_| text)
        }
        false => smallfile::regular_file::read_to_string(file, LONGEST_FILE),
    };
    let text = text.map_err(QueueFailure::local(format!("cannot read {shown}")))?;
    let mut jobs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() {
            continue;
        }
        let wrong = |cause: String| QueueFailure::Line {
            file: shown.clone(),
            line: index + 1,
            cause,
        };
        let (source, destination) = line
            .split_once('\t')
            .ok_or_else(|| wrong("there is no tab between source and destination".to_owned()))?;
        let places = vec![source.to_owned(), destination.to_owned()];
        let job = QueuedCopy::new(parts(args, places));
        jobs.push(job.map_err(|error| wrong(error.to_string()))?);
    }
    Ok(jobs)
}
