//! One file of a batch: which kind of copy it is, and what is there already.

use std::fs;
use std::path::Path;

use super::between::Between;
use super::get::Get;
use super::meter::FileMeter;
use super::persist::persist;
use super::plan::Item;
use super::put::Put;
use super::{Context, Outcome, here};
use crate::location::Location;
use crate::partial::Target;
use crate::tree::Facts;
use crate::{Exit, Failure};

/// Copies one file. A failure comes with the bytes that were moved in vain.
pub(super) async fn copy(ctx: &Context, item: &Item) -> Result<Outcome, (u64, Failure)> {
    let meter = ctx.meter.begin(item.source.display());
    if ctx.options.keep_existing
        && let Some(outcome) = existing(ctx, item).await.map_err(|f| (0, f))?
    {
        return Ok(outcome);
    }
    let result = move_file(ctx, item, &meter).await;
    result.map_err(|failure| (meter.moved(), failure))
}

async fn move_file(ctx: &Context, item: &Item, meter: &FileMeter) -> Result<Outcome, Failure> {
    let shown = item.source.display();
    match (&item.source, &item.destination) {
        (
            Location::Remote { server, path },
            Location::Remote {
                server: to,
                path: to_path,
            },
        ) => {
            let mut job = Between::new(ctx, item, (server, path), (to, to_path), meter)?;
            persist(ctx, &shown, meter, &mut job).await
        }
        (_, Location::Remote { server, path }) => {
            let mut job = Put::new(ctx, item, (server, path), meter)?;
            persist(ctx, &shown, meter, &mut job).await
        }
        (Location::Remote { server, path }, destination) => {
            let target = target(destination)?;
            let mut job = Get::new(ctx, item, (server, path), &target, meter)?;
            let result = persist(ctx, &shown, meter, &mut job).await;
            drop(job);
            clean_up(&target, result)
        }
        (_, destination) => {
            let target = target(destination)?;
            let result = here::copy(ctx, item, &target, meter).await;
            clean_up(&target, result)
        }
    }
}

fn target(destination: &Location) -> Result<Target, Failure> {
    match destination {
        Location::Local(path) => Target::at(path),
        _ => Target::stdout(),
    }
}

/// A failed copy that stored nothing leaves nothing.
fn clean_up(target: &Target, result: Result<Outcome, Failure>) -> Result<Outcome, Failure> {
    if result.is_err()
        && let Target::File(partial) = target
        && partial.length() == Some(0)
    {
        // What cannot be removed is an empty file with a recognisable name.
        let _ = fs::remove_file(&partial.path);
    }
    result
}

/// `--overwrite never`: a destination that exists is done if it agrees, and an error if not.
async fn existing(ctx: &Context, item: &Item) -> Result<Option<Outcome>, Failure> {
    let there = match &item.destination {
        Location::Pipe => None,
        Location::Local(path) => local_facts(path),
        Location::Remote { server, path } => {
            let mut session = ctx.session_for(server, Some(path)).await?;
            let result = session.stat(path).await;
            ctx.give_back(server, session, &result);
            match result {
                Ok(entry) => Some(Facts::of(&entry)),
                Err(failure) if failure.transient => return Err(failure),
                Err(_) => None,
            }
        }
    };
    let Some(there) = there else {
        return Ok(None);
    };
    let same_size = item.facts.size.is_some() && item.facts.size == there.size;
    let same_time = item.facts.modified.is_some() && item.facts.modified == there.modified;
    if same_size && same_time {
        let reason = "already in place, with the same size and time";
        return Ok(Some(Outcome::Skipped(reason.to_owned())));
    }
    Err(Failure::new(
        Exit::Integrity,
        format!(
            "{} exists and is not known to be the same file; it was left alone",
            item.destination.display()
        ),
    ))
}

fn local_facts(path: &Path) -> Option<Facts> {
    let meta = fs::metadata(path).ok()?;
    meta.is_file().then(|| Facts::of_local(&meta))
}
