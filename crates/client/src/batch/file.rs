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
use crate::Failure;
use crate::location::Location;
use crate::partial::Target;
use crate::tree::Facts;

/// Copies one file. A failure comes with the bytes that were moved in vain. With `--wait`, each look at
/// whether another copy is still at it begins anew: what there is to do may have changed meanwhile.
pub(super) async fn copy(ctx: &Context, item: &Item) -> Result<Outcome, (u64, Failure)> {
    let meter = ctx.meter.begin(item.source.display());
    let mut waited = 0;
    loop {
        if ctx.options.keep_existing
            && let Some(outcome) = existing(ctx, item).await.map_err(|f| (0, f))?
        {
            return Ok(outcome);
        }
        match move_file(ctx, item, &meter).await {
            Err(failure) if failure.is_occupied() && ctx.options.wait => {
                ctx.wait_for_turn(&failure, waited).await;
                waited += 1;
            }
            result => return result.map_err(|failure| (meter.moved(), failure)),
        }
    }
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
            persist(ctx, &shown, meter, &mut job).await
        }
        (_, destination) => {
            let target = target(destination)?;
            here::copy(ctx, item, &target, meter).await
        }
    }
}

fn target(destination: &Location) -> Result<Target, Failure> {
    match destination {
        Location::Local(path) => Target::at(path),
        _ => Target::stdout(),
    }
}

/// `--keep-existing`: a destination that exists is left alone, whatever it holds. One that does not
/// look like the source is named in a warning.
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
    if let Some(difference) = difference(item.facts, there) {
        ctx.warn(format!(
            "{} exists and {difference} {}; it was left alone",
            item.destination.display(),
            item.source.display()
        ));
    }
    Ok(Some(Outcome::Kept))
}

/// Why `there` is no copy of a source with these facts, as far as both are known.
fn difference(source: Facts, there: Facts) -> Option<&'static str> {
    let differ = |(a, b): (u64, u64)| a != b;
    if source.size.zip(there.size).is_some_and(differ) {
        return Some("has another size than");
    }
    let older = source.modified.zip(there.modified);
    let older = older.is_some_and(|(source, there)| there.0 < source.0);
    older.then_some("is older than")
}

/// Of what is at a local path: a file, or a link to nowhere, which a copy would replace.
fn local_facts(path: &Path) -> Option<Facts> {
    match fs::metadata(path) {
        Ok(meta) => meta.is_file().then(|| Facts::of_local(&meta)),
        Err(_) => fs::symlink_metadata(path).ok().map(|_| Facts::default()),
    }
}

#[cfg(test)]
mod tests {
    use proto::timestamp::Timestamp;

    use super::*;

    #[test]
    fn a_kept_file_differs_by_size_or_by_being_older() {
        let facts = |size, modified| Facts {
            size,
            modified: modified_at(modified),
        };
        let source = facts(Some(5), Some(100));
        for same in [
            source,
            facts(Some(5), Some(200)),
            facts(Some(5), None),
            facts(None, None),
        ] {
            assert_eq!(difference(source, same), None);
        }
        assert!(difference(source, facts(Some(6), Some(100))).is_some());
        assert!(difference(source, facts(Some(5), Some(99))).is_some());
    }

    fn modified_at(seconds: Option<i64>) -> Option<Timestamp> {
        seconds.map(Timestamp)
    }
}
