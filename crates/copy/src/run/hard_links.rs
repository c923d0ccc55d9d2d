//! Makes the hard links of a plan, after the files are written.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;

use data::os::stat;
use data::store::durability::SyncPolicy;
use parking_lot::Mutex;

use crate::batch::BatchContext;
use crate::file::preserve;
use crate::local::disk::run_blocking;
use crate::local::local_name::{LocalName, is_file};
use crate::local::partial::local_failure;
use crate::local::replacement::temporary_name;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedHardLink};
use ftp::Failure;
use ftp::location::Location;

/// Destinations at which a copy has not put its file: what is there is older, and gets no further name.
#[derive(Default)]
pub(crate) struct FilesNotCopied {
    /// Two paths of one hash do no harm: a name is then copied as a file of its own.
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl FilesNotCopied {
    /// Adds a destination.
    pub(crate) fn add(&mut self, at: &Location) {
        self.hashes.insert(self.hasher.hash_one(at.path()));
    }

    /// Adds the files of a plan that are not done.
    ///
    /// # Errors
    /// The plan cannot be read.
    pub(crate) fn add_rest_of(&mut self, plan: &CopyPlan) -> io::Result<()> {
        let mut reader = PlanReader::of(plan);
        loop {
            match reader.next(plan)? {
                NextEntry::Entry(PlannedEntry::File(item)) => self.add(&item.destination),
                NextEntry::Entry(PlannedEntry::Unlisted { destination, .. }) => {
                    self.add(&destination);
                }
                NextEntry::Entry(_) => {}
                NextEntry::Pending | NextEntry::End => return Ok(()),
            }
        }
    }

    fn contains(&self, at: &Location) -> bool {
        self.hashes.contains(&self.hasher.hash_one(at.path()))
    }
}

/// Result of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkOutcome {
    /// The name was made, or replaced.
    Made,
    /// Both were names of one file already.
    InPlace,
}

/// Whether both are names of one file already.
pub(crate) fn is_in_place(ctx: &BatchContext, link: &PlannedHardLink) -> bool {
    let identity = |at: &Location| {
        let there = name_of(ctx, at)?.own_stat().ok()?;
        Some(stat::inode(&there))
    };
    let (first, other) = (identity(&link.first), identity(&link.file.destination));
    first.is_some() && first == other
}

/// Whether something has the further name already.
pub(crate) fn is_taken(ctx: &BatchContext, link: &PlannedHardLink) -> bool {
    name_of(ctx, &link.file.destination).is_some_and(|name| name.is_taken())
}

fn name_of(ctx: &BatchContext, at: &Location) -> Option<LocalName> {
    match at {
        Location::Local(path) => ctx.trees.name(path).ok(),
        Location::StandardStreams | Location::Remote { .. } => None,
    }
}

/// Gives a file that has been copied its further name, in place of what has that name.
///
/// # Errors
/// `Local`: the file was not copied, or the file system takes no link; then nothing has changed.
pub(crate) async fn make(
    ctx: &BatchContext,
    link: &PlannedHardLink,
    not_copied: &Mutex<FilesNotCopied>,
) -> Result<LinkOutcome, Failure> {
    let is_copied = !not_copied.lock().contains(&link.first);
    if is_copied && is_in_place(ctx, link) {
        return Ok(LinkOutcome::InPlace);
    }
    let (Location::Local(first), Location::Local(path)) = (&link.first, &link.file.destination)
    else {
        return Err(Failure::local("hard links are for local files"));
    };
    let names = (ctx.trees.name(first), ctx.trees.name(path));
    let first = names.0.map_err(|e| local_failure(first, e))?;
    let other = names.1.map_err(|e| local_failure(path, e))?;
    let (size, policy) = (link.file.facts.size, ctx.options.file.sync_policy);
    let modified = preserve::kept_of_file(ctx.options.file.preserve, link.file.facts).modified;
    run_blocking(move || {
        let there = first.own_stat();
        let there = there.map_err(|e| local_failure(first.path(), io::Error::from(e)))?;
        // The file may have changed since it was listed or copied.
        let has_its_time = modified.is_none_or(|time| time.0 == there.st_mtime);
        let has_its_size = u64::try_from(there.st_size).ok() == size;
        if !is_copied || !is_file(&there) || !has_its_size || !has_its_time {
            return Err(local_failure(
                first.path(),
                "is not the copy that gets a further name",
            ));
        }
        replace_by_link(&first, &other, policy).map_err(|e| local_failure(other.path(), e))
    })
    .await
    .map(|()| LinkOutcome::Made)
}

/// The name never disappears: the link has another one first.
fn replace_by_link(first: &LocalName, name: &LocalName, policy: SyncPolicy) -> io::Result<()> {
    let temporary = name.beside(temporary_name("link").as_bytes());
    first.link(&temporary)?;
    if let Err(errno) = temporary.rename(name) {
        let _ = temporary.remove();
        return Err(errno.into());
    }
    name.sync_directory(policy)
}
