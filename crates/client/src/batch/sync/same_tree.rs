//! Finds out whether the two trees of a sync are one, or one is in the other, whatever their names are: through bind mounts
//! and links, through two names of one server, through a server that serves a directory of this machine.
//!
//! On this machine a directory is known by device and inode. What servers tell of theirs (`Unique`) is a reason to look: two
//! machines may have the same numbers. A marker decides: an empty directory that is made at the destination, looked for in
//! the source, and removed. Whatever deletes makes one, because some servers tell nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::index::DestinationIndex;
use super::usage;
use crate::answers::SourceFacts;
use crate::batch::plan::{join_location, trim_trailing_slashes};
use crate::batch::{BatchContext, lock};
use crate::location::{Location, StorageId};
use crate::replacement::random_token;
use crate::tree::{TreeEntry, join_path};
use crate::{CopyFailure, Exit};

/// Entries of the source by which a directory of the destination is suspected to be its top.
const SAMPLED_ENTRIES: usize = 32;
/// Most directories of the destination that are tried with a marker.
const MAX_SUSPECTS: usize = 1000;

/// Watches both listings of a sync.
pub(super) struct SameTreeWatch {
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
    /// Some paths in the source, with sizes of files.
    sample: Mutex<Vec<(Vec<u8>, Option<u64>)>>,
    /// A directory of the source and one of the destination that may be one, relative to the tops; one of both is a top.
    suspects: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl SameTreeWatch {
    /// A watch over the trees `from` and `to`, with the facts of their tops, that of `to` if it exists. `deletes`: the sync
    /// deletes at the destination.
    ///
    /// # Errors
    /// `Usage`: the trees are one on this machine.
    pub(super) fn new(
        (from, source): (&Location, SourceFacts),
        (to, destination): (&Location, Option<SourceFacts>),
        deletes: bool,
    ) -> Result<Self, CopyFailure> {
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
    pub(super) fn is_certain(&self) -> bool {
        !self.is_unknown.load(Ordering::Relaxed)
    }

    /// Sees an entry of the source.
    pub(super) fn see_source(&self, directory: &[u8], name: &[u8], entry: &TreeEntry) {
        let size = match entry {
            TreeEntry::Directory(_) if name == self.marker => {
                self.has_met.store(true, Ordering::Relaxed);
                return;
            }
            TreeEntry::Directory(facts) => {
                if is_same(facts.identity, self.destination) {
                    self.suspect(&join_path(directory, name), b"");
                }
                None
            }
            TreeEntry::File(facts) | TreeEntry::LinkedFile(facts, _) => facts.size,
            _ => return,
        };
        let mut sample = lock(&self.sample);
        if sample.len() < SAMPLED_ENTRIES {
            sample.push((join_path(directory, name), size));
        }
    }

    /// Sees a directory of the destination, at a relative path.
    pub(super) fn see_destination(&self, path: &[u8], facts: SourceFacts) {
        if is_same(facts.identity, self.source) {
            self.suspect(b"", path);
        }
    }

    fn suspect(&self, of_source: &[u8], of_destination: &[u8]) {
        let mut suspects = lock(&self.suspects);
        match suspects.len() < MAX_SUSPECTS {
            true => suspects.push((of_source.to_vec(), of_destination.to_vec())),
            false => self.is_unknown.store(true, Ordering::Relaxed),
        }
    }

    /// After the destination is listed, and before the source is: makes a marker for a sync that deletes.
    pub(super) async fn begin(&self, ctx: &BatchContext) {
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
    pub(super) async fn end(
        &self,
        ctx: &BatchContext,
        there: &DestinationIndex,
    ) -> Result<(), CopyFailure> {
        if self.is_marked.load(Ordering::Relaxed) {
            self.remove(ctx, b"").await?;
        }
        if self.has_met.load(Ordering::Relaxed) {
            return Err(self.refusal());
        }
        if self.is_local && !lock(&self.suspects).is_empty() {
            return Err(self.refusal());
        }
        if self.is_local || ctx.options.dry_run {
            return Ok(());
        }
        if self.deletes {
            let sample = lock(&self.sample).clone();
            there.visit_directories_with(&sample, |directory| self.suspect(b"", directory))?;
        }
        let suspects = std::mem::take(&mut *lock(&self.suspects));
        for (of_source, of_destination) in &suspects {
            if self.make(ctx, of_destination).await.is_err() {
                self.is_unknown.store(true, Ordering::Relaxed);
                continue;
            }
            let found = self.is_in_source(ctx, of_source).await;
            self.remove(ctx, of_destination).await?;
            match found {
                Ok(true) => return Err(self.refusal()),
                Ok(false) => {}
                Err(_) => self.is_unknown.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    fn marker_in(&self, directory: &[u8]) -> Location {
        join_location(&self.to, &join_path(directory, &self.marker))
    }

    async fn make(&self, ctx: &BatchContext, directory: &[u8]) -> Result<(), CopyFailure> {
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

    async fn remove(&self, ctx: &BatchContext, directory: &[u8]) -> Result<(), CopyFailure> {
        let at = self.marker_in(directory);
        let removed = remove_directory(ctx, &at).await;
        removed.map_err(|failure| {
            let message = format!(
                "{failure}; remove the empty directory {}, which was made to tell both trees apart",
                at.display()
            );
            CopyFailure { message, ..failure }
        })
    }

    async fn is_in_source(
        &self,
        ctx: &BatchContext,
        directory: &[u8],
    ) -> Result<bool, CopyFailure> {
        let at = join_location(&self.from, &join_path(directory, &self.marker));
        match ctx.stat(&at.storage_id(), at.path()).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.exit == Exit::NotFound => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn refusal(&self) -> CopyFailure {
        let (from, to) = (self.from.display(), self.to.display());
        usage(format!(
            "{from} and {to} are one tree, or one is in the other: nothing was changed"
        ))
    }
}

async fn remove_directory(ctx: &BatchContext, at: &Location) -> Result<(), CopyFailure> {
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
