//! `guard`: the process between a worker and its program.

use std::time::Duration;

use command_line::flags::queue::QueueGuardArgs;
use queue::decisions::lease::LeaseDeadlines;
use queue::guard;
use units::Exit;

use crate::asking::QueueFailure;

pub(crate) fn run(args: &QueueGuardArgs) -> Result<Exit, QueueFailure> {
    match &args.lock {
        None => guard::become_child(args.parent.unwrap_or(0), &args.command)?,
        Some(lock) => {
            let time = |milliseconds: Option<u64>| Duration::from_millis(milliseconds.unwrap_or(0));
            let deadlines = LeaseDeadlines {
                stop: time(args.stop_at),
                kill: time(args.kill_at),
            };
            guard::run(lock, deadlines, &args.command)?;
        }
    }
    Ok(Exit::Done)
}
