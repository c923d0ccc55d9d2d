//! Finds out whether the two trees of a sync are one, or one is in the other, whatever their names are: through bind mounts
//! and links, through two names of one server, through a server that serves a directory of this machine.
//!
//! On this machine a directory is known by device and inode. What servers tell of theirs (`Unique`) is a reason to look: two
//! machines may have the same numbers. A marker decides: an empty directory that is made at the destination, looked for in
//! the source, and removed. Whatever deletes makes one, because some servers tell nothing.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::index::DestinationIndex;
use crate::batch::BatchContext;
use crate::local::replacement::random_token;
use crate::plan::{join_location, trim_trailing_slashes};
use crate::storage::entry_names::join_path;
use crate::tree::TreeEntry;
use ftp::Failure;
use ftp::answers::SourceFacts;
use ftp::location::{Location, Scheme, Server, StorageId};

/// Entries of one tree by which a directory of the other is suspected to be its top.
const SAMPLED_ENTRIES: usize = 32;
/// A directory is suspected if it has one in so many of these entries, and as many as this: one of both listings may be
/// older.
const LIKENESS: usize = 4;
const LEAST_ALIKE: usize = 3;
/// Most directories of the destination that are tried with a marker.
const MAX_SUSPECTS: usize = 1000;

/// Watches both listings of a sync.
pub(crate) struct SameTreeWatch {
    from: Location,
    to: Location,
    /// Identities of the top directories.
    source: Option<u64>,
    destination: Option<u64>,
    /// Both trees are on this machine: equal identities are a proof, and others, too.
    is_local: bool,
    /// The sync deletes at a destination that exists.
    deletes: bool,
    /// Name of the marker.
    marker: Vec<u8>,
    is_marked: AtomicBool,
    /// Nothing shows whether the trees are different.
    is_unknown: AtomicBool,
    /// The source has the marker in it.
    has_met: AtomicBool,
    /// Some paths in the source.
    sample: Mutex<Vec<Vec<u8>>>,
    /// Some names in the top of the destination, and how many of them directories of the source have.
    names: Mutex<HashSet<Vec<u8>>>,
    likeness: Mutex<HashMap<Vec<u8>, usize>>,
    /// The directories of the destination by their identities, if both trees are on this machine.
    directories: Mutex<HashMap<u64, Vec<u8>>>,
    /// A directory of the source and one of the destination that may be one, relative to the tops; one of both is a top.
    suspects: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl SameTreeWatch {
    /// A watch over the trees `from` and `to`, with the facts of their tops, that of `to` if it exists. `deletes`: the sync
    /// deletes at the destination.
    ///
    /// # Errors
    /// `Usage`: the trees are one on this machine.
    pub(crate) fn new(
        from: &Location,
        source: SourceFacts,
        to: &Location,
        destination: Option<SourceFacts>,
        deletes: bool,
    ) -> Result<Self, Failure> {
        let local = |at: &Location| at.storage_id() == StorageId::LocalFiles;
        let top = |at: &Location| at.with_path(trim_trailing_slashes(at.path()).to_vec());
        let watch = Self {
            from: top(from),
            to: top(to),
            source: source.identity,
            destination: destination.and_then(|facts| facts.identity),
            is_local: local(from) && local(to),
            deletes: deletes && destination.is_some(),
            marker: format!("longhaul-same-tree-{:016x}", random_token()).into_bytes(),
            is_marked: AtomicBool::new(false),
            is_unknown: AtomicBool::new(false),
            has_met: AtomicBool::new(false),
            sample: Mutex::default(),
            names: Mutex::default(),
            likeness: Mutex::default(),
            directories: Mutex::default(),
            suspects: Mutex::default(),
        };
        match is_same(watch.source, watch.destination) {
            true if watch.is_local => return Err(watch.refusal()),
            true => watch.suspect(b"", b""),
            false => {}
        }
        Ok(watch)
    }

    /// Whether it is known that the trees are different.
    pub(crate) fn is_certain(&self) -> bool {
        !self.is_unknown.load(Ordering::Relaxed)
    }

    /// Sees an entry of the source.
    pub(crate) fn see_source(&self, directory: &[u8], name: &[u8], entry: &TreeEntry) {
        match entry {
            TreeEntry::Directory(_) if name == self.marker => {
                self.has_met.store(true, Ordering::Relaxed);
                return;
            }
            TreeEntry::Directory(facts) => self.see_source_directory(directory, name, *facts),
            TreeEntry::File(_) | TreeEntry::LinkedFile(..) | TreeEntry::Link(_) => {}
            TreeEntry::Skipped(_) | TreeEntry::Failed(_) | TreeEntry::Unlisted(_) => return,
        }
        if self.is_local {
            return;
        }
        let mut sample = self.sample.lock();
        if sample.len() < SAMPLED_ENTRIES {
            sample.push(join_path(directory, name));
        }
        if !directory.is_empty() && self.names.lock().contains(name) {
            let mut likeness = self.likeness.lock();
            if likeness.len() < MAX_SUSPECTS || likeness.contains_key(directory) {
                *likeness.entry(directory.to_vec()).or_default() += 1;
            }
        }
    }

    fn see_source_directory(&self, directory: &[u8], name: &[u8], facts: SourceFacts) {
        let path = join_path(directory, name);
        let directories = self.directories.lock();
        let there = facts
            .identity
            .and_then(|identity| directories.get(&identity));
        let is_elsewhere = there.is_some_and(|there| *there != path);
        if is_elsewhere || is_same(facts.identity, self.destination) {
            self.suspect(&path, b"");
        }
    }

    /// Sees a name in the top of the destination.
    pub(crate) fn see_name(&self, name: &[u8]) {
        let mut names = self.names.lock();
        if !self.is_local && names.len() < SAMPLED_ENTRIES {
            names.insert(name.to_vec());
        }
    }

    /// Sees a directory of the destination, at a relative path.
    pub(crate) fn see_destination(&self, path: &[u8], facts: SourceFacts) {
        if is_same(facts.identity, self.source) {
            self.suspect(b"", path);
        }
        if let Some(identity) = facts.identity.filter(|_| self.is_local) {
            self.directories.lock().insert(identity, path.to_vec());
        }
    }

    fn suspect(&self, of_source: &[u8], of_destination: &[u8]) {
        let mut suspects = self.suspects.lock();
        match suspects.len() < MAX_SUSPECTS {
            true => suspects.push((of_source.to_vec(), of_destination.to_vec())),
            false => self.is_unknown.store(true, Ordering::Relaxed),
        }
    }

    /// After the destination is listed, and before the source is: makes a marker for a sync that deletes.
    pub(crate) async fn begin(&self, ctx: &BatchContext) {
        if self.is_local || !self.deletes || ctx.options.dry_run {
            return;
        }
        match self.make(ctx, b"").await {
            Ok(()) => self.is_marked.store(true, Ordering::Relaxed),
            Err(failure) => {
                tracing::debug!(%failure, "no marker at the destination of a sync");
                self.is_unknown.store(true, Ordering::Relaxed);
            }
        }
    }

    /// After both are listed: removes the marker, and looks for the source in the destination.
    ///
    /// # Errors
    /// `Usage`: the trees are one, or one is in the other. A marker cannot be removed.
    pub(crate) async fn end(
        &self,
        ctx: &BatchContext,
        there: &DestinationIndex,
    ) -> Result<(), Failure> {
        if self.is_marked.load(Ordering::Relaxed) {
            self.remove(ctx, b"").await?;
        }
        if self.has_met.load(Ordering::Relaxed) {
            return Err(self.refusal());
        }
        if self.is_local && !self.suspects.lock().is_empty() {
            return Err(self.refusal());
        }
        if self.is_local || ctx.options.dry_run {
            return Ok(());
        }
        if self.deletes {
            self.suspect_alike(there)?;
        }
        let may_be_stale = self.source_may_be_stale(ctx).await?;
        let suspects = std::mem::take(&mut *self.suspects.lock());
        for (of_source, of_destination) in &suspects {
            if self.make(ctx, of_destination).await.is_err() {
                self.is_unknown.store(true, Ordering::Relaxed);
                continue;
            }
            let found = self.is_in_source(ctx, of_source).await;
            self.remove(ctx, of_destination).await?;
            match found {
                Ok(true) => return Err(self.refusal()),
                Ok(false) if !may_be_stale => {}
                Ok(false) | Err(_) => self.is_unknown.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Suspects directories that have a part of what is in the top of the other tree.
    fn suspect_alike(&self, there: &DestinationIndex) -> Result<(), Failure> {
        let sample = self.sample.lock().clone();
        let least = least_alike(sample.len());
        there.visit_directories_with(&sample, least, |directory| self.suspect(b"", directory))?;
        let least = least_alike(self.names.lock().len());
        let likeness = std::mem::take(&mut *self.likeness.lock());
        for (directory, _) in likeness.iter().filter(|(_, names)| **names >= least) {
            self.suspect(directory, b"");
        }
        Ok(())
    }

    /// Whether the source may show a directory as it was some minutes ago, without the marker: HTTP servers have caches
    /// (rclone). Only one of this machine can serve the destination without having made the marker itself.
    async fn source_may_be_stale(&self, ctx: &BatchContext) -> Result<bool, Failure> {
        let is_http = |server: &Server| matches!(server.scheme, Scheme::Http | Scheme::Https);
        if !self.deletes || !self.from.server().is_some_and(is_http) {
            return Ok(false);
        }
        let id = self.from.storage_id();
        let session = ctx.session(&id).await?;
        let ends = session.path_ends();
        ctx.pool.release(&id, session);
        Ok(ends.is_some_and(|(own, peer)| own == peer))
    }

    fn marker_in(&self, directory: &[u8]) -> Location {
        join_location(&self.to, &join_path(directory, &self.marker))
    }

    async fn make(&self, ctx: &BatchContext, directory: &[u8]) -> Result<(), Failure> {
        let at = self.marker_in(directory);
        let id = at.storage_id();
        let mut request = ctx.request(&id);
        loop {
            let mut session = request.session().await?;
            // Nobody else makes a directory of this name: one that exists was made by a lost try.
            let made = session.make_dir(at.path()).await;
            if request.end(session, made).await?.is_some() {
                return Ok(());
            }
        }
    }

    async fn remove(&self, ctx: &BatchContext, directory: &[u8]) -> Result<(), Failure> {
        let at = self.marker_in(directory);
        let removed = remove_directory(ctx, &at).await;
        removed.map_err(|failure| {
            failure.remark(format!(
                "remove the empty directory {}, which was made to tell both trees apart",
                at.display()
            ))
        })
    }

    async fn is_in_source(&self, ctx: &BatchContext, directory: &[u8]) -> Result<bool, Failure> {
        let at = join_location(&self.from, &join_path(directory, &self.marker));
        match ctx.stat(&at.storage_id(), at.path()).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_missing() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn refusal(&self) -> Failure {
        let (from, to) = (self.from.display(), self.to.display());
        Failure::usage(format!(
            "{from} and {to} are one tree, or one is in the other: nothing was changed"
        ))
    }
}

async fn remove_directory(ctx: &BatchContext, at: &Location) -> Result<(), Failure> {
    let id = at.storage_id();
    let mut request = ctx.request(&id);
    loop {
        let mut session = request.session().await?;
        let removed = session.remove_dir(at.path()).await;
        if request.end_removal(session, removed).await?.is_some() {
            return Ok(());
        }
    }
}

fn is_same(identity: Option<u64>, other: Option<u64>) -> bool {
    identity.is_some() && identity == other
}

/// Fewest of so many entries by which a directory is suspected.
fn least_alike(entries: usize) -> usize {
    entries
        .div_ceil(LIKENESS)
        .max(entries.min(LEAST_ALIKE))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(from: &str, to: &str) -> SameTreeWatch {
        let at = |text: &str| Location::parse(text).unwrap();
        let facts = SourceFacts::default();
        SameTreeWatch::new(&at(from), facts, &at(to), Some(facts), true).unwrap()
    }

    fn directory(identity: u64) -> SourceFacts {
        SourceFacts {
            identity: Some(identity),
            ..SourceFacts::default()
        }
    }

    #[test]
    fn a_directory_of_the_source_that_the_destination_has_under_another_name_is_noticed() {
        for (there, is_noticed) in [("other", true), ("d", false)] {
            let watch = watch("/from", "/to");
            watch.see_destination(there.as_bytes(), directory(7));
            watch.see_source(b"", b"d", &TreeEntry::Directory(directory(7)));
            assert_eq!(!watch.suspects.lock().is_empty(), is_noticed, "{there}");
        }
    }

    #[test]
    fn a_part_of_the_same_names_makes_a_directory_suspect() {
        let watch = watch("ftp://h/", "/to");
        for n in 0..10 {
            watch.see_name(format!("f{n}").as_bytes());
        }
        for (directory, names) in [("alike", 3), ("other", 2)] {
            for n in 0..names {
                let file = TreeEntry::File(SourceFacts::default());
                watch.see_source(directory.as_bytes(), format!("f{n}").as_bytes(), &file);
            }
        }
        let least = least_alike(watch.names.lock().len());
        let mut alike = watch.likeness.lock().clone();
        alike.retain(|_, names| *names >= least);
        assert_eq!(alike.into_keys().collect::<Vec<_>>(), [b"alike".to_vec()]);
        for (entries, least) in [(1, 1), (3, 3), (12, 3), (32, 8)] {
            assert_eq!(least_alike(entries), least);
        }
    }
}
