//! The remote file that a put or a third-party copy writes: under a partial name until it is whole.

use std::sync::{Arc, Mutex, PoisonError};

use proto::feature::Features;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::Context;
use super::request::Span;
use super::resume::{Leftover, usable};
use super::sums::End;
use crate::journal::{Identity, Journal};
use crate::location::Server;
use crate::partial::{partial_path, state_journal};
use crate::session::Session;
use crate::{Exit, Failure};

/// The destination on a server, over all attempts.
pub(super) struct Upload<'a> {
    pub(super) server: &'a Server,
    /// The name that it will have.
    path: &'a [u8],
    /// The name that it has until then; `None` where the server does not rename.
    aside: Option<Vec<u8>>,
    /// For messages.
    pub(super) shown: String,
    pub(super) journal: Option<Journal>,
    /// Safe at the destination when an attempt begins.
    pub(super) have: RangeSet,
    /// Reported by the server as stored in the running attempt.
    pub(super) marked: Arc<Mutex<RangeSet>>,
    /// Bytes are stored strictly in order: the remote size tells what is there.
    pub(super) in_order: bool,
    /// What an earlier run left has been looked at.
    prepared: bool,
    resumed: bool,
    distrust: bool,
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
            shown,
            journal: None,
            have: RangeSet::new(),
            marked: Arc::default(),
            in_order: false,
            prepared: false,
            resumed: false,
            distrust: false,
        }
    }

    /// Where the bytes are stored.
    pub(super) fn store_path(&self) -> Vec<u8> {
        self.aside.clone().unwrap_or_else(|| self.path.to_vec())
    }

    /// What is safe now.
    pub(super) fn safe(&self) -> impl Fn() -> RangeSet + Send + use<> {
        let (have, marked) = (self.have.clone(), Arc::clone(&self.marked));
        move || {
            let mut safe = have.clone();
            safe.extend(&marked.lock().unwrap_or_else(PoisonError::into_inner));
            safe
        }
    }

    /// Before each attempt: finds out what is safe. The first time that is what an earlier run
    /// left, if `--resume` asks for it; then what this run has stored.
    pub(super) async fn prepare(
        &mut self,
        ctx: &Context,
        identity: Identity,
        source: (&mut End<'_>, Option<&Features>),
        session: &mut Session,
    ) -> Result<(), Failure> {
        if self.prepared {
            return self.take_stock(session, identity.size).await;
        }
        let wanted = ctx.options.resume && !self.distrust && self.aside.is_some();
        self.in_order = identity.in_order;
        let journal = state_journal(&identity.source, &identity.destination);
        if wanted {
            self.have = self
                .leftover(ctx, &identity, journal.as_deref(), source, session)
                .await?;
        }
        self.resumed = !self.have.is_empty();
        // Without a place for it, the copy goes on without a journal.
        self.journal = journal.and_then(|path| {
            if self.resumed {
                Some(Journal::resumed(path, identity))
            } else {
                Journal::fresh(path, identity).ok()
            }
        });
        self.prepared = true;
        Ok(())
    }

    /// After a failed attempt of this run: what the server said it stored, or in order, how far
    /// the file has come.
    async fn take_stock(
        &mut self,
        session: &mut Session,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        self.have = self.safe()();
        self.marked = Arc::default();
        if !self.in_order {
            return Ok(());
        }
        self.have = RangeSet::new();
        match session.stat(&self.store_path()).await {
            Ok(entry) => {
                let there = entry.size.filter(|n| size.is_none_or(|size| *n <= size));
                self.have.insert(0, there.unwrap_or(0));
                Ok(())
            }
            Err(failure) if failure.transient => Err(failure),
            Err(_) => Ok(()),
        }
    }

    async fn leftover(
        &self,
        ctx: &Context,
        identity: &Identity,
        journal: Option<&std::path::Path>,
        (source, features): (&mut End<'_>, Option<&Features>),
        session: &mut Session,
    ) -> Result<RangeSet, Failure> {
        let path = self.store_path();
        let length = match session.stat(&path).await {
            Ok(entry) => entry.size.filter(|n| *n > 0),
            Err(failure) if failure.transient => return Err(failure),
            Err(_) => None,
        };
        let Some(length) = length else {
            return Ok(RangeSet::new());
        };
        let leftover = Leftover {
            identity,
            length,
            journal,
            shown: &self.shown,
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

    /// Gives up what was resumed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        if !std::mem::take(&mut self.resumed) {
            return false;
        }
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

    /// Compares the size at the server with `expected`; a server that does not tell it is believed.
    pub(super) async fn check_size(
        &self,
        session: &mut Session,
        expected: u64,
    ) -> Result<(), Failure> {
        let entry = session.stat(&self.store_path()).await?;
        match entry.size {
            Some(size) if size != expected => Err(Failure::new(
                Exit::Integrity,
                format!(
                    "{}: {size} bytes arrived of {expected}; the copy keeps its partial name",
                    self.shown
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Gives the whole and verified file its time, if the server can, and its name.
    pub(super) async fn finish(
        &mut self,
        ctx: &Context,
        session: &mut Session,
        modified: Option<Timestamp>,
    ) -> Result<Finish, Failure> {
        let stored = self.store_path();
        if let Some(time) = modified.filter(|_| session.features().mfmt)
            && let Err(failure) = session.set_modified(&stored, time).await
            && failure.transient
        {
            return Err(failure);
        }
        if self.aside.is_some()
            && let Err(failure) = self.rename(session, &stored).await
        {
            if failure.transient {
                return Err(failure);
            }
            self.store_directly(ctx, session, &failure).await?;
            return Ok(Finish::StoreDirectly);
        }
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
        Ok(Finish::InPlace)
    }

    /// RNFR and RNTO; where RNTO does not replace, the old file goes first.
    async fn rename(&self, session: &mut Session, stored: &[u8]) -> Result<(), Failure> {
        let Err(failure) = session.rename(stored, self.path).await else {
            return Ok(());
        };
        if failure.transient || session.stat(self.path).await.is_err() {
            return Err(failure);
        }
        match session.delete(self.path).await {
            Ok(()) => session.rename(stored, self.path).await,
            Err(_) => Err(failure),
        }
    }

    async fn store_directly(
        &mut self,
        ctx: &Context,
        session: &mut Session,
        refusal: &Failure,
    ) -> Result<(), Failure> {
        ctx.pool.forbid_rename(self.server);
        ctx.warn(format!(
            "{} refuses to rename ({}): files are stored under their final names, also while they \
             are unfinished",
            self.server, refusal.message
        ));
        let left = self.aside.take();
        self.have = RangeSet::new();
        self.marked = Arc::default();
        self.resumed = false;
        match left {
            Some(left) => match session.delete(&left).await {
                Err(failure) if failure.transient => Err(failure),
                // A server without rename may well not delete either; the name tells what it is.
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }
}
