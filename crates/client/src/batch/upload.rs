//! The remote file that a put or a third-party copy writes: under a partial name until it is whole.

use std::sync::{Arc, Mutex, PoisonError};

use data::job::Control;
use proto::feature::Features;
use proto::listing::Kind;
use proto::printable::printable;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::keep::{Kept, after_failure};
use super::request::Span;
use super::resume::{Leftover, is_all, usable};
use super::sums::{End, partial_algorithm, spots_agree};
use super::{Context, Item, disk};
use crate::journal::{self, Identity, Journal, State};
use crate::location::Server;
use crate::own::Stand;
use crate::partial::{own_remote, partial_path, state_journal};
use crate::session::Session;
use crate::session::files::{NotRenamed, Refused};
use crate::transfer::Confirmation;
use crate::tree::Facts;
use crate::verify::Check;
use crate::{Exit, Failure};

/// Smaller files are not worth looking at what a lost attempt has stored.
const RESUMABLE: u64 = 1 << 20;

/// The destination on a server, over all attempts.
pub(super) struct Upload<'a> {
    pub(super) server: &'a Server,
    /// The name that it will have.
    path: &'a [u8],
    /// The name that it has until then; `None` where the server does not rename.
    aside: Option<Vec<u8>>,
    /// A whole and verified file under its partial name, which the server would not rename: it goes only
    /// when the file stands verified under its own name.
    kept: Option<Vec<u8>>,
    /// The file that had the final name before; it was moved out of the way.
    replaced: Option<Vec<u8>>,
    /// For messages.
    pub(super) shown: String,
    pub(super) journal: Option<Journal>,
    /// Safe at the destination when an attempt begins.
    pub(super) have: RangeSet,
    /// Reported by the server as stored in the running attempt.
    pub(super) marked: Arc<Mutex<RangeSet>>,
    /// Bytes are stored strictly in order: the remote size tells what is there.
    in_order: bool,
    /// The last attempt, if its bytes came from here.
    control: Option<Arc<Control>>,
    /// The lock on what this machine knows of the destination.
    owned: Option<Stand>,
    /// What an earlier run left has been looked at.
    prepared: bool,
    resumed: bool,
    distrust: bool,
    /// A checksum of the whole will be compared at the end.
    has_sum: bool,
    /// Some of what is safe came in an attempt that a server did not stand by: a checksum must judge
    /// it.
    pub(super) disputed: bool,
    /// The last attempt's bytes are sent again.
    pub(super) in_vain: bool,
    /// A mismatch has led to a new beginning once.
    started_over: bool,
}

/// How putting a file in place ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It has its name.
    InPlace,
    /// The server does not rename: the file must be stored anew under its own name.
    StoreDirectly,
}

impl<'a> Upload<'a> {
    /// Nothing done yet.
    pub(super) fn new(ctx: &Context, server: &'a Server, path: &'a [u8], shown: String) -> Self {
        Self {
            server,
            path,
            aside: ctx.pool.renames(server).then(|| partial_path(path)),
            kept: None,
            replaced: None,
            shown,
            journal: None,
            have: RangeSet::new(),
            marked: Arc::default(),
            in_order: false,
            control: None,
            owned: None,
            prepared: false,
            resumed: false,
            distrust: false,
            has_sum: false,
            disputed: false,
            in_vain: false,
            started_over: false,
        }
    }

    /// Makes this the only copy of this account on this machine to the destination, over all attempts:
    /// journals are its own, and servers that let two uploads of a file mix get one at a time.
    pub(super) fn own(&mut self, item: &Item) -> Result<(), Failure> {
        if self.owned.is_none() {
            let destination = &item.destination;
            self.owned = own_remote(&destination.identity(), &self.shown)?;
        }
        Ok(())
    }

    /// Where the bytes are stored.
    pub(super) fn store_path(&self) -> Vec<u8> {
        self.aside.clone().unwrap_or_else(|| self.path.to_vec())
    }

    /// What is safe now.
    pub(super) fn safe(&self) -> impl Fn() -> RangeSet + Clone + Send + Sync + use<> {
        let (have, marked) = (self.have.clone(), Arc::clone(&self.marked));
        move || {
            let mut safe = have.clone();
            safe.extend(&marked.lock().unwrap_or_else(PoisonError::into_inner));
            safe
        }
    }

    /// An attempt begins that sends from here.
    pub(super) fn begin(&mut self, control: &Arc<Control>) {
        self.control = Some(Arc::clone(control));
    }

    /// Whether an interrupted attempt leaves a file whose size tells what is there.
    pub(super) fn size_tells(&self) -> bool {
        self.in_order && self.control.is_some()
    }

    /// Before each attempt: finds out what is safe. The first time that is what an earlier run
    /// left, if `--resume` asks for it; then what this run has stored.
    pub(super) async fn prepare(
        &mut self,
        (ctx, item, check): (&Context, &Item, Check),
        mut identity: Identity,
        source: (&mut End<'_>, Option<&Features>),
        session: &mut Session,
    ) -> Result<(), Failure> {
        self.has_sum = check.algorithm().is_some();
        if self.prepared {
            return self.take_stock(identity.size, source, session).await;
        }
        let wanted = ctx.options.resume && !self.distrust && self.aside.is_some();
        let size = identity.size;
        let journal = state_journal(&identity.source, &identity.destination);
        let mut length = None;
        if wanted {
            length = self.partial_length(session).await?;
            self.have = self
                .leftover(
                    ctx,
                    &identity,
                    (length, journal.as_deref()),
                    source,
                    session,
                )
                .await?;
        }
        self.resumed = !self.have.is_empty();
        identity.in_order &= !self.resumed || is_all(&self.have, length);
        self.in_order = identity.in_order;
        let from = self.resumed.then(|| State::told(self.have.clone()));
        // Without a place for it, the copy goes on without a journal.
        self.journal = match journal {
            Some(path) => disk::journal_of_upload(path, identity, from).await?,
            None => None,
        };
        if !self.resumed {
            self.clear_way(session, size).await?;
        }
        self.prepared = true;
        ctx.started(item, size, self.have.bytes());
        Ok(())
    }

    /// An attempt ended well: all of `size` bytes are there, and the servers said so.
    pub(super) fn confirmed(&mut self, size: Option<u64>) {
        self.in_vain = false;
        self.control = None;
        self.marked = Arc::default();
        if let Some(size) = size {
            self.have.insert(0, size);
        }
    }

    /// An attempt failed: decides what of it counts.
    pub(super) fn settle(&mut self, failure: &Failure, said: &Confirmation, size: Option<u64>) {
        if failure.transient
            && let Some(journal) = &mut self.journal
        {
            journal.note_lost();
        }
        let marked = std::mem::take(&mut self.marked);
        let marked = marked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let moved = self.control.as_ref().map_or(0, |control| control.bytes());
        let all_sent = size.is_some_and(|size| self.have.bytes() + moved >= size);
        // The server's file may be whole, but a 226 is missing.
        self.in_vain = all_sent && !self.has_sum;
        self.weigh(&marked, said, size);
    }

    fn weigh(&mut self, arrived: &RangeSet, said: &Confirmation, size: Option<u64>) {
        match after_failure(&self.have, arrived, said, size, self.has_sum) {
            Kept::Safe(all) => self.have = all,
            Kept::Disputed(all) => {
                self.have = all;
                self.disputed = true;
            }
            Kept::Dropped(safe) => self.take_back(safe),
        }
    }

    /// Nothing but `safe` counts any more, whatever the length of the file at the server.
    fn take_back(&mut self, safe: RangeSet) {
        self.in_vain = true;
        self.in_order = false;
        if let Some(journal) = &mut self.journal
            && let Err(e) = journal.take_back(&State::told(safe.clone()))
        {
            tracing::debug!("journal: {e}");
        }
        self.have = safe;
    }

    /// A leftover that is not used must not be mistaken later for what this run has stored: where
    /// no checksum can tell them apart, it goes.
    async fn clear_way(&self, session: &mut Session, size: Option<u64>) -> Result<(), Failure> {
        let large = size.is_none_or(|size| size >= RESUMABLE);
        let Some(aside) = self.aside.as_ref().filter(|_| large && self.in_order) else {
            return Ok(());
        };
        if !session.features().checksums.is_empty() {
            return Ok(());
        }
        match session.delete(aside).await {
            Err(failure) if failure.transient => Err(failure),
            // Mostly there is none.
            _ => Ok(()),
        }
    }

    /// After a failed attempt of this run: what the server said it stored, or in order, how far
    /// the file has come. An attempt that moved nothing changes nothing.
    async fn take_stock(
        &mut self,
        size: Option<u64>,
        (source, features): (&mut End<'_>, Option<&Features>),
        session: &mut Session,
    ) -> Result<(), Failure> {
        self.have = self.safe()();
        self.marked = Arc::default();
        let moved = self.control.take().map_or(0, |control| control.bytes());
        if !self.in_order || moved == 0 {
            return Ok(());
        }
        let before = self.have.prefix();
        let path = self.store_path();
        let there = match session.stat(&path).await {
            Ok(entry) => entry.size.unwrap_or(0),
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => 0,
        };
        // Anything else is not the file that this run was writing.
        self.have = RangeSet::new();
        if there < RESUMABLE.max(before) || there > before.saturating_add(moved) {
            return Ok(());
        }
        let mut stored = RangeSet::new();
        stored.insert(0, there);
        let own = session.features().clone();
        let servers: Vec<&Features> = std::iter::once(&own).chain(features).collect();
        let mut destination = End::Remote {
            session,
            path: &path,
            origin: 0,
        };
        let same = match partial_algorithm(&servers) {
            Some(algorithm) => spots_agree(source, &mut destination, algorithm, &stored).await?,
            None => true,
        };
        if same {
            self.have.insert(0, before);
            self.weigh(&stored, &Confirmation::default(), size);
        }
        Ok(())
    }

    async fn leftover(
        &self,
        ctx: &Context,
        identity: &Identity,
        (length, journal): (Option<u64>, Option<&std::path::Path>),
        (source, features): (&mut End<'_>, Option<&Features>),
        session: &mut Session,
    ) -> Result<RangeSet, Failure> {
        let Some(length) = length else {
            return Ok(RangeSet::new());
        };
        let path = self.store_path();
        let leftover = Leftover {
            identity,
            length,
            journal,
            shown: &self.shown,
            judged: self.has_sum,
        };
        let own = session.features().clone();
        let servers: Vec<&Features> = std::iter::once(&own).chain(features).collect();
        let mut destination = End::Remote {
            session,
            path: &path,
            origin: 0,
        };
        usable(ctx, &leftover, &servers, source, &mut destination).await
    }

    /// Length of what is there under the partial name, if anything is.
    async fn partial_length(&self, session: &mut Session) -> Result<Option<u64>, Failure> {
        let there = facts(session, &self.store_path()).await?;
        Ok(there.and_then(|facts| facts.size).filter(|n| *n > 0))
    }

    /// What has the final name, if `--resume` asks for it to be looked at: it has this size, and
    /// nothing unfinished is beside it.
    pub(super) async fn in_place(
        &self,
        ctx: &Context,
        size: Option<u64>,
        session: &mut Session,
    ) -> Result<Option<Facts>, Failure> {
        if !ctx.options.resume || self.prepared || self.distrust || size.is_none() {
            return Ok(None);
        }
        let there = facts(session, self.path).await?;
        let Some(there) = there.filter(|there| there.size == size) else {
            return Ok(None);
        };
        if let Some(aside) = &self.aside
            && facts(session, aside).await?.is_some()
        {
            return Ok(None);
        }
        Ok(Some(there))
    }

    /// The path that the file has when it is whole.
    pub(super) fn path(&self) -> &'a [u8] {
        self.path
    }

    /// What is in place is what was to be copied: a journal of it is of no use.
    pub(super) fn found_in_place(
        &self,
        ctx: &Context,
        item: &Item,
        source: &str,
        size: Option<u64>,
    ) {
        if let Some(path) = state_journal(source, &item.destination.identity()) {
            journal::forget(&path);
        }
        ctx.started(item, size, size.unwrap_or(0));
    }

    /// Gives up what was resumed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        let resumed = std::mem::take(&mut self.resumed);
        let disputed = std::mem::take(&mut self.disputed) && !self.started_over;
        if !resumed && !disputed {
            return false;
        }
        self.started_over = true;
        self.distrust = true;
        self.prepared = false;
        self.journal = None;
        self.have = RangeSet::new();
        self.marked = Arc::default();
        true
    }

    /// Whether everything is there already.
    pub(super) fn is_whole(&self, span: Span) -> bool {
        !self.have.is_empty() && span.size.is_some_and(|size| self.have.contains(0, size))
    }

    /// Compares the size at the server with `expected`; `false` when the server does not tell it.
    pub(super) async fn check_size(
        &self,
        session: &mut Session,
        expected: u64,
    ) -> Result<bool, Failure> {
        let entry = session.stat(&self.store_path()).await?;
        match entry.size {
            Some(size) if size != expected => Err(Failure::new(
                Exit::Integrity,
                format!(
                    "{}: {size} bytes arrived of {expected}; the copy keeps its partial name",
                    self.shown
                ),
            )),
            told => Ok(told.is_some()),
        }
    }

    /// Gives the whole and verified file its time, if the server can, and its name. `again`: the source
    /// can be read again, so that the file may be stored anew where the server does not rename.
    pub(super) async fn finish(
        &mut self,
        ctx: &Context,
        session: &mut Session,
        modified: Option<Timestamp>,
        again: bool,
    ) -> Result<Finish, Failure> {
        let Some(stored) = self.aside.clone() else {
            self.date(session, modified).await?;
            let kept = self.kept.take();
            self.tidy(session, kept).await;
            self.forget_journal();
            return Ok(Finish::InPlace);
        };
        let Err(refusal) = self.rename(session, &stored, modified).await else {
            let replaced = self.replaced.take();
            self.tidy(session, replaced).await;
            self.forget_journal();
            return Ok(Finish::InPlace);
        };
        let NotRenamed { failure, refused } = refusal;
        if failure.transient {
            return Err(failure);
        }
        if again && refused != Refused::Source && is_impossible(&failure) {
            // Under this name it can never be; the source was there and unchanged a moment ago.
            self.tidy(session, Some(stored)).await;
            return Err(failure);
        }
        // A partial file that is gone was somebody else's doing; so is a name that stays taken.
        let gone = refused == Refused::Source && failure.exit == Exit::NotFound;
        if !again || gone || refused == Refused::TakenPerhaps {
            self.kept = Some(stored).filter(|_| !gone);
            return Err(failure);
        }
        self.store_directly(ctx, stored, &failure);
        Ok(Finish::StoreDirectly)
    }

    /// Adds to a failure where the whole and verified file is, if it has not got its name.
    pub(super) fn explained(&self, mut failure: Failure) -> Failure {
        if failure.transient {
            return failure;
        }
        if let Some(kept) = &self.kept {
            let kept = printable(kept);
            failure.message += &format!(
                "; everything arrived and was verified: it is kept there as {kept}, rename it by hand"
            );
        }
        if let Some(old) = &self.replaced {
            let old = printable(old);
            failure.message += &format!("; what had the name before is kept as {old}");
        }
        failure
    }

    /// Deletes a file of this copy that is of no use any more. The copy is whole and in place: that
    /// one stays is no failure of it.
    async fn tidy(&self, session: &mut Session, path: Option<Vec<u8>>) {
        if let Some(path) = path {
            let _ = session.delete(&path).await;
        }
    }

    /// Passes the result of a verification on; after a mismatch, or where nothing proves what a server
    /// refused, nothing is left to resume.
    pub(super) fn judged<T>(&mut self, verified: Result<T, Failure>) -> Result<T, Failure> {
        match &verified {
            Err(failure) if failure.exit == Exit::Integrity => self.forget_journal(),
            Err(failure) if self.disputed && failure.exit == Exit::Protocol => {
                self.take_back(RangeSet::new());
            }
            _ => {}
        }
        verified
    }

    fn forget_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// The time of a file that has its name.
    async fn date(
        &self,
        session: &mut Session,
        modified: Option<Timestamp>,
    ) -> Result<(), Failure> {
        let Some(time) = modified.filter(|_| session.features().mfmt) else {
            return Ok(());
        };
        match session.set_modified(self.path, time).await {
            Err(failure) if failure.transient => Err(failure),
            _ => Ok(()),
        }
    }

    /// The time, RNFR and RNTO. Where RNTO does not replace, the old file is moved out of the way, and
    /// back if that did not help: nothing is deleted before the new file has the name.
    async fn rename(
        &mut self,
        session: &mut Session,
        stored: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), NotRenamed> {
        let Err(refusal) = session.put_in_place(stored, self.path, modified).await else {
            return Ok(());
        };
        let taken = refusal.refused == Refused::TakenPerhaps && !refusal.failure.transient;
        if !taken {
            return Err(refusal);
        }
        if facts(session, self.path).await?.is_none() {
            // Nothing is there that could be in the way.
            return Err(NotRenamed {
                refused: Refused::Target,
                ..refusal
            });
        }
        let old = [stored, b".old"].concat();
        match session.rename(self.path, &old).await {
            Err(failure) if failure.transient => return Err(failure.into()),
            Err(_) => return Err(refusal),
            Ok(()) => self.replaced = Some(old.clone()),
        }
        let Err(failure) = session.rename(stored, self.path).await else {
            return Ok(());
        };
        if !failure.transient && session.rename(&old, self.path).await.is_ok() {
            self.replaced = None;
        }
        Err(NotRenamed {
            failure,
            refused: Refused::TakenPerhaps,
        })
    }

    /// From here on the bytes are stored under the final name; what is whole under the partial name
    /// stays until they are there.
    fn store_directly(&mut self, ctx: &Context, stored: Vec<u8>, refusal: &Failure) {
        ctx.pool.forbid_rename(self.server);
        ctx.warn(format!(
            "{} refuses to rename ({}): files are stored under their final names, also while they \
             are unfinished",
            self.server, refusal.message
        ));
        self.aside = None;
        self.kept = Some(stored);
        self.have = RangeSet::new();
        self.marked = Arc::default();
        self.resumed = false;
    }
}

/// Whether the server's file system has no room for such a name.
fn is_impossible(failure: &Failure) -> bool {
    failure.message.to_lowercase().contains("name too long")
}

/// Facts of a remote file; `None` when there is none or it cannot be seen.
async fn facts(session: &mut Session, path: &[u8]) -> Result<Option<Facts>, Failure> {
    match session.stat(path).await {
        Ok(entry) if entry.kind == Kind::File => Ok(Some(Facts::of(&entry))),
        Err(failure) if failure.transient => Err(failure),
        Ok(_) | Err(_) => Ok(None),
    }
}
