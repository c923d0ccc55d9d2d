//! Deletes what the destination has and the source does not.
//!
//! The listing that shows this is older than the copies. Some destinations change names, or join names that differ in their
//! letters' case alone: an extra may be what was just copied. So a directory in which something was copied is listed once
//! more, and nothing of it is deleted unless it shows all of that under its own names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use super::extras::{Extra, Extras};
use super::index::DestinationIndex;
use crate::batch::BatchContext;
use crate::batch::totals::{BatchTotals, report_failure};
use crate::events::CopyEvent;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry};
use crate::storage::collected::CollectedEntries;
use crate::storage::entry_names::{directory_of, join_path};
use ftp::Failure;
use ftp::answers::SymlinkCheckScope;
use ftp::location::{Location, StorageId};

/// Deletes what the source does not have, unless `guard` says why not. `plan`: what was copied.
pub(crate) async fn delete_extras(
    ctx: &BatchContext,
    to: &Location,
    there: &DestinationIndex,
    plan: &CopyPlan,
    guard: Option<&str>,
    totals: &Mutex<BatchTotals>,
) -> Result<(), Failure> {
    let id = to.storage_id();
    let mut extras = Extras::of(&ctx.options.tree, there);
    let mut copied = None;
    while let Some(Extra { at, is_directory }) = extras.next()? {
        if let Some(reason) = guard {
            let message = format!("nothing was deleted at {}: {reason}", to.display());
            return Err(Failure::refused(message));
        }
        let path = at.display();
        if ctx.options.dry_run {
            ctx.observer.on_event(CopyEvent::WouldDelete { path });
            continue;
        }
        let copied = match &mut copied {
            Some(copied) => copied,
            none => none.insert(CopiedNames::of(plan)?),
        };
        let removed = match copied.check_directory_of(ctx, &at).await {
            Ok(true) => remove_extra(ctx, &id, at.path(), is_directory).await,
            Ok(false) => continue,
            Err(failure) => Err(failure),
        };
        match removed {
            Ok(()) => {
                totals.lock().path_deleted();
                ctx.observer.on_event(CopyEvent::Deleted { path });
            }
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(failure) => {
                let place = at.display();
                report_failure(&ctx.observer, totals, place, failure);
            }
        }
    }
    Ok(())
}

async fn remove_extra(
    ctx: &BatchContext,
    id: &StorageId,
    path: &[u8],
    is_directory: bool,
) -> Result<(), Failure> {
    let mut request = ctx.request(id);
    loop {
        let mut session = request.session().await?;
        let removed = match is_directory {
            true => session.remove_tree(path).await,
            // A directory that has taken its place since stays.
            false => session.remove(path).await,
        };
        if request.end_removal(session, removed).await?.is_some() {
            return Ok(());
        }
    }
}

/// The names that a sync has given to copies.
struct CopiedNames {
    /// Hashes of paths.
    paths: HashSet<u64>,
    /// Their number by hashes of their directories.
    numbers: HashMap<u64, usize>,
    /// Whether directories show all of them, by hashes of their paths.
    shown: HashMap<u64, bool>,
    hasher: RandomState,
}

impl CopiedNames {
    /// The names of the entries of a plan.
    ///
    /// # Errors
    /// `Local`: the plan cannot be read.
    fn of(plan: &CopyPlan) -> Result<Self, Failure> {
        let mut names = Self {
            paths: HashSet::new(),
            numbers: HashMap::new(),
            shown: HashMap::new(),
            hasher: RandomState::new(),
        };
        let mut reader = PlanReader::of_all(plan);
        loop {
            let next = reader.next(plan).map_err(|error| {
                Failure::local(format!("the plan of the copy cannot be read: {error}"))
            })?;
            match next {
                NextEntry::Entry(PlannedEntry::Directory { at, .. }) => names.add(at.path()),
                NextEntry::Entry(PlannedEntry::File(file)) => names.add(file.destination.path()),
                NextEntry::Entry(PlannedEntry::Link(link)) => names.add(link.path.path()),
                NextEntry::Entry(PlannedEntry::HardLink(link)) => {
                    names.add(link.file.destination.path());
                }
                NextEntry::Entry(PlannedEntry::Unlisted { .. }) => {}
                NextEntry::Pending | NextEntry::End => return Ok(names),
            }
        }
    }

    fn add(&mut self, path: &[u8]) {
        if self.paths.insert(self.hasher.hash_one(path)) {
            let directory = self.hasher.hash_one(directory_of(path));
            *self.numbers.entry(directory).or_default() += 1;
        }
    }

    /// Whether the directory of an extra shows all that was copied into it. If it does not, that is the failure of the first
    /// extra, and `false` for the others.
    ///
    /// # Errors
    /// `Protocol`: it does not, or its listing is not complete. The storage is lost.
    async fn check_directory_of(
        &mut self,
        ctx: &BatchContext,
        extra: &Location,
    ) -> Result<bool, Failure> {
        let directory = directory_of(extra.path());
        let key = self.hasher.hash_one(directory);
        let Some(number) = self.numbers.get(&key).copied() else {
            return Ok(true);
        };
        if let Some(is_shown) = self.shown.get(&key) {
            return Ok(*is_shown);
        }
        let at = extra.with_path(directory.to_vec());
        let listed = list(ctx, &at).await;
        if listed.as_ref().is_err_and(Failure::may_retry) {
            return listed.map(|_| false);
        }
        let is_copied = |name: &Vec<u8>| {
            let path = join_path(directory, name);
            self.paths.contains(&self.hasher.hash_one(path))
        };
        let names = listed.map(|names| names.iter().filter(|name| is_copied(name)).count());
        self.shown.insert(key, names == Ok(number));
        match number - names?.min(number) {
            0 => Ok(true),
            lacking => {
                let at = at.display();
                Err(Failure::protocol(format!(
                    "nothing was deleted in {at}: {lacking} of the entries that were copied there are not listed under their \
                     names, so others may be their copies; compare both directories"
                )))
            }
        }
    }
}

/// The names in a directory.
async fn list(ctx: &BatchContext, at: &Location) -> Result<Vec<Vec<u8>>, Failure> {
    let id = at.storage_id();
    let path = match at.path() {
        b"" => b".",
        path => path,
    };
    let mut request = ctx.request(&id);
    loop {
        let mut session = request.session().await?;
        let scope = SymlinkCheckScope::Nothing;
        let listed = CollectedEntries::of(&mut *session, path, scope).await;
        let listed = listed.and_then(CollectedEntries::complete);
        if let Some(entries) = request.end(session, listed).await? {
            return Ok(entries.into_iter().map(|entry| entry.entry.name).collect());
        }
    }
}
